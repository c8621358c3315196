"""Access control in tests: signed requests, and a sample of each request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.broker_embedded.access.users import User
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies import acl as acl_bodies
from rocketmq_sdk.protocol.bodies import groups as group_bodies
from rocketmq_sdk.protocol.bodies import members as member_bodies
from rocketmq_sdk.protocol.bodies import topics as topic_bodies
from rocketmq_sdk.protocol.bodies.pop import BatchAckEntry, BatchAckMessageRequestBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.header import header_fields
from rocketmq_sdk.protocol.signing import sign_in_place
from rocketmq_sdk.protocol.subscription import build_subscription

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.access.table import AccessTable
    from rocketmq_sdk.broker_embedded.request import Request
    from support.broker import Peer

ADMIN: Final = "admin"
SECRET: Final = "the secret of the admin"
ON: Final[dict[str, Any]] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": json.dumps({"username": ADMIN, "password": SECRET}),
}
"""Settings of a broker with access control."""
TOPIC: Final = "TopicOfTheSample"
GROUP: Final = "GroupOfTheSample"
CLUSTER: Final = "DefaultCluster"

_TEXTS: Final = {
    "topic": TOPIC,
    "b": TOPIC,
    "originTopic": TOPIC,
    "topicList": f"{TOPIC};OtherTopic",
    "a": GROUP,
    "group": GROUP,
    "groupName": GROUP,
    "consumerGroup": GROUP,
    "destGroup": GROUP,
    "compareGroup": GROUP,
    "filterGroups": f"{GROUP},OtherGroup",
    "clusterName": CLUSTER,
    "cluster": CLUSTER,
    "extraInfo": "0 0 1000 0 0 broker-a 0 0",
    "subject": "User:somebody",
}


def signed(command: Command, user: str = ADMIN, secret: str = SECRET) -> Command:
    """The request, signed."""
    sign_in_place(command.ext_fields, command.body, user, secret)
    return command


async def add_user(table: AccessTable, name: str, *entries: tuple[str, str, str]) -> Command:
    """A normal user whose password is his name, with policies of (resource, actions,
    decision); actions are separated by commas.
    """
    from rocketmq_sdk.broker_embedded.access.policies import Acl

    if name not in table.users:
        await table.create_user(User(name, name))
    if entries:
        info = acl_bodies.AclInfo(None, (policy(*entries),))
        await table.update_acl(Acl.from_info(f"User:{name}", info))
    return Command(0)


def policy(*entries: tuple[str, str, str], kind: str = "Custom") -> acl_bodies.PolicyInfo:
    """A policy of (resource, actions, decision)."""
    return acl_bodies.PolicyInfo(
        kind,
        tuple(
            acl_bodies.PolicyEntryInfo(resource, tuple(actions.split(",")), None, decision)
            for resource, actions, decision in entries
        ),
    )


class SignedPeer:
    """A connection whose requests one user signs."""

    def __init__(self, peer: Peer, user: str = ADMIN, secret: str | None = None) -> None:
        self.peer = peer
        self.user = user
        self.secret = SECRET if user == ADMIN and secret is None else secret or user

    async def ask(self, request: Command | int, **ext: Any) -> Command:
        """Sign and send."""
        if isinstance(request, int):
            request = Command(request, ext_fields={name: str(value) for name, value in ext.items()})
        return await self.peer.ask(signed(request, self.user, self.secret))


def _queue() -> MessageQueue:
    return MessageQueue(TOPIC, "broker-a", 0)


BODIES: Final[dict[RequestCode, Any]] = {
    RequestCode.HEART_BEAT: member_bodies.HeartbeatData(
        "client",
        ("PG",),
        (
            member_bodies.ConsumerData(
                GROUP,
                subscription_data_set=(
                    build_subscription(TOPIC, "*", sub_version=1),
                    build_subscription(f"%RETRY%{GROUP}", "*", sub_version=1),
                ),
            ),
        ),
    ),
    RequestCode.CHECK_CLIENT_CONFIG: member_bodies.CheckClientRequestBody(
        "client", GROUP, None, build_subscription(TOPIC, "*", sub_version=1)
    ),
    RequestCode.LOCK_BATCH_MQ: member_bodies.LockBatchRequestBody(GROUP, "client", (_queue(),)),
    RequestCode.UNLOCK_BATCH_MQ: member_bodies.UnlockBatchRequestBody(GROUP, "client", (_queue(),)),
    RequestCode.QUERY_ASSIGNMENT: member_bodies.QueryAssignmentRequestBody(
        TOPIC, GROUP, "client", "AVG"
    ),
    RequestCode.SET_MESSAGE_REQUEST_MODE: member_bodies.SetMessageRequestModeRequestBody(
        TOPIC, GROUP
    ),
    RequestCode.BATCH_ACK_MESSAGE: BatchAckMessageRequestBody(
        "broker-a", (BatchAckEntry(bit_set="AQ==", consumer_group=GROUP, topic=TOPIC),)
    ),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: topic_bodies.CreateTopicListRequestBody(
        (topic_bodies.TopicConfig(TOPIC),)
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: group_bodies.SubscriptionGroupConfig(GROUP),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: group_bodies.SubscriptionGroupList(
        (group_bodies.SubscriptionGroupConfig(GROUP),)
    ),
}
"""A body of each request that access control looks into."""


def sample(row: Request) -> Command:
    """A request with each field of its header, and a body where it has one."""
    fields: dict[str, str] = {}
    if row.header is not None:
        for field in header_fields(row.header):
            fields[field.name] = _TEXTS.get(field.name, "0")
    body = BODIES.get(row.code)
    return Command(int(row.code), ext_fields=fields, body=b"{}" if body is None else body.encode())
