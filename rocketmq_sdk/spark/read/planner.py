"""Where the batches of a stream begin and end.

This is the state of the process that plans a query.

Spark hands out completed offsets and writes down planned ones, so all that has to
survive is in offsets. What is kept here may be lost at any moment: ends that were just
asked for, the beginning of a new query, whose turn it is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.view import ClusterView
from rocketmq_sdk.spark.options.values import Edge
from rocketmq_sdk.spark.plan.limits import Gate, limited, waiting
from rocketmq_sdk.spark.plan.loss import DataLossError, GoneError
from rocketmq_sdk.spark.plan.offsets import BatchEnd
from rocketmq_sdk.spark.plan.queue_state import Bounds, QueueState, judge
from rocketmq_sdk.spark.plan.ranges import ranges_between
from rocketmq_sdk.spark.read.availability import Availability
from rocketmq_sdk.spark.read.edges import starts

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from rocketmq_sdk.spark.options.settings import SparkOptions
    from rocketmq_sdk.spark.plan.offsets import QueueKey

logger = logging.getLogger("rocketmq_sdk.spark")
DISCOVERY_SECONDS: Final = 5.0
"""How old the list of queues may be."""
MOST_SHOWN: Final = 20
"""Queues that a warning names."""


class StreamPlanner:
    """Plans the batches of one run of a query, in the trio thread of its process."""

    def __init__(self, settings: SparkOptions, default_tasks: int = 1) -> None:
        self._settings = settings
        self._partitioning = settings.partitioning(default_tasks)
        self._connection = ClusterAccess.of(settings)
        self._availability = Availability(settings)
        self._queues: list[QueueKey] = []
        self._queues_until = float("-inf")
        self._standing: set[QueueKey] = set()
        """Queues that no route names, though their broker may know them.

        Their brokers say what has become of them; looked for again with the list of
        queues.
        """
        self._bounds: dict[QueueKey, Bounds] = {}
        self._bounds_until = float("-inf")
        self._initial: dict[QueueKey, int] | None = None
        self._anchor: dict[QueueKey, int] | None = None
        self._anchored = False
        self._checked: set[tuple[str, str]] = set()
        self._frozen: dict[QueueKey, Bounds] | None = None
        self._warned: set[str] = set()
        self._losses = self._lost_offsets = 0
        self._turn = 0
        least = settings.min_offsets_per_trigger
        self._gate = None if least is None else Gate(least, settings.max_trigger_delay)

    async def initial(self) -> dict[QueueKey, int]:
        """Where a new query begins; the answer stays the same during this run."""
        if self._initial is None:
            async with bridge.client(self._connection) as client:
                cluster = ClusterView(client, self._settings)
                queues = await cluster.queues()
                await self._check_expression(cluster, queues)
                bounds = await cluster.bounds(queues)
                if (
                    self._frozen is not None
                ):  # a beginning after the end of the run would look like lost messages
                    bounds = {
                        queue: self._frozen[queue] for queue in bounds if queue in self._frozen
                    }
                self._initial = await starts(cluster, self._settings, bounds, default=Edge.LATEST)
            moves = any(
                offset > bounds[queue].begin or offset == bounds[queue].end
                for queue, offset in self._initial.items()
            )
            if moves and not _from_earliest(self._settings):
                self._anchor, self._anchored = self._initial, True
        return self._initial

    async def freeze(self) -> None:
        """Freeze the ends: this run stops where the queues end now.

        Spark asks for this with `Trigger.AvailableNow`.
        """
        self._frozen = await self._current()

    async def latest(self) -> dict[QueueKey, int]:
        """The ends of all queues, regardless of limits."""
        return {
            queue: place.end
            for queue, place in (
                self._frozen if self._frozen is not None else await self._current()
            ).items()
        }

    async def next_end(
        self, start: Mapping[QueueKey, int], *, everything: bool = False
    ) -> BatchEnd | None:
        """Where the batch that begins at `start` ends; None with nothing to do.

        A new query whose beginning is not the first message first writes that down by
        an empty batch. If its first batch failed before it was committed, Spark would
        ask for the beginning again, and latest would be later then. Queues that are new
        enter with their earliest offset for the same reason.

        `everything`: this is the only batch of the run, as with `Trigger.Once`. So
        limits do not count, and where it begins is written down with its end.

        Raises `GoneError` and `DataLossError` for messages that are gone, unless
        `failOnDataLoss` is false, and `UnreachableError`.
        """
        anchor, self._anchor = self._anchor, None
        if anchor is not None and anchor == start and not everything:
            return None
        bounds = await self._settled(start)
        kept = self._kept(start, bounds)
        new = {
            queue: bounds[queue].begin
            for queue in self._queues
            if queue in bounds and queue not in start
        }
        self._tell_late(new)
        begins = {**{queue: stop for queue, (stop, _) in kept.items()}, **new}
        if everything:
            moving = {queue for queue, (_, moves) in kept.items() if moves}
            return self._everything(start, begins, moving, bounds)
        if new or len(kept) < len(start):
            return BatchEnd(begins, 1, True)
        end = {queue: bounds[queue].end if moves else stop for queue, (stop, moves) in kept.items()}
        gate = None if self._frozen is not None else self._gate
        if gate is not None and not gate.opens(waiting(start, end), trio.current_time()):
            return None
        if self._settings.max_offsets_per_trigger is not None:
            end = limited(start, end, self._settings.max_offsets_per_trigger, turn=self._turn)
            self._turn += end != start
        return None if end == start else BatchEnd(end, self._tasks(start, end))

    def _everything(
        self,
        start: Mapping[QueueKey, int],
        begins: Mapping[QueueKey, int],
        moving: Container[QueueKey],
        bounds: Mapping[QueueKey, Bounds],
    ) -> BatchEnd | None:
        """The batch up to the ends of all queues that move or begin elsewhere."""
        end = {
            queue: bounds[queue].end if queue in moving or start.get(queue) != begin else begin
            for queue, begin in begins.items()
        }
        if end == start:
            return None
        tasks = self._partitioning.count(sum(map(len, ranges_between(begins, end))))
        return BatchEnd(end, tasks, begins=begins)

    def _tasks(self, start: Mapping[QueueKey, int], end: Mapping[QueueKey, int]) -> int:
        """The number of tasks of a batch, which is written down with its end.

        So a batch that is planned again is the same batch, whatever the session's
        parallelism and the options are then.
        """
        ranges = ranges_between(self._first_read(start, end), end)
        return self._partitioning.count(sum(map(len, ranges)))

    def begins(self, start: Mapping[QueueKey, int], end: BatchEnd) -> dict[QueueKey, int]:
        """Where the queues of a planned batch begin."""
        if end.begins is not None:
            return dict(end.begins)
        if end.enters:
            return {**end.offsets, **start}
        return self._first_read(start, end.offsets)

    def _first_read(
        self, start: Mapping[QueueKey, int], end: Mapping[QueueKey, int]
    ) -> dict[QueueKey, int]:
        """A queue that only the end names enters there; nothing before it is read.

        The one exception is a first batch that is planned again from earliest, while a
        broker that took part in it is away: that reads from the first message, or
        fails, but leaves nothing out.
        """
        if self._initial and not self._anchored and start == self._initial:
            return dict(start)
        return {**end, **start}

    async def _settled(self, start: Mapping[QueueKey, int]) -> dict[QueueKey, Bounds]:
        """Bounds of all queues, asked again where some seem to be gone.

        A broker that restarts takes its queues out of all routes for a while: it is
        waited for, or its queues stand still (`Availability`).
        """
        bounds = self._frozen if self._frozen is not None else await self._current()
        suspects = [
            queue
            for queue in self._seem_gone(start, bounds)
            if queue.broker not in self._availability.silent and self._is_wanted(queue)
        ]
        if not suspects:
            return bounds
        async with bridge.client(self._connection) as client:
            await self._availability.look_for(ClusterView(client, self._settings), suspects)
        away = self._availability.away
        if all(queue.broker in away for queue in suspects):
            return bounds
        # Others may be gone from the routes when these are asked for again.
        there = [queue for queue in start if queue.broker not in away and self._is_wanted(queue)]
        self._queues_until = self._bounds_until = float("-inf")
        fresh = await self._current(there)
        self._standing.update(queue for queue in there if queue not in self._queues)
        if self._frozen is None:
            return fresh
        self._frozen = {
            **self._frozen,
            **{queue: fresh[queue] for queue in suspects if queue in fresh},
        }
        return self._frozen

    def _seem_gone(
        self, start: Mapping[QueueKey, int], bounds: Mapping[QueueKey, Bounds]
    ) -> Iterator[QueueKey]:
        """Queues whose messages seem lost, unless their brokers are away.

        A slave that answers for a broker lags. A queue that stands still because
        readers may not read it is not asked for each time.
        """
        places: set[tuple[str, str]] | None = None
        for queue, offset in start.items():
            place = bounds.get(queue)
            if place is not None:
                if place.end < offset:
                    yield queue
            elif queue not in self._standing:
                yield queue
            else:
                places = places or self._places(bounds)
                if (queue.topic, queue.broker) not in places:
                    yield queue

    def _places(self, bounds: Iterable[QueueKey]) -> set[tuple[str, str]]:
        """The topics that there are, with their brokers."""
        return {(queue.topic, queue.broker) for queue in (*bounds, *self._queues)}

    def _tell_late(self, new: Mapping[QueueKey, int]) -> None:
        """Queues that enter when their first messages are gone: nobody else tells."""
        late = [f"{queue} from offset {begin}" for queue, begin in sorted(new.items()) if begin]
        if late:
            more = ", ..." if len(late) > MOST_SHOWN else ""
            self._warn(
                f"{len(late)} new queues are read from their first messages that are still stored: "
                f"{', '.join(late[:MOST_SHOWN])}{more}"
            )

    def _tell_missing_topics(self) -> None:
        """A topic may be made later, or be misspelt; a new query refuses it."""
        known = {queue.topic for queue in self._queues}
        for topic in self._settings.subscribe or ():
            if topic not in known:
                self._warn(
                    f"the topic {topic} has no queues yet; it is read as soon as it is there"
                )

    async def _check_expression(self, cluster: ClusterView, queues: list[QueueKey]) -> None:
        """Ask brokers that were not asked yet whether they can serve the expression."""
        places = {(queue.broker, queue.topic) for queue in queues}
        await cluster.check_expression(
            queue for queue in queues if (queue.broker, queue.topic) not in self._checked
        )
        self._checked |= places

    def _kept(
        self, start: Mapping[QueueKey, int], bounds: Mapping[QueueKey, Bounds]
    ) -> dict[QueueKey, tuple[int, bool]]:
        """The queues of `start` that stay: where each goes on, and whether it moves."""
        places = self._places(bounds)
        readable = set(self._queues)
        kept: dict[QueueKey, tuple[int, bool]] = {}
        for queue, offset in start.items():
            place = bounds.get(queue)
            state = judge(
                offset,
                place,
                wanted=self._is_wanted(queue),
                away=queue.broker in self._availability.away,
                readable=queue in readable,
                topic_is_there=(queue.topic, queue.broker) in places,
            )
            if state is QueueState.PRESENT:
                kept[queue] = offset, True
            elif state is QueueState.AWAY:
                kept[queue] = offset, False
            elif state is QueueState.RETIRED:
                self._tell_retired(queue, offset, place)
                kept[queue] = offset, False
            elif state is QueueState.UNWANTED:
                self._warn(f"{queue} is no longer subscribed to; its offset {offset} is forgotten")
            elif state is QueueState.GONE:
                self._lost(GoneError(queue, offset, 0))
            else:
                assert place is not None
                if state is QueueState.SHRUNK:  # what it holds now was never read
                    self._lost(GoneError(queue, offset, place.end))
                    if place.begin:
                        self._lost(DataLossError(queue, 0, place.begin))
                    kept[queue] = place.begin, False
                else:
                    self._lost(DataLossError(queue, offset, place.begin))
                    kept[queue] = offset, True
        return kept

    def _tell_retired(self, queue: QueueKey, offset: int, place: Bounds | None) -> None:
        waits = 0 if place is None else max(0, place.end - offset)
        left = f"{waits} messages wait in it" if waits else "it was read to its end"
        self._warn(
            f"{queue} may no longer be read ({left}); its offset {offset} is kept until it may be"
        )

    def _is_wanted(self, queue: QueueKey) -> bool:
        import re

        settings = self._settings
        if settings.assign is not None:
            return queue in settings.assign
        if settings.subscribe is not None:
            return queue.topic in settings.subscribe
        return re.fullmatch(settings.subscribe_pattern or "", queue.topic) is not None

    def _lost(self, error: GoneError | DataLossError) -> None:
        if self._settings.fail_on_data_loss:
            raise error
        if self._warn(f"failOnDataLoss is false: {error}"):
            self._losses += 1
            if isinstance(error, DataLossError):
                self._lost_offsets += error.found - error.expected

    def _warn(self, text: str) -> bool:
        """Log something once; whether this was the time."""
        if text in self._warned:
            return False
        self._warned.add(text)
        logger.warning("%s", text)
        return True

    @property
    def metrics(self) -> dict[str, Any]:
        """What the progress of a query tells beside its offsets; see `progress.Lag`."""
        return {
            "away": sorted(self._availability.away),
            "losses": self._losses,
            "lostOffsets": self._lost_offsets,
            "standing": len(self._standing),
        }

    async def _current(self, also: Iterable[QueueKey] = ()) -> dict[QueueKey, Bounds]:
        """Begin and end of all queues, not older than `offsetRefreshInterval`.

        `also`: queues that no route names, of brokers that are there.
        """
        now = trio.current_time()
        if now < self._bounds_until:
            return self._bounds
        async with bridge.client(self._connection) as client:
            cluster = ClusterView(client, self._settings)
            if now >= self._queues_until:
                self._queues = await cluster.queues(must_exist=False)
                self._standing.clear()
                self._tell_missing_topics()
                self._queues_until = trio.current_time() + DISCOVERY_SECONDS
            asked = sorted({*self._queues, *self._standing, *also})
            self._bounds = await self._availability.bounds(cluster, asked)
            away = self._availability.away
            await self._check_expression(
                cluster, [queue for queue in self._queues if queue.broker not in away]
            )
        self._bounds_until = trio.current_time() + self._settings.offset_refresh_interval
        return self._bounds


def _from_earliest(settings: SparkOptions) -> bool:
    """Whether a new query begins at the first messages.

    Asking again never moves that beginning past messages that can be read.
    """
    timed = (
        settings.starting_timestamp is not None
        or settings.starting_offsets_by_timestamp is not None
    )
    return settings.starting_offsets is Edge.EARLIEST and not timed
