"""Where the batches of a stream begin and end.

This is the state of the process that plans a query.

Spark hands out completed offsets and writes down planned ones, so all that has to
survive is in offsets. What is kept here may be lost at any moment: ends that were just
asked for, the beginning of a new query, whose turn it is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.view import Bounds, ClusterView
from rocketmq_sdk.spark.options.values import Edge
from rocketmq_sdk.spark.plan.limits import Gate, limited, waiting
from rocketmq_sdk.spark.plan.loss import GoneError
from rocketmq_sdk.spark.read.edges import starts

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from rocketmq_sdk.spark.options.parsing import SparkOptions
    from rocketmq_sdk.spark.plan.offsets import QueueKey

logger = logging.getLogger("rocketmq_sdk.spark")
DISCOVERY_SECONDS: Final = 5.0
"""How old the list of queues may be."""
AWAY_SECONDS: Final = 1.0
"""How often is asked whether a broker is back."""


class StreamPlanner:
    """Plans the batches of one run of a query, in the trio thread of its process."""

    def __init__(self, settings: SparkOptions) -> None:
        self._settings = settings
        self._connection = ClusterAccess.of(settings)
        self._queues: list[QueueKey] = []
        self._queues_until = float("-inf")
        self._bounds: dict[QueueKey, Bounds] = {}
        self._bounds_until = float("-inf")
        self._initial: dict[QueueKey, int] | None = None
        self._anchor: dict[QueueKey, int] | None = None
        self._anchored = False
        self._checked: set[tuple[str, str]] = set()
        self._away: frozenset[str] = frozenset()
        self._away_until = float("-inf")
        self._frozen: dict[QueueKey, Bounds] | None = None
        self._warned: set[str] = set()
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

    async def next_end(self, start: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """Where the batch that begins at `start` ends; `start` with nothing to do.

        A new query whose beginning is not the first message first writes that down by
        an empty batch. If its first batch failed before it was committed, Spark would
        ask for the beginning again, and latest would be later then.

        Queues that are new enter with their earliest offset for the same reason. Raises
        `GoneError` for queues that end before `start` and for topics that are gone,
        unless `failOnDataLoss` is false.
        """
        if self._anchor is not None:
            anchor, self._anchor = self._anchor, None
            if anchor == start:
                return dict(start)
        bounds, away = await self._settled(start)
        kept = self._kept(start, bounds, away)
        new = {queue: place.begin for queue, place in bounds.items() if queue not in start}
        if new or len(kept) < len(start):
            return {**kept, **new}
        end = {
            queue: offset if queue in away else bounds[queue].end for queue, offset in kept.items()
        }
        if (
            self._gate is not None
            and self._frozen is None
            and not self._gate.opens(waiting(start, end), trio.current_time())
        ):
            return dict(start)
        if self._settings.max_offsets_per_trigger is not None:
            end = limited(start, end, self._settings.max_offsets_per_trigger, turn=self._turn)
            self._turn += end != start
        return end

    def begins(
        self, start: Mapping[QueueKey, int], end: Mapping[QueueKey, int]
    ) -> dict[QueueKey, int]:
        """Where the queues of a planned batch begin.

        A queue that only its end knows enters there, with nothing to be read before it.

        The one exception is a first batch that is planned again from earliest, while a
        broker that took part in it is away: that reads from the first message, or
        fails, but leaves nothing out.
        """
        if self._initial is not None and not self._anchored and start == self._initial:
            return dict(start)
        return {**end, **start}

    async def _settled(
        self, start: Mapping[QueueKey, int]
    ) -> tuple[dict[QueueKey, Bounds], set[QueueKey]]:
        """Bounds of all queues, and the queues whose broker is away.

        Nothing can be said about the latter.

        A broker that restarts takes its queues out of all routes for a while; that is
        no loss of data. It is waited for within `retryTimeout`, or with
        `failOnDataLoss` false its queues stand still until it is back. Raises
        `UnreachableError` when it does not come back in time.
        """
        bounds = self._frozen if self._frozen is not None else await self._current()
        suspects = [
            queue
            for queue, offset in start.items()
            if (queue not in bounds or bounds[queue].end < offset) and self._is_wanted(queue)
        ]
        if not suspects:
            return bounds, set()
        await self._look_for(suspects)
        if self._away:
            away = {queue for queue in suspects if queue.broker in self._away}
            self._warn(
                f"the brokers {', '.join(sorted(self._away))} are away; their queues stand still"
            )
            return bounds, away
        self._queues_until = self._bounds_until = float("-inf")
        fresh = await self._current()
        if self._frozen is None:
            return fresh, set()
        self._frozen = {
            **self._frozen,
            **{queue: fresh[queue] for queue in suspects if queue in fresh},
        }
        return self._frozen, set()

    async def _look_for(self, queues: list[QueueKey]) -> None:
        """Find out which brokers of some queues have no master.

        Unless `failOnDataLoss` is false, wait until all of them have one.
        """
        if trio.current_time() < self._away_until:
            return
        async with bridge.client(self._connection) as client:
            cluster = ClusterView(client, self._settings)
            if self._settings.fail_on_data_loss:
                await cluster.wait_for_masters(queues)
            self._away = frozenset(await cluster.without_master({queue.broker for queue in queues}))
        self._away_until = trio.current_time() + (AWAY_SECONDS if self._away else 0)

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
        self,
        start: Mapping[QueueKey, int],
        bounds: Mapping[QueueKey, Bounds],
        away: Container[QueueKey],
    ) -> dict[QueueKey, int]:
        """The queues of `start` that go on."""
        kept: dict[QueueKey, int] = {}
        for queue, offset in start.items():
            place = bounds.get(queue)
            if queue in away:
                kept[queue] = offset
                continue
            if place is None:
                if self._is_wanted(queue):
                    self._lost(GoneError(queue, offset, 0))
                else:
                    self._warn(
                        f"{queue} is no longer subscribed to; its offset {offset} is forgotten"
                    )
                continue
            if place.end < offset:
                self._lost(GoneError(queue, offset, place.end))
            kept[queue] = offset
        return kept

    def _is_wanted(self, queue: QueueKey) -> bool:
        import re

        settings = self._settings
        if settings.assign is not None:
            return queue in settings.assign
        if settings.subscribe is not None:
            return queue.topic in settings.subscribe
        return re.fullmatch(settings.subscribe_pattern, queue.topic) is not None

    def _lost(self, error: GoneError) -> None:
        if self._settings.fail_on_data_loss:
            raise error
        self._warn(f"failOnDataLoss is false: {error}")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            logger.warning("%s", text)

    async def _current(self) -> dict[QueueKey, Bounds]:
        """Begin and end of all queues, not older than `offsetRefreshInterval`."""
        now = trio.current_time()
        if now < self._bounds_until:
            return self._bounds
        async with bridge.client(self._connection) as client:
            cluster = ClusterView(client, self._settings)
            if now >= self._queues_until:
                self._queues = await cluster.queues(must_exist=False)
                self._tell_missing_topics()
                await self._check_expression(cluster, self._queues)
                self._queues_until = trio.current_time() + DISCOVERY_SECONDS
            self._bounds = await cluster.bounds(self._queues)
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
