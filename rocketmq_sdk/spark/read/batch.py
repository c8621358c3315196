"""The batch source.

Its plan is frozen when Spark asks for partitions; each task reads its ranges as record
batches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rocketmq_sdk.protocol.subscription import build_subscription
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.options.parsing import overruled
from rocketmq_sdk.spark.plan.conditions import ANYTHING, Conditions
from rocketmq_sdk.spark.plan.ranges import Range, plan
from rocketmq_sdk.spark.read.edges import batch_ranges
from rocketmq_sdk.spark.read.gaps import report_gaps
from rocketmq_sdk.spark.read.pulls import Piece, PullPlan, joined, pull_ranges
from rocketmq_sdk.spark.rows.decoder import RowDecoder

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketmq_sdk.spark.options.settings import SparkOptions
    from rocketmq_sdk.spark.schema import Column

logger = logging.getLogger("rocketmq_sdk.spark")


class Ranges(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


def ranges_of(partition: InputPartition) -> Sequence[Range]:
    """The ranges of a partition.

    Spark makes a bare one of its own where there is nothing to read.
    """
    return partition.ranges if isinstance(partition, Ranges) else ()


class TaskReader:
    """Reads ranges in a worker; what readers of both kinds pickle for their tasks."""

    def __init__(
        self,
        settings: SparkOptions,
        columns: Sequence[Column],
        conditions: Conditions = ANYTHING,
    ) -> None:
        self.plan = PullPlan.of(settings, ClusterAccess.of(settings))
        if conditions.tags is not None:
            self.plan = _of_tags(self.plan, conditions.tags)
        self._columns = tuple(columns)
        self._times = conditions.times
        self._namespace = settings.namespace

    def decoder(self) -> RowDecoder:
        """What makes rows of pieces."""
        return RowDecoder(
            self._columns,
            exact_tags(self.plan),
            times=self._times,
            namespace=self._namespace,
            bears_damage=not self.plan.fail_on_data_loss,
        )

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """The rows of ranges; leaving the iterator early ends its pulls."""
        decoder = self.decoder()
        with bridge.Feed[Sequence[Piece]](pull_ranges, self.plan, ranges, ahead=2) as feed:
            for bundle in feed:
                missing = 0
                for piece in joined(bundle):
                    yield from decoder.batches(
                        piece.records,
                        piece.queue.broker,
                        begin=piece.begin,
                        end=piece.end,
                        offset_delta=piece.offset_delta,
                        starts=piece.starts,
                    )
                    if piece.count is not None:
                        missing += max(0, piece.count - decoder.meant)
                if missing:
                    bridge.run(report_gaps, self.plan, bundle)


def exact_tags(pulls: PullPlan) -> frozenset[str] | None:
    """The only tags that a read gives, None where it gives any."""
    if pulls.expression_type != "TAG":
        return None
    return build_subscription("", pulls.expression, "TAG", sub_version=0).tags_set or None


def _of_tags(pulls: PullPlan, tags: frozenset[str]) -> PullPlan:
    """The plan that asks for some tags only; unchanged where none is left of them."""
    known = exact_tags(pulls)
    left = tags if known is None else tags & known
    return attrs.evolve(pulls, expression=" || ".join(sorted(left))) if left else pulls


class BatchReader(DataSourceReader):
    """Reader of `spark.read`; opens nothing before Spark asks for partitions."""

    def __init__(
        self, settings: SparkOptions, columns: Sequence[Column], default_tasks: int
    ) -> None:
        self._settings = settings
        self._columns = tuple(columns)
        self._default_tasks = default_tasks
        self._conditions = ANYTHING
        self._tasks = TaskReader(settings, columns)

    @property
    def tags_can_be_asked_for(self) -> bool:
        """Whether conditions may name tags."""
        return self._settings.filter_type == "TAG"

    def keep_to(self, conditions: Conditions) -> None:
        """Give only rows that fit conditions."""
        known = exact_tags(self._tasks.plan)
        if known is not None and conditions.tags is not None:
            conditions = attrs.evolve(conditions, tags=conditions.tags & known)
        self._conditions = conditions
        self._tasks = TaskReader(self._settings, self._columns, conditions)

    def partitions(self) -> list[Ranges]:
        """The tasks, none of them empty.

        They depend on nothing but the ends of the queues now.
        """
        for told in overruled(self._settings):
            logger.warning("%s", told)
        ranges = bridge.run(batch_ranges, self._settings, self._conditions)
        return [
            Ranges(task) for task in plan(ranges, self._settings.partitioning(self._default_tasks))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task.

        Raises `DataLossError`, `GoneError` or `UnreachableError`.
        """
        return self._tasks.read(ranges_of(partition))
