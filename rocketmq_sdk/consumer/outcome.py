"""How a listener says what becomes of its messages.

Returning means done. Any exception means later, at the delay that the broker chooses.
The two exceptions here choose themselves; they are ordinary answers, so they are not
logged as failures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.validators import to_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from rocketmq_sdk.model.message import ReceivedMessage

BROKER_CHOOSES = 0
DEAD_LETTER = -1


class ListenerAnswer(Exception):  # noqa: N818 - raised by listeners as an answer, not as an error
    """What a listener raises to choose; use one of its two kinds."""

    delay_level: int

    def __init__(self, reason: str, messages: Sequence[ReceivedMessage] | None) -> None:
        super().__init__(reason)
        self.messages = None if messages is None else tuple(messages)


class ConsumeLater(ListenerAnswer):
    """Raised by a listener: deliver again after the delay of `delay_level` (0: the
    broker chooses, longer with each attempt).

    A consumer of queues in order has no delay levels: its queue rests for `suspend`
    seconds (None: as set for the consumer; at least 10 ms, at most 30 s). A batch
    listener may name the `messages` that are meant; the others of the batch are then
    done, in order only those in front of the first that is named.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        delay_level: int = BROKER_CHOOSES,
        suspend: float | timedelta | None = None,
        messages: Sequence[ReceivedMessage] | None = None,
    ) -> None:
        if not isinstance(delay_level, int) or delay_level < 0:
            raise ConfigurationError(
                f"delay_level is {delay_level!r}; levels begin with 1, 0 lets the broker choose, "
                "RejectMessage gives a message up"
            )
        super().__init__(reason, messages)
        self.delay_level = delay_level
        self.suspend = None if suspend is None else to_seconds(suspend)


class RejectMessage(ListenerAnswer):
    """Raised by a listener: never deliver again; the message goes to the group's dead
    letter topic at once.

    A batch listener may name the `messages` that are meant; the others of the batch are
    then done.
    """

    delay_level = DEAD_LETTER

    def __init__(
        self, reason: str = "", *, messages: Sequence[ReceivedMessage] | None = None
    ) -> None:
        super().__init__(reason, messages)
