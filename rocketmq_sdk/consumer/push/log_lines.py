"""What the log says of messages that a listener did not take."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.client.troubles import one_line
from rocketmq_sdk.consumer.outcome import DEAD_LETTER
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.consumer.outcome import ListenerAnswer
    from rocketmq_sdk.model.received import ReceivedMessage

logger = logging.getLogger("rocketmq_sdk.consumer")

EXHAUSTED: Final = "its attempts are exhausted, so it goes to the dead letter topic"
REJECTED: Final = "it goes to the dead letter topic"
LEFT_OUT: Final = "it is left out: broadcasting has no retries"


def tell_answer(
    group: str,
    answer: ListenerAnswer,
    messages: Sequence[ReceivedMessage],
    given_up: Sequence[ReceivedMessage],
    *,
    broadcasting: bool,
) -> None:
    """Log what a listener has answered to messages.

    One warning for those that are `given_up`, which nobody gets again. That the others
    come later was asked for, and is a debug message.
    """
    said = one_line(repr(answer))
    if given_up:
        rejected = answer.delay_level == DEAD_LETTER
        only = given_up[0].message_id if len(given_up) == 1 else None
        logger.warning(
            "group %s: the listener answered %s; %s: %s",
            group,
            said,
            LEFT_OUT if broadcasting else REJECTED if rejected else EXHAUSTED,
            describe(given_up),
            extra=about(group=group, topic=topic_of(given_up), message_id=only),
        )
    if len(given_up) < len(messages):
        lost = set(map(id, given_up))
        later = [message for message in messages if id(message) not in lost]
        logger.debug(
            "group %s: the listener answered %s; to be consumed again later: %s",
            group,
            said,
            describe(later),
            extra=about(group=group, topic=topic_of(later)),
        )


def describe(messages: Sequence[ReceivedMessage]) -> str:
    """Messages as text for the log."""
    first = messages[0] if messages else None
    if first is None:
        return "no message"
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    return (
        f"message {first.message_id} of {first.topic} (attempt {first.reconsume_times + 1}){more}"
    )


def topic_of(messages: Sequence[ReceivedMessage]) -> str | None:
    """The topic of messages, for the log; None for none."""
    return messages[0].topic if messages else None
