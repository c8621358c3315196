"""The batch source.

Its plan is frozen when Spark asks for partitions; each task reads its ranges as record
batches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rocketmq_sdk.protocol.subscription import build_subscription
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.options.parsing import overruled
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

    def __init__(self, settings: SparkOptions, columns: Sequence[Column]) -> None:
        self._plan = PullPlan.of(settings, ClusterAccess.of(settings))
        self._columns = tuple(columns)
        self._namespace = settings.namespace

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """The rows of ranges; leaving the iterator early ends its pulls."""
        decoder = RowDecoder(self._columns, _exact_tags(self._plan), namespace=self._namespace)
        with bridge.Feed[Sequence[Piece]](pull_ranges, self._plan, ranges, ahead=1) as feed:
            for bundle in feed:
                missing = 0
                for piece in joined(bundle):
                    count = 0
                    for batch in decoder.batches(
                        piece.records,
                        piece.queue.broker,
                        begin=piece.begin,
                        end=piece.end,
                        offset_delta=piece.offset_delta,
                    ):
                        count += batch.num_rows
                        yield batch
                    if piece.count is not None:
                        missing += max(0, piece.count - count)
                if missing:
                    bridge.run(report_gaps, self._plan, bundle)


def _exact_tags(pulls: PullPlan) -> frozenset[str] | None:
    return (
        build_subscription("", pulls.expression, pulls.expression_type, sub_version=0).tags_set
        or None
    )


class BatchReader(DataSourceReader):
    """Reader of `spark.read`; opens nothing before Spark asks for partitions."""

    def __init__(
        self, settings: SparkOptions, columns: Sequence[Column], default_tasks: int
    ) -> None:
        self._settings = settings
        self._tasks = TaskReader(settings, columns)
        self._default_tasks = default_tasks

    def partitions(self) -> list[Ranges]:
        """The tasks, none of them empty.

        They depend on nothing but the ends of the queues now.
        """
        for told in overruled(self._settings):
            logger.warning("%s", told)
        ranges = bridge.run(batch_ranges, self._settings)
        return [
            Ranges(task) for task in plan(ranges, self._settings.partitioning(self._default_tasks))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task.

        Raises `DataLossError`, `GoneError` or `UnreachableError`.
        """
        return self._tasks.read(ranges_of(partition))
