"""Writes inside of `foreachBatch`, options that come from elsewhere, and namespaces, in
a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from rocketmq_sdk.spark import deduplicated, register
from support.waiting import unique

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.processes import BrokerProcess

pytestmark = [pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(300)]


def test_ids_of_writes_in_foreach_batch_begin_with_query_batch_and_scope(
    spark: SparkSession,
    broker: BrokerProcess,
    fill: Callable[..., None],
    read: Callable[..., DataFrame],
    topic: str,
    tmp_path: Path,
) -> None:
    """Both writes have the same rows; without a scope of their own each row of the
    second one would count as a double of the first.
    """
    fill(topic, [b"%d" % number for number in range(20)])
    target = unique("target")

    def send(frame: DataFrame, _batch: int) -> None:
        for scope in ("one", "two"):
            options = {"namesrvAddr": broker.namesrv, "topic": target, "dedupScope": scope}
            frame.select("body").write.format("rocketmq").options(**options).mode("append").save()

    options = {
        "namesrvAddr": broker.namesrv,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "12",
    }
    stream = spark.readStream.format("rocketmq").options(**options).load()
    writer = stream.writeStream.foreachBatch(send).option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    rows = read(target).collect()
    assert len(rows) == len({row.dedupId for row in rows}) == 40
    assert deduplicated(read(target)).count() == 40
    starts = {tuple(row.dedupId.split(":")[:3]) for row in rows}
    assert starts == {
        (str(query.id), batch, scope) for batch in ("0", "1") for scope in ("one", "two")
    }


def test_a_namespace_is_in_the_topic_and_not_in_the_column(
    spark: SparkSession, broker: BrokerProcess, read: Callable[..., DataFrame], topic: str
) -> None:
    options = {"namesrvAddr": broker.namesrv, "topic": topic, "namespace": "tenant"}
    spark.createDataFrame([("inside",)], "body string").write.format("rocketmq").options(
        **options
    ).mode("append").save()
    for found, shown in (
        (read(topic, namespace="tenant"), topic),
        (read(f"tenant%{topic}"), f"tenant%{topic}"),
    ):
        assert [(row.topic, bytes(row.body)) for row in found.collect()] == [(shown, b"inside")]
    with pytest.raises(AnalysisException, match=f"the topic '{topic}' does not exist"):
        read(topic).count()


def test_the_name_server_of_the_environment_may_be_set_after_the_session_began(
    spark: SparkSession,
    broker: BrokerProcess,
    fill: Callable[..., None],
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The processes that Spark plans in have the environment of the JVM, which was
    started before.
    """
    fill(topic, [b"one"])
    frame = spark.read.format("rocketmq").option("subscribe", topic)
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv)
    register(spark)
    assert frame.load().count() == 1
    monkeypatch.delenv("NAMESRV_ADDR")
    register(spark)
    with pytest.raises(AnalysisException, match="give the option namesrvAddr, or set NAMESRV_ADDR"):
        frame.load().count()


def test_a_column_that_an_option_leaves_out(read: Callable[..., DataFrame], topic: str) -> None:
    with pytest.raises(
        AnalysisException,
        match="includeProperties is false, but the schema has the column properties",
    ):
        read(
            topic, schema="body BINARY, properties MAP<STRING,STRING>", includeProperties="false"
        ).count()
