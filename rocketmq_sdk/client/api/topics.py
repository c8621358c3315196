"""Topics at a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.names import DEFAULT_TOPIC
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


async def create_topic(
    client: Caller,
    address: str,
    config: TopicConfig,
    timeout: float | None = None,
    *,
    removed_attributes: Iterable[str] = (),
) -> None:
    """Create or change a topic at one broker (17).

    Attributes that are not named stay as they are.
    """
    changes = [f"+{name}={value}" for name, value in config.attributes.items()]
    changes += [f"-{name}" for name in removed_attributes]
    header = CreateTopicRequestHeader(
        topic=config.topic_name,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=",".join(changes) or None,
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


async def topic_config(
    client: Caller, address: str, topic: str, timeout: float | None = None
) -> TopicConfig:
    """A topic as one broker keeps it (351).

    Raises `TopicNotFoundError` when it does not.
    """
    command = Command.request(
        RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic)
    )
    response = checked(
        await client.call_address(address, command, timeout), address=address, topic=topic
    )
    return TopicConfig.decode(response.body)
