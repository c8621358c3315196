"""What timers do to messages: where one waits, and how it comes back.

`HookUtils.transformTimerMessage` and `TimerMessageStore.convertMessage` of Apache
RocketMQ 5.4.0. Pure functions of texts and times.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.model.properties import (
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    property_in_text,
    without_property,
)
from rocketmq_sdk.names import TIMER_TOPIC, return_problem
from rocketmq_sdk.protocol.message_codec import MAX_PROPERTIES
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from rocketmq_sdk.model.received import ReceivedMessage

TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
NEVER_ENQUEUED: Final = (1 << 63) - 1
"""The entry time of a message that was due before it came into the wheel."""
_LONG: Final = re.compile(r"[+-]?[0-9]{1,19}")
_MAX_LONG: Final = (1 << 63) - 1
_MAX_QUEUE_ID: Final = (1 << 31) - 1
_REQUESTS: Final = ((TIMER_DELAY_SEC, 1000), (TIMER_DELAY_MS, 1), (TIMER_DELIVER_MS, 0))


class IllegalTimerError(Exception):
    """A timer that cannot be accepted; the text says why."""


def parse_long(text: str) -> int:
    """A number as `Long.parseLong` reads it, in ASCII digits only.

    Raises `ValueError`.
    """
    if not _LONG.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number of 64 bits")
    value = int(text)
    if not -_MAX_LONG - 1 <= value <= _MAX_LONG:
        raise ValueError(f"{text[:40]!r} is not a number of 64 bits")
    return value


def deliver_time(text: str, now_ms: int) -> int | None:
    """The delivery time that the properties ask for (epoch milliseconds).

    None when they ask for none, or the message went through the wheel before.
    TIMER_DELAY_SEC goes before TIMER_DELAY_MS, and that before TIMER_DELIVER_MS. Raises
    `IllegalTimerError` for a value that is no number.
    """
    if property_in_text(text, TIMER_OUT_MS) is not None:
        return None
    for name, unit in _REQUESTS:
        value = property_in_text(text, name)
        if value is None:
            continue
        try:
            number = parse_long(value)
        except ValueError as error:
            raise IllegalTimerError(f"{name}: {error}") from None
        return now_ms + number * unit if unit else number
    return None


def slot_time_of(deliver_ms: int, precision_ms: int) -> int:
    """The slot for a delivery time.

    It fires when its width has passed, so it lies up to one width earlier.
    """
    return (deliver_ms - 1) // precision_ms * precision_ms


def redirect_to_timer(message: MessageToStore, out_ms: int) -> None:
    """Redirect a message to the timer topic.

    Its properties get its real topic and queue and the time of its slot.
    """
    text = message.properties
    for name in (REAL_TOPIC, REAL_QID):
        text = without_property(text, name)
    if text and text[-1] != "\x02":
        text += "\x02"
    message.properties = (
        f"{text}TIMER_OUT_MS\x01{out_ms}\x02REAL_TOPIC\x01{message.topic}\x02"
        f"REAL_QID\x01{message.queue_id}\x02"
    )
    message.topic = TIMER_TOPIC
    message.queue_id = 0


def out_time(text: str) -> int:
    """The slot time of a message of the timer topic.

    Raises `ValueError` when it has none.
    """
    value = property_in_text(text, TIMER_OUT_MS)
    if value is None:
        raise ValueError("it has no TIMER_OUT_MS")
    return parse_long(value)


def is_deletion(text: str) -> bool:
    """Whether a message recalls another one."""
    return TIMER_DEL_UNIQKEY in text and property_in_text(text, TIMER_DEL_UNIQKEY) is not None


def turns_of(text: str) -> int:
    """How often a message went through the wheel."""
    times = property_in_text(text, TIMER_ROLL_TIMES) or ""
    return int(times) if times.isascii() and times.isdecimal() and len(times) < 10 else 0


def delete_keys(topic: str, unique_key: str) -> tuple[str, str]:
    """What a recall may name a message by.

    Its unique key (5.4), or topic and key (5.3.2 to 5.3.4).
    """
    return unique_key, f"{topic}+{unique_key}"


def _returned(waiting: ReceivedMessage, text: str, topic: str, queue_id: int) -> MessageToStore:
    return MessageToStore(
        topic,
        queue_id,
        waiting.body,
        text,
        flag=waiting.flag,
        sys_flag=waiting.sys_flag,
        born_timestamp=waiting.born_timestamp,
        born_host=waiting.born_host,
        reconsume_times=waiting.reconsume_times,
        tags_code=tags_code(property_in_text(text, TAGS)),
        store_host=waiting.store_host,
    )


def _with_times(text: str, additions: dict[str, str]) -> str:
    """The properties with traces of the wheel.

    Without them where they would make the text too long to be stored.
    """
    changed = text
    for name in additions:
        changed = without_property(changed, name)
    if changed and changed[-1] != "\x02":
        changed += "\x02"
    changed += "".join([f"{name}\x01{value}\x02" for name, value in additions.items()])
    return changed if len(changed.encode("utf-8", "replace")) <= MAX_PROPERTIES else text


def delivered(waiting: ReceivedMessage, text: str, enqueued_ms: int, now_ms: int) -> MessageToStore:
    """The message for its real topic and queue.

    Its properties keep the traces of the wheel, as with Apache. Raises `ValueError`
    when they do not say where it belongs.
    """
    topic, queue_id = property_in_text(text, REAL_TOPIC), property_in_text(text, REAL_QID)
    if topic is None or queue_id is None:
        raise ValueError("it does not name its real topic and queue")
    if problem := return_problem(topic):
        raise ValueError(problem)
    number = parse_long(queue_id)
    if not 0 <= number <= _MAX_QUEUE_ID:
        raise ValueError(f"there is no queue {queue_id[:40]}")
    return _returned(
        waiting,
        _with_times(text, {TIMER_ENQUEUE_MS: str(enqueued_ms), TIMER_DEQUEUE_MS: str(now_ms)}),
        topic,
        number,
    )


def rolled(waiting: ReceivedMessage, text: str, enqueued_ms: int, now_ms: int) -> MessageToStore:
    """The message for another turn through the timer topic."""
    additions = {
        TIMER_ENQUEUE_MS: str(enqueued_ms),
        TIMER_ROLL_TIMES: str(turns_of(text) + 1),
        TIMER_DEQUEUE_MS: str(now_ms),
    }
    return _returned(waiting, _with_times(text, additions), TIMER_TOPIC, 0)
