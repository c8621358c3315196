"""Topics at brokers and name servers."""

from __future__ import annotations

from rocketmq_sdk.client.api.call import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.names import DEFAULT_TOPIC
from rocketmq_sdk.protocol.bodies.topics import TopicConfig, TopicList
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from rocketmq_sdk.protocol.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
)


async def create_topic(
    client: Caller, address: str, config: TopicConfig, timeout: float | None = None
) -> None:
    """Create or change a topic at one broker (17)."""
    header = CreateTopicRequestHeader(
        topic=config.topic_name,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=",".join(f"+{name}={value}" for name, value in config.attributes.items())
        or None,
    )
    command = Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    checked(
        await client.call_address(address, command, timeout),
        address=address,
        topic=config.topic_name,
    )


async def delete_topic_at_broker(
    client: Caller, address: str, topic: str, timeout: float | None = None
) -> None:
    """Delete a topic with its messages at one broker (215)."""
    command = Command.request(
        RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic)
    )
    checked(await client.call_address(address, command, timeout), address=address, topic=topic)


async def delete_topic_at_name_server(
    client: Caller, topic: str, cluster: str | None = None, timeout: float | None = None
) -> None:
    """Take a topic out of a name server's routes (216)."""
    header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
    checked(
        await client.call_name_server(
            Command.request(RequestCode.DELETE_TOPIC_IN_NAMESRV, header), timeout
        ),
        topic=topic,
    )


async def topic_names(client: Caller, timeout: float | None = None) -> list[str]:
    """All topics that a name server knows (206)."""
    response = checked(
        await client.call_name_server(
            Command.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), timeout
        )
    )
    return list(TopicList.decode(response.body).topic_list)


async def topic_config(
    client: Caller, address: str, topic: str, timeout: float | None = None
) -> TopicConfig:
    """A topic as one broker keeps it (351). Raises `TopicNotFoundError` when it does
    not.
    """
    command = Command.request(
        RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic)
    )
    response = checked(
        await client.call_address(address, command, timeout), address=address, topic=topic
    )
    return TopicConfig.decode(response.body)
