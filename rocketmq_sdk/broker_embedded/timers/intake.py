"""Messages on their way into the log: limits and delays.

`HookUtils` and `SendMessageProcessor.handlePutMessageResult` of Apache RocketMQ 5.4.0.
A message with the property DELAY goes to the queue of its level in the schedule topic,
one with a time of delivery to the timer topic; both carry where they are to go. The
delay of a transactional message begins with its commit.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.messages import PutResult, PutStatus
from rocketmq_sdk.broker_embedded.timers.messages import (
    IllegalTimerError,
    deliver_time,
    is_deletion,
    redirect_to_timer,
    slot_time_of,
)
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.model.properties import (
    DELAY,
    INNER_NUM,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    property_in_text,
    without_property,
)
from rocketmq_sdk.names import MAX_TOPIC_LENGTH, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketmq_sdk.protocol.batch_codec import count_batch, decode_batch
from rocketmq_sdk.protocol.flags import SysFlag

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
    from rocketmq_sdk.broker_embedded.timers.timer_store import TimerStore
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.delay_levels import DelayLevels

TIMER_ILLEGAL: Final = (
    "timer message illegal, the delay time should not be bigger than the max delay %dms; "
    "or if set del msg, the delay time should be bigger than the current time"
)
_INNER_BATCH: Final = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
_MAX_STORED_TOPIC: Final = 255
_NO_LIMIT: Final = (1 << 31) - 1

STORED: Final = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""The statuses with which a message is stored, and their codes."""


class Intake:
    """Puts messages into the store as Apache's hooks do."""

    __slots__ = (
        "_clock",
        "_config",
        "_levels",
        "_put",
        "_put_batch",
        "_timers",
        "knows_timers",
        "store",
    )

    def __init__(
        self,
        store: MessageStore,
        config: LiveConfig,
        levels: DelayLevels,
        timers: TimerStore,
        clock: Clock,
    ) -> None:
        self.store = store
        self._put = store.put
        self._put_batch = store.put_batch
        self._config = config
        self._levels = levels
        self._timers = timers
        self._clock = clock
        self.knows_timers = True
        """Whether a delivery time is heeded; it was not before RocketMQ 5.0."""

    def put(self, message: MessageToStore) -> PutResult:
        """Store a message where it belongs.

        In the schedule topic when it has a delay level, in the timer topic when its
        delivery time lies ahead.
        """
        return self.prepare(message) or self._put(message)

    def put_at(self, message: MessageToStore, deliver_ms: int, now_ms: int) -> PutResult:
        """`put` of the broker's own message, with the delivery time `deliver_ms`.

        The property TIMER_DELIVER_MS is its only delay.
        """
        refused = self._hold_until(message, deliver_ms, now_ms)
        return self._put(message) if refused is None else PutResult(refused)

    def prepare(self, message: MessageToStore) -> PutResult | None:
        """Everything of `put` but the append; returns the refusal, or None."""
        if len(message.topic) > MAX_TOPIC_LENGTH and (
            len(message.topic) > _MAX_STORED_TOPIC or not message.topic.startswith(RETRY_PREFIX)
        ):
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        if len(message.body) > self._config.current.store.max_message_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        text = message.properties
        if (
            "DELAY\x01" in text or "TIMER_" in text
        ) and message.sys_flag & SysFlag.TRANSACTION_ROLLBACK in (0, SysFlag.TRANSACTION_COMMIT):
            refused = self._delay(message)
            if refused is not None:
                return PutResult(refused)
        return None

    def fits(self, message: MessageToStore) -> bool:
        """Whether topic and body of a message keep the limits of ordinary topics."""
        return (
            len(message.topic) <= MAX_TOPIC_LENGTH
            and len(message.body) <= self._config.current.store.max_message_size
        )

    def put_inner_batch(self, message: MessageToStore) -> PutResult:
        """Store a batch as one record of a topic with batch consume queues.

        Raises `RemoteProtocolError` for a body that is no batch.
        """
        count = count_batch(message.body)
        message.sys_flag |= _INNER_BATCH
        message.properties = (
            f"{without_property(message.properties, INNER_NUM)}INNER_NUM\x01{count}\x02"
        )
        return self.put(message)

    def put_batch(self, message: MessageToStore) -> PutResult:
        """Store the messages of a batch one after another.

        Raises `RemoteProtocolError` for a body that is no batch; Apache answers that
        with SYSTEM_ERROR.
        """
        if len(message.body) > self._config.current.store.max_message_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        result = self._put_batch(message)
        if result.status is PutStatus.MESSAGE_ILLEGAL:
            decode_batch(message.body)
        return result

    def _delay(self, message: MessageToStore) -> PutStatus | None:
        """Move a message with a delay to the topic where it waits.

        Returns the status of one that cannot be taken.
        """
        level = delay_level(message.properties)
        if level > 0:
            redirect_to_level(message, self._levels.clamp(level))
            return None
        if message.topic == TIMER_TOPIC or not self.knows_timers:
            return None
        return self._to_timer(message)

    def _to_timer(self, message: MessageToStore) -> PutStatus | None:
        now = self._clock.now_ms()
        text = message.properties
        try:
            deliver_ms = deliver_time(text, now)
        except IllegalTimerError:
            return (
                PutStatus.WHEEL_TIMER_MSG_ILLEGAL
                if self._config.current.timer_wheel_enable
                else PutStatus.WHEEL_TIMER_NOT_ENABLE
            )
        return None if deliver_ms is None else self._hold_until(message, deliver_ms, now)

    def _hold_until(self, message: MessageToStore, deliver_ms: int, now: int) -> PutStatus | None:
        config = self._config.current
        if not config.timer_wheel_enable:
            return PutStatus.WHEEL_TIMER_NOT_ENABLE
        if deliver_ms <= now:
            return PutStatus.WHEEL_TIMER_MSG_ILLEGAL if is_deletion(message.properties) else None
        if deliver_ms - now > config.store.timer_max_delay_sec * 1000:
            return PutStatus.WHEEL_TIMER_MSG_ILLEGAL
        out_ms = slot_time_of(deliver_ms, config.store.timer_precision_ms)
        if self._is_congested(out_ms, config.store.timer_congest_num_each_slot):
            return PutStatus.WHEEL_TIMER_FLOW_CONTROL
        redirect_to_timer(message, out_ms)
        return None

    def _is_congested(self, out_ms: int, limit: int) -> bool:
        """Whether a slot of the wheel is too full (`TimerMessageStore.isReject`).

        Above its limit more and more messages are refused, above twice the limit all.
        """
        if limit >= _NO_LIMIT:
            return False
        waiting = self._timers.congestion(out_ms)
        return waiting > limit and (
            waiting >= 2 * limit
            or random.randrange(1000) > 1000 * (waiting - limit) / (limit + 0.1)
        )

    def illegal_remark(self) -> str:
        """The remark for a message whose body or properties are too long."""
        limit = self._config.current.store.max_message_size
        return (
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {limit}B, msg properties length limit 32KB."
        )

    def failure(self, status: PutStatus) -> tuple[int, str]:
        """Code and remark for a status with which nothing is stored."""
        if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            return ResponseCode.MESSAGE_ILLEGAL, self.illegal_remark()
        if status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL:
            return ResponseCode.MESSAGE_ILLEGAL, TIMER_ILLEGAL % (
                self._config.current.store.timer_max_delay_sec * 1000
            )
        return _FAILURES.get(status, (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT"))


_FAILURES: Final[dict[PutStatus, tuple[int, str]]] = {
    PutStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        (
            "service not available now. It may be caused by one of the following reasons: "
            "the broker's disk or its memory limit is full, message store has been shut down, etc."
        ),
    ),
    PutStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_BUSY,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    ),
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: (
        ResponseCode.SYSTEM_ERROR,
        "timer message is under flow control, max num limit is exceeded",
    ),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: (
        ResponseCode.SYSTEM_ERROR,
        "accurate timer message is not enabled, timerWheelEnable is false",
    ),
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (
        ResponseCode.SYSTEM_ERROR,
        "in-sync replicas not enough",
    ),
    PutStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}


def delay_level(text: str) -> int:
    """The delay level in a property text, 0 for none.

    Raises `FieldError` when it is no number.
    """
    value = property_in_text(text, DELAY)
    if value is None:
        return 0
    try:
        return int(value)
    except ValueError:
        raise FieldError(f"the property DELAY is {value[:60]!r}, not a number") from None


def redirect_to_level(message: MessageToStore, level: int) -> None:
    """Move a message to the queue of a delay level.

    The store adds the level's time to its store time in the queue unit.
    """
    text = message.properties
    if property_in_text(text, DELAY) != str(level):
        text = f"{without_property(text, DELAY)}DELAY\x01{level}\x02"
    for name in (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS, REAL_TOPIC, REAL_QID):
        text = without_property(text, name)
    message.properties = (
        f"{text}REAL_TOPIC\x01{message.topic}\x02REAL_QID\x01{message.queue_id}\x02"
    )
    message.topic = SCHEDULE_TOPIC
    message.queue_id = level - 1
