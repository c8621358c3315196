"""Settings of push, lite pull and simple consumers.

Names and defaults are those of `DefaultMQPushConsumer` of Apache RocketMQ 5.4.0 in
Python's spelling. Durations are seconds, sizes are bytes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import attrs

from rocketmq_sdk.client.config import ClientOptions
from rocketmq_sdk.client.hooks import ConsumeHook, FilterHook, check_hooks
from rocketmq_sdk.constructors import explained
from rocketmq_sdk.consumer.assign.average import Average
from rocketmq_sdk.consumer.assign.strategy import AllocateStrategy, check_strategy
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.enums import ConsumeFrom, MessageModel
from rocketmq_sdk.model.message_arguments import epoch_milliseconds
from rocketmq_sdk.validators import (
    between,
    boolean,
    member_of,
    not_negative,
    option_names,
    positive,
    seconds_between,
    to_seconds,
    with_named_errors,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

DEFAULT_MAX_RECONSUME_TIMES: Final = 16
ENDLESS: Final = 2**31 - 1
MIB: Final = 1024 * 1024


class QueueOptions(ClientOptions, total=False):
    """Keyword form of `QueueConfig`, with the settings of the consumer's client."""

    consume_from: ConsumeFrom
    consume_timestamp: datetime | int | None
    strategy: AllocateStrategy
    consume_concurrently_max_span: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_interval: float | timedelta
    pull_batch_size: int
    pull_batch_size_in_bytes: int
    pull_suspend: float | timedelta
    pull_timeout: float | timedelta
    pull_time_delay_when_exception: float | timedelta
    rebalance_interval: float | timedelta
    revoke_grace: float | timedelta
    filter_hooks: Iterable[FilterHook]


class PushOptions(QueueOptions, total=False):
    """Keyword form of `PushConfig`, with the settings of the consumer's client.

    Without `batch`, which says what the listener takes.
    """

    orderly: bool
    auto_commit: bool
    suspend_current_queue_time: float | timedelta
    max_reconsume_times: int
    concurrency: int
    consume_timeout: float | timedelta
    post_subscription_when_pull: bool
    persist_consumer_offset_interval: float | timedelta
    message_model: MessageModel
    local_offset_store_dir: str | os.PathLike[str] | None
    consume_hooks: Iterable[ConsumeHook]
    client_rebalance: bool
    pop_invisible_time: float | timedelta
    pop_batch_nums: int
    pop_threshold_for_queue: int


class LitePullOptions(QueueOptions, total=False):
    """Keyword form of `LitePullConfig`, with the settings of the consumer's client."""

    auto_commit: bool
    auto_commit_interval: float | timedelta
    polled_is_done: bool
    poll_timeout: float | timedelta


class SimpleOptions(ClientOptions, total=False):
    """Keyword form of `SimpleConfig`, with the settings of the consumer's client."""

    await_duration: float | timedelta
    invisible_duration: float | timedelta
    min_invisible_duration: float | timedelta
    max_invisible_duration: float | timedelta
    max_reconsume_times: int
    consume_from: ConsumeFrom
    fifo: bool
    processing_limit: float | timedelta


def _directory(_instance: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, str | os.PathLike):
        raise ConfigurationError(f"{field.name} is {value!r}; give the path of a directory")


def _check_strategy(_instance: object, _field: object, value: object) -> None:
    check_strategy("strategy", value)


def _timestamp(value: datetime | int | None) -> int | None:
    return None if value is None else epoch_milliseconds(value)


def _duration(default: float) -> Any:
    return attrs.field(default=default, converter=to_seconds, validator=positive)


@attrs.frozen
class FlowLimits:
    """The most that one queue may hold before pulling pauses.

    `messages` counts messages, `size` bytes of bodies, `span` the distance between the
    oldest and the newest offset.
    """

    messages: int = 1000
    size: int = 100 * 1024 * 1024
    span: int = 2000

    def blocks(self, messages: int, size: int, span: int) -> bool:
        """Whether a queue that holds this much has to wait."""
        return messages > self.messages or size > self.size or span > self.span


def shared_limits(
    limits: FlowLimits, threshold_for_topic: int, threshold_size_for_topic: int, owned_queues: int
) -> FlowLimits:
    """The limits per queue when there are limits for the topic (not -1).

    Each owned queue, of whatever topic, gets an equal share, at least 1. Follows
    `RebalancePushImpl.messageQueueChanged`.
    """
    if owned_queues < 1:
        return limits
    messages, size = limits.messages, limits.size
    if threshold_for_topic != -1:
        messages = max(1, threshold_for_topic // owned_queues)
    if threshold_size_for_topic != -1:
        size = max(1, threshold_size_for_topic // owned_queues)
    return attrs.evolve(limits, messages=messages, size=size)


@attrs.frozen(kw_only=True, field_transformer=with_named_errors)
class QueueConfig:
    """The settings that all consumers share that own queues and pull them.

    The kinds have different defaults. `consume_from` and `consume_timestamp` (aware
    datetime or epoch milliseconds; None: half an hour before the start) say where a
    group begins that has no committed offset. The thresholds stop pulling a queue that
    holds too much; those for the topic (-1: off) are shared equally among all owned
    queues. `pull_suspend` is how long a broker may hold a pull. `revoke_grace` is how
    long running work may take to finish when its queue goes to another member.
    `filter_hooks` may remove messages that were pulled.
    """

    consume_from: ConsumeFrom = attrs.field(
        default=ConsumeFrom.LAST_OFFSET, validator=member_of(ConsumeFrom)
    )
    consume_timestamp: int | None = attrs.field(default=None, converter=_timestamp)
    strategy: AllocateStrategy = attrs.field(factory=Average, validator=_check_strategy)
    consume_concurrently_max_span: int = attrs.field(default=2000, validator=between(1, 65535))
    pull_threshold_for_queue: int = attrs.field(default=1000, validator=between(1, 65535))
    pull_threshold_size_for_queue: int = attrs.field(
        default=100 * MIB, validator=between(1, 1024 * MIB)
    )
    pull_threshold_for_topic: int = attrs.field(
        default=-1, validator=between(1, 6553500, special=-1)
    )
    pull_threshold_size_for_topic: int = attrs.field(
        default=-1, validator=between(1, 102400 * MIB, special=-1)
    )
    pull_interval: float = attrs.field(default=0.0, converter=to_seconds, validator=not_negative)
    pull_batch_size: int = attrs.field(default=32, validator=between(1, 1024))
    pull_batch_size_in_bytes: int = attrs.field(default=256 * 1024, validator=between(1, 2**31 - 1))
    post_subscription_when_pull: bool = False
    pull_suspend: float = _duration(15.0)
    pull_timeout: float = _duration(30.0)
    pull_time_delay_when_exception: float = _duration(1.0)
    rebalance_interval: float = _duration(20.0)
    filter_hooks: tuple[FilterHook, ...] = attrs.field(
        default=(), converter=tuple, validator=check_hooks("filter_messages")
    )
    revoke_grace: float = attrs.field(default=10.0, converter=to_seconds, validator=not_negative)

    def __attrs_post_init__(self) -> None:
        if self.pull_timeout <= self.pull_suspend:
            raise ConfigurationError(
                f"pull_timeout is {self.pull_timeout} s; it must be above pull_suspend, "
                f"{self.pull_suspend} s"
            )

    @property
    def flow_limits(self) -> FlowLimits:
        """The thresholds per queue."""
        return FlowLimits(
            self.pull_threshold_for_queue,
            self.pull_threshold_size_for_queue,
            self.consume_concurrently_max_span,
        )


@explained
@attrs.frozen(kw_only=True, field_transformer=with_named_errors)
class PushConfig(QueueConfig):
    """How a push consumer behaves, in addition to `QueueConfig`.

    `batch` is the most messages per call of the listener (1: the listener takes one
    message, otherwise a list). `concurrency` is how many calls run at a time.

    `orderly` keeps the order of each queue: one call at a time, and after a failure the
    queue is suspended for `suspend_current_queue_time` (10 ms to 30 s) and the same
    message comes again. `max_reconsume_times` is how often a message is delivered again
    before it goes to the dead letter topic (-1: as the group is set at the broker, 16
    by default; with `orderly` without limit, as in Apache's clients). `consume_timeout`
    limits one call of the listener, except with `orderly`. With `orderly` and without
    `auto_commit`, a message is done when the listener returns COMMIT, then or later.

    With `message_model` BROADCASTING every member gets every message once. Offsets are
    kept in a file below `local_offset_store_dir` (None: `~/.rocketmq_offsets`), and
    failed messages are not delivered again. `consume_hooks` see each call of the
    listener.

    Without `client_rebalance` the broker decides which queues are read, and whether
    they are pulled or popped (not with `orderly` or BROADCASTING). A pop takes up to
    `pop_batch_nums` messages, which are invisible to others for `pop_invisible_time`;
    that limits the listener too. Popping pauses above `pop_threshold_for_queue`
    messages of one place.
    """

    batch: int = attrs.field(default=1, validator=between(1, 1024))
    max_reconsume_times: int = attrs.field(default=-1, validator=between(0, 2**31 - 1, special=-1))
    concurrency: int = attrs.field(default=20, validator=between(1, 1000))
    consume_timeout: float = _duration(15 * 60.0)
    orderly: bool = attrs.field(default=False, validator=boolean)
    auto_commit: bool = attrs.field(default=True, validator=boolean)
    suspend_current_queue_time: float = attrs.field(
        default=1.0, converter=to_seconds, validator=seconds_between(0.01, 30)
    )
    persist_consumer_offset_interval: float = _duration(5.0)
    message_model: MessageModel = attrs.field(
        default=MessageModel.CLUSTERING, validator=member_of(MessageModel)
    )
    client_rebalance: bool = attrs.field(default=True, validator=boolean)
    pop_invisible_time: float = attrs.field(
        default=60.0, converter=to_seconds, validator=seconds_between(5, 300)
    )
    pop_batch_nums: int = attrs.field(default=32, validator=between(1, 32))
    pop_threshold_for_queue: int = attrs.field(default=96, validator=between(1, 65535))
    consume_hooks: tuple[ConsumeHook, ...] = attrs.field(
        default=(), converter=tuple, validator=check_hooks("before_consume", "after_consume")
    )
    local_offset_store_dir: str | os.PathLike[str] | None = attrs.field(
        default=None, validator=_directory
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not self.auto_commit and not self.orderly:
            raise ConfigurationError(
                "auto_commit=False needs orderly=True: only in order is there one place up to "
                "which messages are done"
            )

    @property
    def asks_broker(self) -> bool:
        """Whether brokers assign the queues."""
        return not self.client_rebalance and not self.orderly and not self.broadcasting

    @property
    def broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model is MessageModel.BROADCASTING

    def most_retries(self, of_group: int | None) -> int:
        """`max_reconsume_times` with its default filled in.

        `of_group` is what the broker has for the group, if known.
        """
        if self.max_reconsume_times != -1:
            return self.max_reconsume_times
        if self.orderly:
            return ENDLESS
        return DEFAULT_MAX_RECONSUME_TIMES if of_group is None else of_group

    @property
    def flow_limits(self) -> FlowLimits:
        """The thresholds per queue, without `span` for queues in order.

        In a queue in order the distance of offsets says nothing about how much is held.
        """
        limits = super().flow_limits
        return attrs.evolve(limits, span=ENDLESS) if self.orderly else limits


@explained
@attrs.frozen(kw_only=True, field_transformer=with_named_errors)
class LitePullConfig(QueueConfig):
    """How a lite pull consumer behaves, in addition to `QueueConfig`.

    A message is done when the program says so of it. With `polled_is_done` nothing is
    said: the messages of a poll are done when the task that polled them polls again or,
    without `auto_commit`, when the program commits. With `auto_commit`, what is done is
    committed every `auto_commit_interval`.
    `poll_timeout` is how long a poll waits for a message by default. `pull_batch_size`
    is how many messages a pull asks for and, by default, a poll returns.
    """

    auto_commit: bool = attrs.field(default=True, validator=boolean)
    auto_commit_interval: float = _duration(5.0)
    polled_is_done: bool = attrs.field(default=False, validator=boolean)
    poll_timeout: float = attrs.field(default=5.0, converter=to_seconds, validator=not_negative)
    pull_batch_size: int = attrs.field(default=10, validator=between(1, 1024))
    post_subscription_when_pull: bool = attrs.field(default=True, init=False)
    pull_suspend: float = _duration(20.0)


@explained
@attrs.frozen(kw_only=True, field_transformer=with_named_errors)
class SimpleConfig:
    """How a simple consumer behaves.

    `await_duration` is how long a receive waits for messages by default.
    `invisible_duration` is how long received messages are invisible to others by
    default; it must lie between `min_invisible_duration` and `max_invisible_duration`.
    A change of the duration may go below the minimum.

    `max_reconsume_times` is how often a message is delivered again before it goes to
    the dead letter topic (-1: what the broker has for the group, 16 until that is
    known). `consume_from` says where a group begins in a queue that it has no position
    in: at the first message or, for any other value, where Apache's proxy begins (the
    last message, or the first while the queue is young).

    With `fifo`, messages of a queue come in order: the next ones only after the ones
    before are acknowledged. `processing_limit` is how long `processing` keeps extending
    an invisible duration.
    """

    await_duration: float = attrs.field(default=20.0, converter=to_seconds, validator=not_negative)
    invisible_duration: float = _duration(30.0)
    min_invisible_duration: float = attrs.field(
        default=10.0, converter=to_seconds, validator=not_negative
    )
    max_invisible_duration: float = _duration(12 * 3600.0)
    max_reconsume_times: int = attrs.field(default=-1, validator=between(0, ENDLESS, special=-1))
    consume_from: ConsumeFrom = attrs.field(
        default=ConsumeFrom.LAST_OFFSET, validator=member_of(ConsumeFrom)
    )
    fifo: bool = False
    processing_limit: float = _duration(3 * 3600.0)

    def __attrs_post_init__(self) -> None:
        if self.max_invisible_duration < self.min_invisible_duration:
            raise ConfigurationError(
                f"max_invisible_duration is {self.max_invisible_duration} s; "
                f"it must not be below min_invisible_duration, {self.min_invisible_duration} s"
            )
        self.invisible_ms(self.invisible_duration)

    def invisible_ms(self, seconds: float, *, changing: bool = False) -> int:
        """Milliseconds of an invisible duration.

        Raises `ConfigurationError` when it is out of bounds.
        """
        low = 0.0 if changing else self.min_invisible_duration
        if not low <= seconds <= self.max_invisible_duration:
            raise ConfigurationError(
                f"an invisible duration of {seconds} s is out of bounds; it must be from {low} to "
                f"{self.max_invisible_duration} s"
            )
        return round(seconds * 1000)

    def most_retries(self, of_group: int | None) -> int:
        """`max_reconsume_times` with its default filled in.

        `of_group` is what the broker has for the group, if known.
        """
        if self.max_reconsume_times != -1:
            return self.max_reconsume_times
        return DEFAULT_MAX_RECONSUME_TIMES if of_group is None else of_group


PUSH_OPTIONS: Final = option_names(PushConfig)
LITE_PULL_OPTIONS: Final = option_names(LitePullConfig)
SIMPLE_OPTIONS: Final = option_names(SimpleConfig)
