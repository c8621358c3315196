"""What pops, peeks and notifications check before they look at messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.core import FAQ
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import BrokerError
from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pop import PopMessageResponseHeader

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.protocol.bodies.topics import TopicConfig
    from rocketmq_sdk.remoting.channel import Channel


def checked_topic(core: Core, channel: Channel, name: str, queue_id: int) -> TopicConfig:
    """The topic of a request.

    Raises `BrokerError` when it is not readable or has no such queue; a queue id below
    0 means any.
    """
    topic = core.topics.get(name)
    if topic is None:
        raise BrokerError(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}"
        )
    if not topic.perm & Permission.READ:
        raise BrokerError(
            ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden"
        )
    if queue_id >= topic.read_queue_nums:
        raise BrokerError(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is illegal, topic:[{name}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
            f"consumer:[/{channel.remote_address}]",
        )
    return topic


def checked_group(core: Core, name: str) -> None:
    """Raises `BrokerError` when a group does not exist or may not consume."""
    group = core.groups.get(name)
    if group is None:
        raise BrokerError(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{name}] does not exist, {FAQ}",
        )
    if not group.consume_enable:
        raise BrokerError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")


def host_of(core: Core) -> str:
    """The broker's host, as some remarks name it."""
    return core.address().rpartition(":")[0]


def refusal(code: int, remark: str) -> Command:
    """The answer to a pop or peek that is refused."""
    return Command.response(code, PopMessageResponseHeader(), remark=remark)


LONGEST_ATTEMPT: Final = 1024


def check_attempt(attempt_id: str | None) -> None:
    """Raises `BrokerError` for an attempt id that is too long to be kept."""
    if len(attempt_id or "") > LONGEST_ATTEMPT:
        raise BrokerError(
            ResponseCode.INVALID_PARAMETER,
            f"attemptId is longer than {LONGEST_ATTEMPT} characters",
        )


def check_invisible(core: Core, duration_ms: int) -> None:
    """Raises `BrokerError` for an invisible duration that the timers cannot keep."""
    longest = core.config.current.store.timer_max_delay_sec * 1000
    if duration_ms > longest:
        raise BrokerError(
            ResponseCode.INVALID_PARAMETER,
            f"the invisible time {duration_ms}ms is longer than {longest}ms, "
            "timerMaxDelaySec of this broker",
        )
    if duration_ms < 0:
        raise BrokerError(
            ResponseCode.INVALID_PARAMETER, f"the invisible time {duration_ms}ms is below 0"
        )
