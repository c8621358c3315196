"""What the driver tells about a write: rows that were skipped, results that are sent
again; and what a batch that is not appended is answered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import OptionError, Use
from rocketmq_sdk.spark.write.sending import Tally
from rocketmq_sdk.spark.write.writer import BatchWriter, StreamWriter, TaskWriter, Written

if TYPE_CHECKING:
    from rocketmq_sdk.spark.options.settings import SparkOptions

SCHEMA = StructType.fromJson(
    {
        "type": "struct",
        "fields": [{"name": "body", "type": "binary", "nullable": True, "metadata": {}}],
    }
)


def settings(**options: str) -> SparkOptions:
    return parse({"namesrvAddr": "127.0.0.1:9876", "topic": "T", **options}, Use.SINK)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_skipped_rows_are_told_once_for_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    writer = StreamWriter(settings(onBadRow="skip"), SCHEMA, complete=False)
    messages: list[Any] = [
        Written(0, Tally(), 0, ""),
        Written(1, Tally(acknowledged=5), 2, "row 3 of partition 1"),
        None,
        Written(2, Tally(), 1, ""),
    ]
    with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
        writer.commit(messages, 7)
        writer.commit([Written(0, Tally(acknowledged=5), 0, "")], 8)
    assert logged(caplog) == [
        "batch 7: 3 rows were skipped (onBadRow=skip); the first: row 3 of partition 1"
    ]


def test_what_a_batch_wrote_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Spark takes no metrics from sinks in Python."""
    tasks: list[Any] = [
        Written(0, Tally(acknowledged=5, size=70), 0, ""),
        None,
        Written(2, Tally(acknowledged=1, size=9), 0, ""),
    ]
    with caplog.at_level(logging.INFO, "rocketmq_sdk.spark"):
        StreamWriter(settings(), SCHEMA, complete=False).commit(tasks, 7)
        BatchWriter(settings(), SCHEMA, overwrite=False).commit(tasks[:1])
    assert logged(caplog) == [
        "batch 7: 6 rows of 2 tasks were acknowledged, 79 bytes",
        "write: 5 rows of 1 tasks were acknowledged, 70 bytes",
    ]


def test_rows_that_a_broker_could_not_flush_in_time_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
        BatchWriter(settings(), SCHEMA, overwrite=False).commit(
            [Written(0, Tally(acknowledged=5, weak=4), 0, "")]
        )
    assert logged(caplog) == [
        "write: 4 rows are stored, but the broker could not flush or copy them in time"
    ]


def test_a_complete_result_is_told_to_be_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    writer = StreamWriter(settings(), SCHEMA, complete=True)
    with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
        writer.commit([], 0)
        writer.commit([], 1)
    assert logged(caplog) == [
        (
            "output mode complete sends the whole result again in each batch; the last row of a "
            "key "
            "counts"
        )
    ]


def test_what_stays_of_a_failed_write_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
        BatchWriter(settings(), SCHEMA, overwrite=False).abort(
            [Written(0, Tally(acknowledged=9), 0, ""), None]
        )
        StreamWriter(settings(), SCHEMA, complete=False).abort([None, None], 3)
    assert logged(caplog) == [
        "the write failed; tasks that were done had sent 9 rows, which stay in the topic",
        "batch 3 failed; tasks that were done had sent 0 rows, which stay in the topic",
    ]
    with pytest.raises(ConfigurationError, match="a topic cannot be overwritten"):
        BatchWriter(settings(), SCHEMA, overwrite=True)


class Told:
    """The local properties of a task."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


IN_A_QUERY = Told(**{"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"})


def scope(context: Told, **options: str) -> str:
    return TaskWriter(settings(**options), SCHEMA)._scope_of(context)


def test_ids_begin_with_query_and_batch_or_with_the_scope_and_batch_of_the_options() -> None:
    assert scope(IN_A_QUERY) == "q:7"
    assert scope(IN_A_QUERY, dedupScope="one") == "q:7:one"
    both = {"dedupScope": "one", "dedupBatch": "8"}
    assert scope(IN_A_QUERY, **both) == scope(Told(), **both) == "one:8"


def test_a_scope_alone_means_nothing_where_spark_names_no_batch() -> None:
    """As in Spark Connect: equal rows of different batches would have one id."""
    with pytest.raises(ConfigurationError, match=r"dedupScope 'one' .* in_batch\(writer"):
        scope(Told(), dedupScope="one")
    first, second = (TaskWriter(settings(), SCHEMA)._scope_of(Told()) for _ in range(2))
    assert first != second, "each job has an id of its own"
    with pytest.raises(OptionError, match="dedupBatch only counts beside dedupScope"):
        settings(dedupBatch="8")
