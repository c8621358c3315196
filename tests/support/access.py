"""Access control in tests: signed requests, and a sample of each request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.broker_embedded.access.users import User
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies import access as access_bodies
from rocketmq_sdk.protocol.bodies import groups as group_bodies
from rocketmq_sdk.protocol.bodies import members as member_bodies
from rocketmq_sdk.protocol.bodies import topics as topic_bodies
from rocketmq_sdk.protocol.bodies.pop import BatchAckEntry, BatchAckMessageRequestBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.header import header_fields
from rocketmq_sdk.protocol.signing import sign_in_place
from rocketmq_sdk.protocol.subscription import build_subscription
from rocketmq_sdk.remoting.credentials import Credentials

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
LOCK_ADMIN: Final = Credentials("admin", "the-secret-of-the-admin")
LOCKED: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps(
        {"username": LOCK_ADMIN.access_key, "password": LOCK_ADMIN.secret_key}
    ),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": "inner", "secretKey": "the inner secret"}
    ),
}
"""The same by Apache's names."""
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


_T, _G, _C = f"Topic:{TOPIC}", f"Group:{GROUP}", f"Cluster:{CLUSTER}"
_READ, _LISTED, _CHANGE = f"{_C} Get", f"{_C} List|Get", f"{_C} Update"
_MEMBER = f"{_G} Sub; {_T} Sub"
NEEDS: Final = {
    # Clients
    10: f"{_T} Pub",
    11: _MEMBER,
    12: f"{_T} Sub|Get",
    14: f"{_G} Sub|Get; {_T} Sub|Get",
    15: f"{_G} Sub|Update; {_T} Sub|Update",
    29: f"{_T} Sub|Get",
    30: f"{_T} Sub|Get",
    31: f"{_T} Sub|Get",
    32: f"{_T} Sub|Get",
    33: f"{_T} Sub|Get",
    34: _MEMBER,
    35: f"{_G} Sub",
    36: _MEMBER,
    37: f"{_T} Pub",
    38: f"{_G} Sub|Get",
    41: _MEMBER,
    42: _MEMBER,
    46: _MEMBER,
    105: f"{_T} Pub|Sub|Get",
    310: f"{_T} Pub",
    320: f"{_T} Pub",
    324: f"{_T} Pub",
    325: f"{_T} Pub",
    361: _MEMBER,
    370: f"{_T} Pub",
    400: _MEMBER,
    200050: _MEMBER,
    200051: _MEMBER,
    200052: _MEMBER,
    200053: _MEMBER,
    200054: _MEMBER,
    200055: f"{_G} Get; {_T} Get",
    200151: _MEMBER,
    # Topics
    17: f"{_T} Create",
    18: f"{_T} Create",
    21: _LISTED,
    202: f"{_T} Get",
    206: _LISTED,
    215: f"{_T} Delete",
    216: _CHANGE,
    217: _CHANGE,
    224: _LISTED,
    300: f"{_T} Get",
    304: _LISTED,
    305: _LISTED,
    311: _LISTED,
    312: _LISTED,
    313: _LISTED,
    321: f"{_G} Get; {_T} Get",
    323: f"{_T} Update",
    351: f"{_T} Get",
    # Groups
    200: f"{_G} Create",
    201: _LISTED,
    203: f"{_G} Get",
    207: f"{_G} Delete",
    208: f"{_G} Get; {_T} Get; Topic:OtherTopic Get",
    222: f"{_G} Update; {_T} Update",
    223: f"{_G} Get; {_T} Get",
    225: f"{_G} Create",
    303: f"{_G} Get; {_T} Get",
    307: f"{_G} Get",
    308: f"{_G} Get; Group:OtherGroup Get; {_T} Get",
    309: _MEMBER,
    314: f"{_G} Update; {_T} Update",
    343: f"{_G} Get",
    345: f"{_G} Get; {_T} Get",
    352: f"{_G} Get",
    353: f"{_G} Update; {_T} Update",
    401: f"{_G} Update; {_T} Update",
    # The cluster
    **dict.fromkeys((26, 28, 43, 45, 60, 61, 101, 106, 204, 219, 315, 317, 319, 322), _READ),
    **dict.fromkeys((328, 402, 901, 907, 2003, 3004, 3005, 3009, 3010), _READ),
    **dict.fromkeys((25, 100, 102, 103, 104, 205, 306, 316, 318, 327, 329, 904, 908), _CHANGE),
    **dict.fromkeys((2001, 2002, 2004, 3001, 3002, 3003, 3006, 3007, 3008, 5001), _CHANGE),
}
"""The resources and actions of each request, as its sample names them.

Written down once more, from the annotations and the context builder of Apache RocketMQ
5.4.0 where those say something, so that a rule that changes is seen.
"""


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
        info = access_bodies.AclInfo(None, (policy(*entries),))
        await table.update_acl(Acl.from_info(f"User:{name}", info))
    return Command(0)


def policy(*entries: tuple[str, str, str], kind: str = "Custom") -> access_bodies.PolicyInfo:
    """A policy of (resource, actions, decision)."""
    return access_bodies.PolicyInfo(
        kind,
        tuple(
            access_bodies.PolicyEntryInfo(resource, tuple(actions.split(",")), None, decision)
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
