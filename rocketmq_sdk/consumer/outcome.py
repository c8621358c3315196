"""How a listener decides what becomes of its messages.

Returning means done. An exception means later, after a delay that the broker chooses.
With the two exceptions here the listener chooses; they are answers, not failures. The
log has a warning, with the reason, when a message goes to the dead letter topic.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.validators import to_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from rocketmq_sdk.model.received import ReceivedMessage

BROKER_CHOOSES = 0
DEAD_LETTER = -1
_MAX_LEVEL = 2**31 - 1


class ConsumeOrderlyStatus(Enum):
    """What a listener returns that commits by itself (`orderly`, no `auto_commit`).

    COMMIT: this call's messages are done, with all those of the queue since the last
    commit. ROLLBACK: all of them come again, after the queue was suspended. Returning
    None leaves open what becomes of them. (As in Apache's client, where None is
    SUCCESS.) What went to the dead letter topic since the last commit is done: neither
    concerns it. (In Apache's client it would come again after a rollback, and become a
    second dead letter.)
    """

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


class ListenerAnswer(Exception):  # noqa: N818 - raised by listeners as an answer, not as an error
    """Base of the answers that a listener raises; use one of the two kinds."""

    delay_level: int

    def __init__(self, reason: str, messages: Sequence[ReceivedMessage] | None) -> None:
        super().__init__(reason)
        self.messages = None if messages is None else tuple(messages)


class ConsumeLater(ListenerAnswer):
    """Raised by a listener to have messages delivered again later.

    The log tells so in a debug message; in a warning, with the `reason`, when the
    attempts are exhausted and the message goes to the dead letter topic.

    `delay_level` chooses the delay (0: the broker does, longer with each attempt).
    Queues in order have no delay levels: the queue is suspended for `suspend` seconds
    (None: as set for the consumer; at least 10 ms, at most 30 s).

    A batch listener may name the `messages` it means. The others of the batch are done;
    in order, only those before the first one named.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        delay_level: int = BROKER_CHOOSES,
        suspend: float | timedelta | None = None,
        messages: Sequence[ReceivedMessage] | None = None,
    ) -> None:
        if not isinstance(delay_level, int) or not 0 <= delay_level <= _MAX_LEVEL:
            raise ConfigurationError(
                f"delay_level is {delay_level!r}; levels begin with 1, 0 lets the broker choose, "
                "RejectMessage gives a message up"
            )
        super().__init__(reason, messages)
        self.delay_level = delay_level
        self.suspend = None if suspend is None else to_seconds(suspend)


class RejectMessage(ListenerAnswer):
    """Raised by a listener to send messages to the dead letter topic at once.

    They are not delivered again. The `reason` is in a warning of the log, and nowhere
    else: dead letters carry none.

    A batch listener may name the `messages` it means; the others of the batch are done.
    """

    delay_level = DEAD_LETTER

    def __init__(
        self, reason: str = "", *, messages: Sequence[ReceivedMessage] | None = None
    ) -> None:
        super().__init__(reason, messages)
