"""The sink: each task sends its rows and returns when all are acknowledged.

At least once: a task that runs again sends again.

Spark plans and commits each write in processes that it starts for that, so what only
tasks need is imported where they begin.
"""

from __future__ import annotations

import logging
import os
import uuid
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.write.input_schema import check_columns
from rocketmq_sdk.spark.write.send_plan import SendPlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rocketmq_sdk.spark.options.settings import SparkOptions
    from rocketmq_sdk.spark.write.rows import RowMaker
    from rocketmq_sdk.spark.write.sending import Tally

logger = logging.getLogger("rocketmq_sdk.spark")
_AGAIN: Final = "a task that runs again sends all of them again, with the same dedup ids"


class WriteError(RocketMQError):
    """A task could not write its rows.

    The text tells how many were acknowledged, and how many have an unknown outcome.
    """


class Written(WriterCommitMessage):
    """What a task did."""

    def __init__(self, partition: int, tally: Tally, skipped: int, first_skipped: str) -> None:
        self.partition = partition
        self.rows = tally.acknowledged
        self.size = tally.size
        self.skipped = skipped
        self.first_skipped = first_skipped
        self.weak = tally.weak
        self.ends = tally.ends


class TaskWriter:
    """Writes the rows of one task.

    What writers of both kinds pickle for their tasks.
    """

    def __init__(self, settings: SparkOptions, schema: StructType) -> None:
        self._columns = check_columns(
            [(field.name, field.dataType.simpleString()) for field in schema.fields],
            topic_is_given=settings.topic is not None,
        )
        self._topic: str | None = settings.topic
        self._scope: str | None = settings.dedup_scope
        self._batch: str | None = settings.dedup_batch
        self._job = uuid.uuid4().hex
        self._plan = SendPlan.of(settings, ClusterAccess.of(settings))

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Send all rows.

        Raises `BadRowError`, or `WriteError` with what is known about the task's rows.
        """
        from pyspark import TaskContext

        from rocketmq_sdk.spark.cluster.retry import whole_text
        from rocketmq_sdk.spark.write.rows import BadRowError
        from rocketmq_sdk.spark.write.sending import Tally

        context: Any = TaskContext.get()
        partition = context.partitionId()
        maker = self._maker(partition, self._scope_of(context))
        tally = Tally()
        try:
            self._send(maker, batches, tally)
        except BadRowError as error:
            raise error.told(f"{tally}; {_AGAIN}") from None
        except RocketMQError as error:
            raise WriteError(
                f"partition {partition}: {whole_text(error)}. {tally}; {_AGAIN}"
            ) from error
        first = maker.first_skipped or tally.first_skipped or ""
        return Written(partition, tally, maker.skipped + tally.skipped, str(first))

    def _maker(self, partition: int, scope: str) -> RowMaker:
        from rocketmq_sdk.client.identity import local_ip
        from rocketmq_sdk.clock import SystemClock
        from rocketmq_sdk.model.route import pack_host
        from rocketmq_sdk.protocol.message_id import UniqueIdGenerator
        from rocketmq_sdk.spark.write.rows import RowMaker

        plan = self._plan
        ip = pack_host(local_ip(plan.connection.namesrv.split(";")), 0)[:-4]
        return RowMaker(
            self._columns,
            topic=self._topic,
            scope=scope,
            partition=partition,
            max_body=plan.max_body,
            skip_bad=plan.skip_bad,
            next_ids=UniqueIdGenerator(ip, os.getpid(), SystemClock()).next_ids,
            alone=plan.batch_size == 1,
        )

    def wait_until_visible(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Wait until the queues of the brokers hold the rows of all tasks."""
        from rocketmq_sdk.spark.cluster import bridge
        from rocketmq_sdk.spark.write.visible import merged, until_visible

        ends = merged(message.ends for message in messages if isinstance(message, Written))
        if ends:
            bridge.run(until_visible, self._plan.connection, ends)

    def _scope_of(self, context: Any) -> str:
        """What the ids of this write begin with.

        The scope and the batch that the options name; else query and batch of a stream,
        also inside of `foreachBatch`; else the job. Spark Connect and new threads do
        not tell the query, so there a scope must come with its batch.
        """
        if self._scope is not None and self._batch is not None:
            return f"{self._scope}:{self._batch}"
        query, batch = (
            context.getLocalProperty("sql.streaming.queryId"),
            context.getLocalProperty("streaming.sql.batchId"),
        )
        if query and batch is not None:
            return f"{query}:{batch}:{self._scope}" if self._scope else f"{query}:{batch}"
        if self._scope is not None:
            raise ConfigurationError(
                f"dedupScope {self._scope!r} without dedupBatch would give equal rows of "
                "different batches the same id: Spark names no query and batch here, as in "
                "Spark Connect, in threads of foreachBatch and in batch jobs. Give dedupBatch "
                "as well, or use in_batch(writer, batch_id, scope=...)"
            )
        return self._job

    def _send(self, maker: RowMaker, batches: Iterator[pa.RecordBatch], tally: Tally) -> None:
        import trio

        from rocketmq_sdk.spark.cluster import bridge
        from rocketmq_sdk.spark.write.sending import send_all

        send, receive = trio.open_memory_channel[Any](1)
        with bridge.Job(send_all, receive, self._plan, tally) as job:
            try:
                for batch in batches:
                    for part in maker.parts(batch):
                        bridge.run(send.send, part)
                bridge.run(send.aclose)
            except trio.BrokenResourceError:
                job.result()  # the sender has failed; this raises why
                raise
            job.result()


def _told(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Log what was written and what was skipped, once for a batch.

    Spark takes no metrics from sinks in Python.
    """
    written = [message for message in messages if isinstance(message, Written)]
    logger.info(
        "%s: %d rows of %d tasks were acknowledged, %d bytes",
        what,
        sum(message.rows for message in written),
        len(written),
        sum(message.size for message in written),
    )
    skipped = sum(message.skipped for message in written)
    if skipped:
        first = next(message.first_skipped for message in written if message.skipped)
        logger.warning(
            "%s: %d rows were skipped (onBadRow=skip); the first: %s", what, skipped, first
        )
    weak = sum(message.weak for message in written)
    if weak:
        logger.warning(
            "%s: %d rows are stored, but the broker could not flush or copy them in time",
            what,
            weak,
        )


class BatchWriter(DataSourceArrowWriter):
    """Writer of `df.write`; mode append only."""

    def __init__(self, settings: SparkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError("a topic cannot be overwritten; write with .mode('append')")
        self._tasks = TaskWriter(settings, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task."""
        return self._tasks.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done; returns when a batch that is read now sees their rows."""
        _told(messages, "write")
        self._tasks.wait_until_visible(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The job failed; what its tasks sent stays sent."""
        sent = sum(message.rows for message in messages if isinstance(message, Written))
        logger.warning(
            "the write failed; tasks that were done had sent %d rows, which stay in the topic", sent
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of `df.writeStream`.

    Output mode complete sends the whole result in each batch.
    """

    def __init__(self, settings: SparkOptions, schema: StructType, *, complete: bool) -> None:
        self._complete = complete
        self._tasks = TaskWriter(settings, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task."""
        return self._tasks.write(iterator)

    # Spark's name.
    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """All tasks of a batch are done."""
        if self._complete and batchId == 0:
            logger.warning(
                "output mode complete sends the whole result again in each batch; the last row of "
                "a key counts"
            )
        _told(messages, f"batch {batchId}")

    # Spark's name.
    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """A batch failed; what its tasks sent stays sent.

        It is sent again with the same dedup ids when the query is restarted.
        """
        sent = sum(message.rows for message in messages if isinstance(message, Written))
        logger.warning(
            "batch %d failed; tasks that were done had sent %d rows, which stay in the topic",
            batchId,
            sent,
        )
