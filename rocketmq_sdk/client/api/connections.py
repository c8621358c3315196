"""Connected clients and what they consume."""

from __future__ import annotations

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.connections import (
    ConsumerConnection,
    GroupList,
    ProducerConnection,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.connections import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)


async def consuming_groups(
    client: Caller, address: str, topic: str, timeout: float | None = None
) -> list[str]:
    """The groups that consume a topic or have offsets in it, at one broker (300)."""
    command = Command.request(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequestHeader(topic=topic)
    )
    response = checked(
        await client.call_address(address, command, timeout), address=address, topic=topic
    )
    return list(GroupList.decode(response.body).group_list)


async def consumer_connections(
    client: Caller, address: str, group: str, timeout: float | None = None
) -> ConsumerConnection:
    """The members of a group at one broker and what they subscribe to (203).

    Raises the broker's error 206 when there are none.
    """
    header = GetConsumerConnectionListRequestHeader(consumer_group=group)
    command = Command.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    return ConsumerConnection.decode(
        checked(
            await client.call_address(address, command, timeout), address=address, group=group
        ).body
    )


async def producer_connections(
    client: Caller, address: str, group: str, timeout: float | None = None
) -> ProducerConnection:
    """The members of a producer group at one broker (204).

    Raises the broker's error 1 when there are none.
    """
    header = GetProducerConnectionListRequestHeader(producer_group=group)
    command = Command.request(RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
    return ProducerConnection.decode(
        checked(
            await client.call_address(address, command, timeout), address=address, group=group
        ).body
    )
