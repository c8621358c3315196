"""Members of groups: heartbeats, leaving, consumer lists, locks, assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rocketmq_sdk.client.api.caller import AddressesCaller, Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import RocketMQError, RouteError
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.protocol.bodies.members import (
    CheckClientRequestBody,
    ConsumerList,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueueAssignment,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    UnlockBatchRequestBody,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.members import (
    GetConsumerListByGroupRequestHeader,
    HeartbeatRequestHeader,
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
    UnregisterClientRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.protocol.subscription import SubscriptionData


AVERAGE = "AVG"
AVERAGE_BY_CIRCLE = "AVG_BY_CIRCLE"


async def query_assignment(
    client: Caller,
    address: str,
    topic: str,
    group: str,
    *,
    strategy_name: str = AVERAGE,
    message_model: MessageModel = MessageModel.CLUSTERING,
    timeout: float | None = 3.0,
) -> tuple[MessageQueueAssignment, ...] | None:
    """The queues of a topic that the broker assigns to this client (400).

    None means: keep what you have (the broker does not know the member yet, or not the
    strategy). Raises the broker's error.
    """
    body = QueryAssignmentRequestBody(topic, group, client.client_id, strategy_name, message_model)
    response = await client.call_address(
        address, Command.request(RequestCode.QUERY_ASSIGNMENT, body=body.encode()), timeout
    )
    checked(response, address=address, topic=topic, group=group)
    return (
        QueryAssignmentResponseBody.decode(response.body).message_queue_assignments
        if response.body
        else None
    )


async def set_message_request_mode(
    client: Caller,
    address: str,
    topic: str,
    group: str,
    mode: MessageRequestMode,
    *,
    pop_share_queue_num: int = 0,
    timeout: float | None = None,
) -> None:
    """Let a group pull a topic or pop it (401).

    Consumers that ask for their assignment follow. Raises the broker's error.
    """
    body = SetMessageRequestModeRequestBody(topic, group, mode, pop_share_queue_num)
    command = Command.request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.encode())
    checked(
        await client.call_address(address, command, timeout),
        address=address,
        topic=topic,
        group=group,
    )


async def get_all_message_request_modes(
    client: Caller, address: str, *, timeout: float | None = None
) -> dict[str, dict[str, SetMessageRequestModeRequestBody]]:
    """The modes of all groups by topic (402). Raises the broker's error."""
    response = checked(
        await client.call_address(
            address, Command.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE), timeout
        ),
        address=address,
    )
    return MessageRequestModeSerializeWrapper.decode(response.body).message_request_mode_map


async def consumer_ids(
    client: Caller, address: str, group: str, timeout: float | None = None
) -> list[str]:
    """Client ids of a group's members as the broker at `address` knows them (38).

    An empty list when the group is unknown there.
    """
    header = GetConsumerListByGroupRequestHeader(consumer_group=group)
    response = await client.call_address(
        address, Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header), timeout
    )
    # A broker that knows no member of the group answers SYSTEM_ERROR.
    if response.code == 1:
        return []
    body = checked(response, address=address, group=group).body
    return list(ConsumerList.decode(body).consumer_id_list) if body else []


async def check_client_config(
    client: Caller,
    address: str,
    group: str,
    subscription: SubscriptionData,
    timeout: float | None = None,
) -> None:
    """Ask a broker whether it can serve a subscription (46).

    Raises its error when it cannot.
    """
    body = CheckClientRequestBody(client.client_id, group, None, subscription).encode()
    response = await client.call_address(
        address, Command.request(RequestCode.CHECK_CLIENT_CONFIG, body=body), timeout
    )
    checked(response, address=address, topic=subscription.topic, group=group)


async def lock_batches(
    client: AddressesCaller,
    group: str,
    queues: Mapping[str, Sequence[MessageQueue]],
    timeout: float | None = None,
) -> dict[str, set[MessageQueue] | RocketMQError]:
    """Lock queues of brokers for this client, or renew locks (41), at the same time.

    Returns those that are locked now, by broker; an error where there is no answer.
    """
    found: dict[str, set[MessageQueue] | RocketMQError] = {}
    requests: dict[str, tuple[str, Command]] = {}
    for broker_name, wanted in queues.items():
        address = client.broker_address(broker_name)
        if address is None:
            found[broker_name] = RouteError(f"no route has named the broker {broker_name!r}")
        else:
            requests[broker_name] = address, _lock_command(client, group, wanted)
    answers = await client.call_addresses(list(requests.values()), timeout)
    for broker_name, answer in zip(requests, answers, strict=True):
        try:
            if isinstance(answer, RocketMQError):
                raise answer
            found[broker_name] = _locked_queues(answer, group)
        except RocketMQError as error:
            found[broker_name] = error.with_traceback(None)
    return found


def _lock_command(client: Caller, group: str, queues: Iterable[MessageQueue]) -> Command:
    body = LockBatchRequestBody(group, client.client_id, tuple(queues))
    return Command.request(
        RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), body=body.encode()
    )


def _locked_queues(response: Command, group: str) -> set[MessageQueue]:
    body = checked(response, group=group).body
    return set(LockBatchResponseBody.decode(body).lock_ok_mq_set)


async def unlock_batch(
    client: Caller,
    broker_name: str,
    group: str,
    queues: Iterable[MessageQueue],
    timeout: float | None = None,
    *,
    oneway: bool = False,
) -> None:
    """Give locks of queues of one broker back (42)."""
    body = UnlockBatchRequestBody(group, client.client_id, tuple(queues))
    command = Command.request(
        RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), body=body.encode(), oneway=oneway
    )
    if oneway:
        await client.oneway_broker(broker_name, command, timeout)
    else:
        checked(await client.call_broker(broker_name, command, timeout), group=group)


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat.

    The broker's version, whether it understands short heartbeats, and whether it wants
    a full one.
    """

    version: int
    knows_v2: bool
    subscriptions_changed: bool


def heartbeat_command(body: bytes) -> Command:
    """Tells a broker who is here (34); `body` is an encoded `HeartbeatData`."""
    return Command.request(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), body=body)


def heartbeat_answer(response: Command, address: str) -> HeartbeatAnswer:
    """What the answer to a heartbeat says; raises its error."""
    fields = checked(response, address=address).ext_fields
    return HeartbeatAnswer(
        response.version,
        fields.get("IS_SUPPORT_HEART_BEAT_V2") == "true",
        fields.get("IS_SUB_CHANGE") == "true",
    )


async def unregister(
    client: Caller,
    address: str,
    *,
    producer_group: str | None = None,
    consumer_group: str | None = None,
    timeout: float | None = None,
) -> None:
    """Tell a broker that a group's member leaves (35)."""
    header = UnregisterClientRequestHeader(
        client_id=client.client_id, producer_group=producer_group, consumer_group=consumer_group
    )
    checked(
        await client.call_address(
            address, Command.request(RequestCode.UNREGISTER_CLIENT, header), timeout
        ),
        address=address,
    )
