"""How far topics and groups are, and setting groups to other offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.call import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.groups import ConsumerConnection
from rocketmq_sdk.protocol.bodies.offsets import ResetOffsetBody
from rocketmq_sdk.protocol.bodies.stats import ConsumeStats
from rocketmq_sdk.protocol.bodies.topics import TopicStatsTable
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.groups import (
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
)
from rocketmq_sdk.protocol.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketmq_sdk.protocol.headers.topics import GetTopicStatsInfoRequestHeader

if TYPE_CHECKING:
    from rocketmq_sdk.model.queue import MessageQueue

TO_THE_END = -1
"""As a time: behind the last message."""


async def topic_stats(
    client: Caller, address: str, topic: str, timeout: float | None = None
) -> TopicStatsTable:
    """The ends of a topic's queues at one broker (202). Raises `TopicNotFoundError`."""
    command = Command.request(
        RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=topic)
    )
    return TopicStatsTable.decode(
        checked(
            await client.call_address(address, command, timeout), address=address, topic=topic
        ).body
    )


async def consume_stats(
    client: Caller, address: str, group: str, topic: str | None = None, timeout: float | None = None
) -> ConsumeStats:
    """How far a group is at one broker (208), in one topic or in all of its topics."""
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
    command = Command.request(RequestCode.GET_CONSUME_STATS, header)
    return ConsumeStats.decode(
        checked(
            await client.call_address(address, command, timeout), address=address, group=group
        ).body
    )


async def consumer_connections(
    client: Caller, address: str, group: str, timeout: float | None = None
) -> ConsumerConnection:
    """The members of a group at one broker and what they subscribe to (203). Raises the
    broker's error 206 when there are none.
    """
    header = GetConsumerConnectionListRequestHeader(consumer_group=group)
    command = Command.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    return ConsumerConnection.decode(
        checked(
            await client.call_address(address, command, timeout), address=address, group=group
        ).body
    )


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
    """Let a group go on elsewhere (222): at a time in epoch milliseconds, or at an
    offset of one queue; the new offsets by queue.

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
