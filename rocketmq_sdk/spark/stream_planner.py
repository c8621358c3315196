"""Where the batches of a stream begin and end: the state of the process that plans a query.

Spark hands out completed offsets and writes down planned ones, so all that has to survive is in offsets. What is kept here may be lost at any moment:
ends that were just asked for, the beginning of a new query, whose turn it is.
"""

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.spark import bridge
from rocketmq_sdk.spark.cluster import Bounds, Cluster, starts
from rocketmq_sdk.spark.connection import Connection
from rocketmq_sdk.spark.limits import Gate, limited, waiting
from rocketmq_sdk.spark.option_values import Edge
from rocketmq_sdk.spark.pulls import GoneError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.spark.offsets import QueueKey
    from rocketmq_sdk.spark.options import Settings

logger = logging.getLogger("rocketmq_sdk.spark")
DISCOVERY_SECONDS: Final = 5.0
"""How old the list of queues may be."""


class StreamPlanner:
    """Plans the batches of one run of a query, in the trio thread of its process."""

    def __init__(self, settings: "Settings") -> None:
        self._settings = settings
        self._connection = Connection.of(settings)
        self._queues: list[QueueKey] = []
        self._queues_until = float("-inf")
        self._bounds: dict[QueueKey, Bounds] = {}
        self._bounds_until = float("-inf")
        self._initial: dict[QueueKey, int] | None = None
        self._anchor: dict[QueueKey, int] | None = None
        self._frozen: dict[QueueKey, Bounds] | None = None
        self._warned: set[str] = set()
        self._turn = 0
        least = settings.min_offsets_per_trigger
        self._gate = None if least is None else Gate(least, settings.max_trigger_delay)

    async def initial(self) -> "dict[QueueKey, int]":
        """Where a new query begins; the same answer however often it is asked in this run."""
        if self._initial is None:
            async with bridge.client(self._connection) as client:
                cluster = Cluster(client, self._settings)
                queues = await cluster.queues()
                await cluster.check_expression(queues)
                bounds = await cluster.bounds(queues)
                self._initial = await starts(cluster, self._settings, bounds, default=Edge.LATEST)
            if any(self._initial[queue] > bounds[queue].begin for queue in self._initial):
                self._anchor = self._initial
        return self._initial

    async def freeze(self) -> None:
        """Let the ends of now be the ends of the whole run (`Trigger.AvailableNow`)."""
        self._frozen = await self._current()

    async def latest(self) -> "dict[QueueKey, int]":
        """The ends of all queues, whatever limits say."""
        return {queue: place.end for queue, place in (self._frozen if self._frozen is not None else await self._current()).items()}

    async def next_end(self, start: "Mapping[QueueKey, int]") -> "dict[QueueKey, int]":
        """Where the batch that begins at `start` ends; `start` itself when there is nothing to do yet.

        A new query whose beginning is not the first message writes that down by an empty batch first: were its first batch to fail before it is
        committed, Spark would ask for the beginning again, and latest would be later then. Queues that are new enter with their earliest offset for
        the same reason. Raises `GoneError` for queues that end before `start` and for topics that are gone, unless `failOnDataLoss` is false.
        """
        if self._anchor is not None:
            anchor, self._anchor = self._anchor, None
            if anchor == start:
                return dict(start)
        bounds = self._frozen if self._frozen is not None else await self._current()
        kept = self._kept(start, bounds)
        new = {queue: place.begin for queue, place in bounds.items() if queue not in start}
        if new or len(kept) < len(start):
            return {**kept, **new}
        end = {queue: bounds[queue].end for queue in kept}
        if self._gate is not None and self._frozen is None and not self._gate.opens(waiting(start, end), trio.current_time()):
            return dict(start)
        if self._settings.max_offsets_per_trigger is not None:
            end = limited(start, end, self._settings.max_offsets_per_trigger, turn=self._turn)
            self._turn += end != start
        return end

    def _kept(self, start: "Mapping[QueueKey, int]", bounds: "Mapping[QueueKey, Bounds]") -> "dict[QueueKey, int]":
        """The queues of `start` that go on."""
        kept: dict[QueueKey, int] = {}
        for queue, offset in start.items():
            place = bounds.get(queue)
            if place is None:
                if self._is_wanted(queue):
                    self._lost(GoneError(queue, offset, 0))
                else:
                    self._warn(f"{queue} is no longer subscribed to; its offset {offset} is forgotten")
                continue
            if place.end < offset:
                self._lost(GoneError(queue, offset, place.end))
            kept[queue] = offset
        return kept

    def _is_wanted(self, queue: "QueueKey") -> bool:
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

    async def _current(self) -> "dict[QueueKey, Bounds]":
        """Begin and end of all queues, not older than `offsetRefreshInterval`."""
        now = trio.current_time()
        if now < self._bounds_until:
            return self._bounds
        async with bridge.client(self._connection) as client:
            cluster = Cluster(client, self._settings)
            if now >= self._queues_until:
                self._queues = await cluster.queues(must_exist=False)
                self._queues_until = trio.current_time() + DISCOVERY_SECONDS
            self._bounds = await cluster.bounds(self._queues)
        self._bounds_until = trio.current_time() + self._settings.offset_refresh_interval
        return self._bounds
