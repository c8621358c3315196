"""Progress of topics and groups."""

from __future__ import annotations

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.progress import BrokerStatsData, ConsumeStats, TopicStatsTable
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.progress import (
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)


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


async def broker_stats(
    client: Caller, address: str, name: str, key: str, timeout: float | None = None
) -> BrokerStatsData:
    """One statistic at one broker (315), as `TOPIC_PUT_NUMS` of a topic.

    Raises the broker's error 1 where nothing was counted under the key.
    """
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    command = Command.request(RequestCode.VIEW_BROKER_STATS_DATA, header)
    return BrokerStatsData.decode(
        checked(await client.call_address(address, command, timeout), address=address).body
    )
