"""What the answer to one pull says about a queue: messages, or why there are none.

Brokers skip what they cannot read, and a slave may be behind. So an answer without
messages is judged by what was asked and by who answered. Neither Spark nor trio is
needed here.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.model.enums import PullStatus

if TYPE_CHECKING:
    from rocketmq_sdk.client.api.pull import PulledRecords


class Answer(Enum):
    """The kinds of answers."""

    RECORDS = auto()
    """There are messages, from the offset that was asked for on."""
    FILTERED = auto()
    """No message before the next offset matches the expression."""
    EXPIRED = auto()
    """The messages before the next offset are no longer stored."""
    SHRUNK = auto()
    """The master's queue ends before the offset: made again, or its end was lost."""
    LATER = auto()
    """The broker does not have the message yet, or cannot find it now: ask again."""


@attrs.frozen
class Judgement:
    """What an answer is, and the offset to go on with."""

    answer: Answer
    next_offset: int


def judged(found: PulledRecords, offset: int, *, unfiltered: bool, from_master: bool) -> Judgement:
    """Judge the answer to a pull of one queue from `offset` on.

    `unfiltered`: the pull asked for every message, so a broker that goes on further
    without giving one has lost it. Apache's broker does that without an error when the
    file of a message has been removed (`GetMessageStatus.MESSAGE_WAS_REMOVING` becomes
    PULL_RETRY_IMMEDIATELY, as if the filter had not matched).
    """
    further = found.next_begin_offset
    if found.status is PullStatus.FOUND:
        return Judgement(Answer.RECORDS, max(further, offset + 1))
    if found.status is PullStatus.NO_MATCHED_MESSAGE and further > offset:
        if unfiltered:
            return Judgement(Answer.EXPIRED, further)
        if found.min_offset > offset:
            return Judgement(Answer.EXPIRED, min(found.min_offset, further))
        return Judgement(Answer.FILTERED, further)
    if found.min_offset > offset:
        return Judgement(Answer.EXPIRED, found.min_offset)
    if found.max_offset <= offset and from_master:
        return Judgement(Answer.SHRUNK, found.max_offset)
    return Judgement(Answer.LATER, offset)
