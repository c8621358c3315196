"""The lag of a query, out of its progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql.streaming.listener import StreamingQueryListener

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spark.plan.offsets import MEMBERS, QueueKey, from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


@attrs.frozen
class Lag:
    """How many offsets a query has still to read: in all, and by queue.

    Offsets are counted, so messages that a filter leaves out count as well. `away` are
    brokers whose queues stand still, `standing` how many queues no route names. Of this
    run of the query: `losses` is how often messages were given up while it was planned
    (failOnDataLoss=false), `lost_offsets` how many offsets that were, if that is known.
    """

    total: int
    queues: Mapping[QueueKey, int]
    away: tuple[str, ...] = ()
    standing: int = 0
    losses: int = 0
    lost_offsets: int = 0

    @property
    def most(self) -> int:
        """The lag of the queue that has most to read; 0 without queues."""
        return max(self.queues.values(), default=0)


def lag(progress: Any) -> Lag:
    """The lag that a query's progress tells, over all of its sources of this format.

    `progress` is `query.lastProgress`, or the `progress` of a listener's event. Raises
    `ConfigurationError` when it is none.
    """
    sources = getattr(progress, "sources", None)
    if sources is None and isinstance(progress, Mapping):
        sources = progress.get("sources")
    if sources is None:
        raise ConfigurationError(
            f"{type(progress).__name__} is no progress of a query; give query.lastProgress once "
            "it is not None"
        )
    queues: dict[QueueKey, int] = {}
    away: set[str] = set()
    standing = losses = lost = 0
    for source in sources:
        metrics = (_value(source, "latestOffset") or {}).get("m", {})
        away.update(metrics.get("away", ()))
        standing += metrics.get("standing", 0)
        losses += metrics.get("losses", 0)
        lost += metrics.get("lostOffsets", 0)
        end, latest = _places(source, "endOffset"), _places(source, "latestOffset")
        if end is not None and latest is not None:
            queues.update(
                {queue: max(0, stop - end.get(queue, 0)) for queue, stop in latest.items()}
            )
    return Lag(sum(queues.values()), queues, tuple(sorted(away)), standing, losses, lost)


def _value(source: Any, name: str) -> dict[str, Any] | None:
    """Offsets of one source as they are; None when they are of another format."""
    value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict) or not {"t", "v"} <= value.keys() <= MEMBERS:
        return None
    return value


def _places(source: Any, name: str) -> dict[QueueKey, int] | None:
    value = _value(source, name)
    if value is None:
        return None
    return from_json(value, source="the offsets of the progress")


class LagListener(StreamingQueryListener):
    """Remembers the lag of each running query by query id, in `lags`.

    With a callback it passes each lag on, as in
    `spark.streams.addListener(LagListener(print))`.
    """

    def __init__(self, tell: Callable[[str, Lag], object] | None = None) -> None:
        self._tell = tell
        self.lags: dict[str, Lag] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is done, or there was nothing to do."""
        found = lag(event.progress)
        query = str(event.progress.id)
        self.lags[query] = found
        if self._tell is not None:
            self._tell(query, found)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """The lag stays what it was."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget the query."""
        self.lags.pop(str(event.id), None)
