"""The streaming source.

One instance plans a query in a process of its own; another one, pickled, reads in the
workers.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.options.parsing import overruled
from rocketmq_sdk.spark.plan.offsets import MOST_OFFSET, BatchEnd, from_json, to_json
from rocketmq_sdk.spark.plan.ranges import plan, ranges_between
from rocketmq_sdk.spark.read.batch import Ranges, TaskReader, ranges_of
from rocketmq_sdk.spark.read.broker_offsets import BrokerOffsets
from rocketmq_sdk.spark.read.planner import StreamPlanner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from rocketmq_sdk.spark.options.settings import SparkOptions
    from rocketmq_sdk.spark.plan.offsets import Offsets
    from rocketmq_sdk.spark.schema import Column

logger = logging.getLogger("rocketmq_sdk.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of `spark.readStream`; opens nothing before Spark asks for offsets."""

    def __init__(
        self, settings: SparkOptions, columns: Sequence[Column], default_tasks: int
    ) -> None:
        self._settings = settings
        self._tasks = TaskReader(settings, columns)
        self._default_tasks = default_tasks
        self._planner: StreamPlanner | None = None
        self._broker_offsets: BrokerOffsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What workers need: the options, nothing of the state of planning."""
        return {**self.__dict__, "_planner": None, "_broker_offsets": None}

    def _plans(self) -> StreamPlanner:
        if self._planner is None:
            for told in overruled(self._settings):
                logger.warning("%s", told)
            self._planner = StreamPlanner(self._settings, self._default_tasks)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        return to_json(bridge.run(self._plans().initial))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends.

        `start` is completed, so it is what brokers are told. It is handed back as it is
        when there is nothing to do, because Spark compares offsets as text.
        """
        offsets = from_json(start, source="the checkpoint's offsets")
        self._publish(offsets)
        everything = isinstance(limit, ReadAllAvailable)
        end = bridge.run(functools.partial(self._plans().next_end, everything=everything), offsets)
        return start if end is None else end.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of the options, for Spark to show and to hand back.

        With `Trigger.Once` Spark asks for all that is there instead, which is how that
        trigger is known. So there is always a limit.
        """
        return ReadMaxRows(self._settings.max_offsets_per_trigger or MOST_OFFSET)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The ends of the queues, from which progress tells the lag, and metrics."""
        plans = self._plans()
        ends = to_json(bridge.run(plans.latest))
        return {"m": plans.metrics, **ends}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Freeze the ends; limits still cut what lies before them into batches."""
        bridge.run(self._plans().freeze)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Ranges]:
        """The tasks of a batch, from nothing but its start and end."""
        stop = BatchEnd.from_json(end, source="the end of a batch")
        begins = self._plans().begins(from_json(start, source="the start of a batch"), stop)
        tasks = stop.tasks or self._settings.partitioning(self._default_tasks)
        return [Ranges(task) for task in plan(ranges_between(begins, stop.offsets), tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task.

        Raises `DataLossError`, `GoneError` or `UnreachableError`.
        """
        return self._tasks.read(ranges_of(partition))

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is complete."""
        self._publish(from_json(end, source="the end of a batch"))

    def stop(self) -> None:
        """Does nothing: connections close when idle, or with the process."""

    def _publish(self, offsets: Offsets) -> None:
        if not self._settings.commit_offsets_to_broker:
            return
        if self._broker_offsets is None:
            self._broker_offsets = BrokerOffsets(self._settings)
        bridge.run(self._broker_offsets.write, offsets)
