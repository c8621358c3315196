"""Settings of a producer and their keyword form, with the settings of a client.

Options and defaults are those of `DefaultMQProducer` of Apache RocketMQ 5.4.0;
durations are seconds, sizes bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from rocketmq_sdk.client.config import CLIENT_OPTIONS, ClientOptions
from rocketmq_sdk.client.hooks import ForbiddenHook, SendHook, check_hooks
from rocketmq_sdk.client.retry import DEFAULT_RETRY_CODES
from rocketmq_sdk.constructors import explained
from rocketmq_sdk.errors import WrongTypeError
from rocketmq_sdk.names import DEFAULT_TOPIC
from rocketmq_sdk.producer.fault_strategy import FaultProfileName, fault_profile
from rocketmq_sdk.protocol.compression import CompressionType, check_method
from rocketmq_sdk.validators import (
    at_least,
    between,
    option_names,
    optional_seconds,
    positive,
    positive_or_none,
    refuse_unknown,
    to_seconds,
    with_named_errors,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta


UNLIMITED: Final = 1 << 40
"""More attempts than any message has time for."""


@explained
@attrs.frozen(kw_only=True, field_transformer=with_named_errors)
class AutoBatch:
    """How small messages are joined into batches.

    `linger` is how many seconds the first one waits, `max_bytes` their size together at
    most.
    """

    linger: float = attrs.field(default=0.01, converter=to_seconds, validator=positive)
    max_bytes: int = attrs.field(default=32 * 1024, validator=at_least(1))


class ProducerOptions(ClientOptions, total=False):
    """Keyword form of `ProducerConfig` and `ClientConfig`."""

    send_timeout: float | timedelta
    send_timeout_per_attempt: float | timedelta | None
    retry_times: int
    retry_another_broker_when_not_store_ok: bool
    retry_response_codes: Iterable[int]
    max_message_size: int
    compress_over: int
    compression_level: int
    compression: CompressionType | str
    create_topic_key: str
    default_topic_queue_nums: int
    fault_profile: FaultProfileName | None
    detector: bool | None
    retry_until_deadline: bool
    detect_timeout: float | timedelta
    detect_interval: float | timedelta
    max_in_flight: int
    max_in_flight_bytes: int
    check_message_type: bool
    auto_batch: AutoBatch | bool | None
    send_hooks: Iterable[SendHook]
    forbidden_hooks: Iterable[ForbiddenHook]


def _compression(value: CompressionType | str) -> CompressionType:
    return value if isinstance(value, CompressionType) else CompressionType.of(value)


def _auto_batch(value: AutoBatch | bool | None) -> AutoBatch | None:
    if value is None or isinstance(value, AutoBatch):
        return value
    if isinstance(value, bool):
        return AutoBatch() if value else None
    raise WrongTypeError(
        f"auto_batch is {value!r:.200}; give True, False or an AutoBatch(linger=..., max_bytes=...)"
    )


def _codes(value: Iterable[int]) -> frozenset[int]:
    codes = frozenset(value)
    if not all(isinstance(code, int) for code in codes):
        raise WrongTypeError(f"retry_response_codes is {value!r:.200}; give response codes")
    return codes


def _check_profile(_instance: object, _field: object, value: str | None) -> None:
    fault_profile(value)


@explained
@attrs.frozen(kw_only=True, field_transformer=with_named_errors)
class ProducerConfig:
    """What a producer needs to know before it starts."""

    send_timeout: float = attrs.field(default=3.0, converter=to_seconds, validator=positive)
    """For the whole send, all attempts together."""
    send_timeout_per_attempt: float | None = attrs.field(
        default=None, converter=optional_seconds, validator=positive_or_none
    )
    """For one attempt, connecting included, while another one is possible behind it.

    None means half of what is left while another broker could take the message, else
    all of it.
    """
    retry_times: int = attrs.field(default=2, validator=at_least(0))
    """Attempts after the first one."""
    retry_until_deadline: bool = False
    """Whether to go on after that until the time is up, with pauses that grow to 1 s.

    For errors that are `retryable`, a missing route, and chosen queues too.
    """
    retry_another_broker_when_not_store_ok: bool = False
    """Whether to try another broker after a status other than SEND_OK.

    The message is stored twice then.
    """
    retry_response_codes: frozenset[int] = attrs.field(
        default=DEFAULT_RETRY_CODES, converter=_codes
    )
    max_message_size: int = attrs.field(default=4 * 1024 * 1024, validator=at_least(1))
    """Of a body before compression, and of an encoded batch."""
    compress_over: int = attrs.field(default=4096, validator=at_least(1))
    """Bodies of at least so many bytes are compressed."""
    compression_level: int = attrs.field(default=5, validator=between(0, 22))
    """Up to 9 with zlib, 22 with Zstandard; LZ4 has no levels."""
    compression: CompressionType = attrs.field(default=CompressionType.ZLIB, converter=_compression)
    create_topic_key: str = DEFAULT_TOPIC
    """The topic that brokers create missing ones from."""
    default_topic_queue_nums: int = attrs.field(default=4, validator=at_least(1))
    fault_profile: str | None = attrs.field(default="unanswered", validator=_check_profile)
    """Which brokers are avoided while there are others.

    `"unanswered"`: those that were not reached or did not answer, until they do.
    `"today"` and `"classic"`: as Apache's clients do with `sendLatencyEnable`, also
    those that answered late. None: no broker.
    """
    detector: bool | None = None
    """Whether brokers that were not reached are probed until they answer again.

    None: with `"unanswered"` only.
    """
    detect_timeout: float = attrs.field(converter=to_seconds, validator=positive)
    """For the answer to a probe.

    By default 1 s with `"unanswered"`, where a broker must not stay away because it is
    far away, else 0.2 s.
    """
    detect_interval: float = attrs.field(converter=to_seconds, validator=positive)
    """Between probes of a broker. By default 1 s with `"unanswered"`, else 2 s."""
    max_in_flight: int = attrs.field(default=32768, validator=at_least(1))
    """Messages handed over and not finished."""
    max_in_flight_bytes: int = attrs.field(default=256 * 1024 * 1024, validator=at_least(1))
    """Their bodies together; one message is always let through."""
    check_message_type: bool = False
    """Whether to reject messages whose type differs from the topic's `message.type`.

    Brokers never do that.
    """
    auto_batch: AutoBatch | None = attrs.field(default=None, converter=_auto_batch)
    """Whether small messages of `send` and `submit` are joined into batches, and how.

    True means the defaults of `AutoBatch`.
    """
    send_hooks: tuple[SendHook, ...] = attrs.field(
        default=(), converter=tuple, validator=check_hooks("before_send", "after_send")
    )
    """Told of each message before it is sent and when it is finished."""
    forbidden_hooks: tuple[ForbiddenHook, ...] = attrs.field(
        default=(), converter=tuple, validator=check_hooks("check_forbidden")
    )
    """May refuse messages before they are sent."""

    @detect_timeout.default
    def _usual_detect_timeout(self) -> float:
        return 1.0 if self.fault_profile == "unanswered" else 0.2

    @detect_interval.default
    def _usual_detect_interval(self) -> float:
        return 1.0 if self.fault_profile == "unanswered" else 2.0

    def __attrs_post_init__(self) -> None:
        check_method(self.compression, self.compression_level)

    @property
    def most_attempts(self) -> int:
        """How many attempts a message has."""
        return UNLIMITED if self.retry_until_deadline else 1 + self.retry_times

    @property
    def probing(self) -> bool:
        """Whether the detector runs."""
        if self.detector is None:
            return self.fault_profile == "unanswered"
        return self.detector


PRODUCER_OPTIONS: Final = option_names(ProducerConfig)


def split_options(
    options: Mapping[str, Any], *, shared_client: bool
) -> tuple[ProducerConfig, dict[str, Any]]:
    """The producer's settings, and those meant for the client that it makes for itself.

    Raises `ConfigurationError` for unknown settings, and for client settings beside a
    client that is shared.
    """
    refuse_unknown(
        options,
        PRODUCER_OPTIONS if shared_client else PRODUCER_OPTIONS | CLIENT_OPTIONS,
        "Producer",
    )
    own = {name: value for name, value in options.items() if name in PRODUCER_OPTIONS}
    return ProducerConfig(**own), {
        name: value for name, value in options.items() if name in CLIENT_OPTIONS
    }
