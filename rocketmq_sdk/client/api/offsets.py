"""Offsets of groups and ends of queues.

Any replica may be asked for them: consumers can read, and remember how far they came,
while a master is away. Apache's client asks masters alone for the ends of queues, and
so cannot begin a queue without an offset then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.protocol.bodies.offsets import ResetOffsetBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

if TYPE_CHECKING:
    from rocketmq_sdk.model.enums import BoundaryType
    from rocketmq_sdk.model.queue import MessageQueue


LARGEST_OFFSET: Final = (2**63 - 1) // 20
"""No queue goes further: its entries of 20 bytes have places of 64 bits."""


def _possible(offset: int, topic: str) -> int:
    """An offset of a queue. Raises `FieldError` for one that no queue can have."""
    if offset > LARGEST_OFFSET:
        raise FieldError(
            f"the broker names offset {offset} for a queue of {topic}, and no queue has more than "
            f"{LARGEST_OFFSET} messages"
        )
    return offset


async def query_consumer_offset(
    client: Caller,
    broker_name: str,
    group: str,
    topic: str,
    queue_id: int,
    timeout: float | None = None,
    *,
    set_zero_if_not_found: bool | None = None,
) -> int | None:
    """The offset that a group has committed in a queue (14), or None."""
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        set_zero_if_not_found=set_zero_if_not_found,
        bname=broker_name,
    )
    response = await client.call_broker(
        broker_name,
        Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header),
        timeout,
        any_replica=True,
    )
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return QueryConsumerOffsetResponseHeader.from_ext(
        checked(response, topic=topic, group=group).ext_fields
    ).offset


async def update_consumer_offset(
    client: Caller,
    broker_name: str,
    group: str,
    topic: str,
    queue_id: int,
    offset: int,
    timeout: float | None = None,
    *,
    oneway: bool = False,
) -> None:
    """Commit a group's offset in a queue (15).

    One-way, nobody tells whether it arrived.
    """
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        commit_offset=offset,
        bname=broker_name,
    )
    command = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=oneway)
    if oneway:
        await client.oneway_broker(broker_name, command, timeout, any_replica=True)
    else:
        response = await client.call_broker(broker_name, command, timeout, any_replica=True)
        checked(response, topic=topic, group=group)


async def max_offset(
    client: Caller, broker_name: str, topic: str, queue_id: int, timeout: float | None = None
) -> int:
    """The offset behind the last message of a queue (30); 0 for an unknown queue."""
    header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id, bname=broker_name)
    response = checked(
        await client.call_broker(
            broker_name,
            Command.request(RequestCode.GET_MAX_OFFSET, header),
            timeout,
            any_replica=True,
        ),
        topic=topic,
    )
    return _possible(GetMaxOffsetResponseHeader.from_ext(response.ext_fields).offset, topic)


async def min_offset(
    client: Caller, broker_name: str, topic: str, queue_id: int, timeout: float | None = None
) -> int:
    """The first offset of a queue that is still stored (31).

    May be -1 for an unknown queue.
    """
    header = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id, bname=broker_name)
    response = checked(
        await client.call_broker(
            broker_name,
            Command.request(RequestCode.GET_MIN_OFFSET, header),
            timeout,
            any_replica=True,
        ),
        topic=topic,
    )
    return _possible(GetMinOffsetResponseHeader.from_ext(response.ext_fields).offset, topic)


async def search_offset(
    client: Caller,
    broker_name: str,
    topic: str,
    queue_id: int,
    timestamp: int,
    timeout: float | None = None,
    *,
    boundary: BoundaryType | None = None,
) -> int:
    """The offset of the message stored at a time in epoch milliseconds (29).

    `boundary` chooses among equal times.
    """
    header = SearchOffsetRequestHeader(
        topic=topic,
        queue_id=queue_id,
        timestamp=timestamp,
        boundary_type=boundary,
        bname=broker_name,
    )
    response = checked(
        await client.call_broker(
            broker_name,
            Command.request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header),
            timeout,
            any_replica=True,
        ),
        topic=topic,
    )
    return _possible(SearchOffsetResponseHeader.from_ext(response.ext_fields).offset, topic)


async def earliest_store_time(
    client: Caller, broker_name: str, topic: str, queue_id: int, timeout: float | None = None
) -> int:
    """Store time of a queue's first message (32), -1 when it is empty.

    In epoch milliseconds.
    """
    header = GetEarliestMsgStoretimeRequestHeader(topic=topic, queue_id=queue_id, bname=broker_name)
    response = checked(
        await client.call_broker(
            broker_name,
            Command.request(RequestCode.GET_EARLIEST_MSG_STORETIME, header),
            timeout,
            any_replica=True,
        ),
        topic=topic,
    )
    return GetEarliestMsgStoretimeResponseHeader.from_ext(response.ext_fields).timestamp


TO_THE_END = -1
"""As a time: behind the last message."""


async def reset_offset(
    client: Caller,
    address: str,
    group: str,
    topic: str,
    *,
    timestamp: int = TO_THE_END,
    queue_id: int | None = None,
    offset: int | None = None,
    timeout: float | None = None,
) -> dict[MessageQueue, int]:
    """Reset a group's offsets in a topic at one broker (222); the new ones by queue.

    To a time in epoch milliseconds, or to an offset of one queue.

    Members that run obey at their next pull. The error 17 or 26 tells that topic or
    group do not exist.
    """
    header = ResetOffsetRequestHeader(
        group=group,
        topic=topic,
        queue_id=-1 if queue_id is None else queue_id,
        offset=offset,
        timestamp=timestamp,
        is_force=True,
    )
    command = Command.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    response = checked(
        await client.call_address(address, command, timeout),
        address=address,
        topic=topic,
        group=group,
    )
    return dict(ResetOffsetBody.decode(response.body).offset_table) if response.body else {}


async def clone_offsets(
    client: Caller,
    address: str,
    source: str,
    target: str,
    topic: str,
    *,
    offline: bool = False,
    timeout: float | None = None,
) -> None:
    """Give a group the offsets of another in a topic at one broker (314)."""
    header = CloneGroupOffsetRequestHeader(
        src_group=source, dest_group=target, topic=topic, offline=offline
    )
    command = Command.request(RequestCode.CLONE_GROUP_OFFSET, header)
    checked(
        await client.call_address(address, command, timeout),
        address=address,
        topic=topic,
        group=source,
    )
