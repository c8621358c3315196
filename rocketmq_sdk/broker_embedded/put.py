"""What happens to a message between the processors and the log (`HookUtils`, `SendMessageProcessor.handlePutMessageResult`).

Checks of size and of the store's state, then the delay levels: a message with the property DELAY goes to the queue of its level in the schedule
topic and carries where it wanted to go. Timers and transactions have services of their own, which this broker does not run yet; their messages are
refused, because to store them as ordinary ones would deliver them at once.
"""

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.types import PutResult, PutStatus
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.model.properties import (
    DELAY,
    INNER_NUM,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    property_in_text,
    without_property,
)
from rocketmq_sdk.names import MAX_TOPIC_LENGTH, RETRY_PREFIX, SCHEDULE_TOPIC
from rocketmq_sdk.protocol.batch_codec import decode_batch
from rocketmq_sdk.protocol.flags import SysFlag

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.config import LiveConfig
    from rocketmq_sdk.broker_embedded.services.delay_levels import DelayLevels
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.types import MessageToStore
    from rocketmq_sdk.clock import Clock

TIMER_ILLEGAL: Final = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; "
    "or if set del msg, the delay time should be bigger than the current time"
)
TIMER_MISSING: Final = "this broker has no timer service yet: send with a delay level instead of a delivery time"
TRANSACTION_MISSING: Final = "this broker has no transaction service yet: sending transaction message is forbidden"
_INNER_BATCH: Final = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
_MAX_STORED_TOPIC: Final = 255
_MAX_TIMER_MS: Final = 259_200_000
_TIMER_PROPERTIES: Final = ((TIMER_DELAY_SEC, 1000), (TIMER_DELAY_MS, 1), (TIMER_DELIVER_MS, 0))

STORED: Final = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""The statuses with which a message is stored, and their codes."""


class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """A message that is not stored, as the code and the remark of the answer."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class PutPipeline:
    """Puts messages into the store as Apache's hooks would have them."""

    __slots__ = ("_clock", "_config", "_levels", "_put", "_put_batch", "store")

    def __init__(self, store: "MessageStore", config: "LiveConfig", levels: "DelayLevels", clock: "Clock") -> None:
        self.store = store
        self._put = store.put
        self._put_batch = store.put_batch
        self._config = config
        self._levels = levels
        self._clock = clock

    def put(self, message: "MessageToStore") -> PutResult:
        """Store a message, in the schedule topic when it has a delay level.

        Raises `Refused` when its properties ask for what this broker does not do.
        """
        if len(message.topic) > MAX_TOPIC_LENGTH and (len(message.topic) > _MAX_STORED_TOPIC or not message.topic.startswith(RETRY_PREFIX)):
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        if len(message.body) > self._config.current.store.max_message_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        text = message.properties
        if "DELAY\x01" in text or "TIMER_" in text:
            self._delay(message)
        return self._put(message)

    def put_inner_batch(self, message: "MessageToStore") -> PutResult:
        """Store a batch as one record of a topic with batch consume queues.

        Raises `RemoteProtocolError` for a body that is no batch.
        """
        count = len(decode_batch(message.body))
        message.sys_flag |= _INNER_BATCH
        message.properties = f"{without_property(message.properties, INNER_NUM)}INNER_NUM\x01{count}\x02"
        return self.put(message)

    def put_batch(self, message: "MessageToStore") -> PutResult:
        """Store the messages of a batch one behind the other.

        Raises `RemoteProtocolError` for a body that is no batch; Apache answers that with SYSTEM_ERROR.
        """
        if len(message.body) > self._config.current.store.max_message_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        result = self._put_batch(message)
        if result.status is PutStatus.MESSAGE_ILLEGAL:
            decode_batch(message.body)
        return result

    def _delay(self, message: "MessageToStore") -> None:
        level = delay_level(message.properties)
        if level > 0:
            redirect_to_level(message, self._levels.clamp(level))
        else:
            self._check_timer(message.properties)

    def _check_timer(self, text: str) -> None:
        """Let a timer pass whose time has come; refuse one that would have to wait."""
        if property_in_text(text, TIMER_OUT_MS) is not None:
            return
        for name, unit in _TIMER_PROPERTIES:
            value = property_in_text(text, name)
            if value is None:
                continue
            try:
                number = int(value)
            except ValueError:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, TIMER_ILLEGAL) from None
            wait_ms = number * unit if unit else number - self._clock.now_ms()
            deletes = property_in_text(text, TIMER_DEL_UNIQKEY) is not None
            if (wait_ms <= 0 and deletes) or wait_ms > _MAX_TIMER_MS:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, TIMER_ILLEGAL)
            if wait_ms > 0:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, TIMER_MISSING)
            return

    def illegal_remark(self) -> str:
        """The remark for a message whose body or properties are too long."""
        limit = self._config.current.store.max_message_size
        return (
            f"the message is illegal, maybe msg body or properties length not matched. msg body length limit {limit}B, "
            "msg properties length limit 32KB."
        )

    def failure(self, status: PutStatus) -> tuple[int, str]:
        """Code and remark for a status with which nothing is stored."""
        if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            return ResponseCode.MESSAGE_ILLEGAL, self.illegal_remark()
        return _FAILURES.get(status, (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT"))


_FAILURES: Final[dict[PutStatus, tuple[int, str]]] = {
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, TIMER_ILLEGAL),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        (
            "service not available now. It may be caused by one of the following reasons: the broker's disk or its memory limit is full, "
            "message store has been shut down, etc."
        ),
    ),
    PutStatus.OS_PAGE_CACHE_BUSY: (ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"),
    PutStatus.CREATE_MAPPED_FILE_FAILED: (ResponseCode.SYSTEM_ERROR, "create mapped file failed, server is busy or broken."),
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: (ResponseCode.SYSTEM_ERROR, "timer message is under flow control, max num limit is exceeded"),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: (ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"),
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"),
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


def redirect_to_level(message: "MessageToStore", level: int) -> None:
    """Send a message to the queue of a delay level; the store adds the level's time to its store time in the queue unit."""
    text = message.properties
    if property_in_text(text, DELAY) != str(level):
        text = f"{without_property(text, DELAY)}DELAY\x01{level}\x02"
    for name in (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS, REAL_TOPIC, REAL_QID):
        text = without_property(text, name)
    message.properties = f"{text}REAL_TOPIC\x01{message.topic}\x02REAL_QID\x01{message.queue_id}\x02"
    message.topic = SCHEDULE_TOPIC
    message.queue_id = level - 1
