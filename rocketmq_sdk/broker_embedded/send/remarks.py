"""Why a send is refused, in the words of Apache's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.names import DLQ_PREFIX, MAX_TOPIC_LENGTH, RETRY_PREFIX, illegal_characters

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.bodies.topics import TopicConfig
    from rocketmq_sdk.remoting.channel import Channel


def topic_remark(topic: str) -> str | None:
    """Why a topic name is not legal in the words of `TopicValidator`, or None."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if illegal_characters(topic):
        return (
            f"The specified topic: {topic}, contains illegal characters, allowing only "
            "^[%|a-zA-Z0-9_-]+$"
        )
    limit = 255 if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else MAX_TOPIC_LENGTH
    if len(topic) > limit:
        return f"The specified topic: {topic}, is longer than topic max length: {limit}"
    return None


def permission_text(perm: int) -> str:
    """A permission as three letters (`PermName.perm2String`)."""
    return "".join(
        letter if perm & bit else "-"
        for bit, letter in (
            (Permission.READ, "R"),
            (Permission.WRITE, "W"),
            (Permission.INHERIT, "X"),
        )
    )


def illegal_queue(queue_id: int, config: TopicConfig, channel: Channel) -> str:
    return (
        f"request queueId[{queue_id}] is illegal, TopicConfig [topicName={config.topic_name}, "
        f"readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={permission_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, "
        f"topicSysFlag={config.topic_sys_flag}, order={str(config.order).lower()}, "
        f"attributes={{{_attributes(config)}}}] "
        f"Producer: {channel.remote_address}"
    )


def _attributes(config: TopicConfig) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.attributes.items())
