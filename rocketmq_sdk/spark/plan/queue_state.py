"""The state of a queue that a query has read up to an offset, by one judge for all.

Neither Spark nor trio is needed here.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Bounds(NamedTuple):
    """The first offset of a queue that is still stored, and the one after its last.

    `lags`: a slave says so, which may not have the newest messages.
    """

    begin: int
    end: int
    lags: bool = False


class QueueState(Enum):
    """What has become of a queue since its offset was written down."""

    PRESENT = auto()
    """It goes on from its offset."""
    UNWANTED = auto()
    """The options no longer name it."""
    AWAY = auto()
    """Its broker does not answer, or only a slave does, which may lag."""
    RETIRED = auto()
    """Its topic is there, but readers may no longer read this queue."""
    GONE = auto()
    """Its broker no longer has the topic."""
    SHRUNK = auto()
    """It ends before the offset: made again, or its broker lost its newest messages."""
    EXPIRED = auto()
    """Its first messages behind the offset are no longer stored."""


def judge(
    offset: int,
    bounds: Bounds | None,
    *,
    wanted: bool,
    away: bool,
    readable: bool,
    topic_is_there: bool,
) -> QueueState:
    """The state of a queue that was read up to `offset`.

    `bounds` are None where the broker tells nothing of the queue. `away`: the broker
    has no master, or none that answers. `readable`: the route names the queue for
    readers. `topic_is_there`: the broker has the topic.
    """
    if not wanted:
        return QueueState.UNWANTED
    if away:
        return QueueState.AWAY
    if bounds is None:
        return QueueState.RETIRED if topic_is_there else QueueState.GONE
    if bounds.end < offset:
        return QueueState.AWAY if bounds.lags else QueueState.SHRUNK
    if not readable:
        return QueueState.RETIRED
    return QueueState.EXPIRED if bounds.begin > offset else QueueState.PRESENT
