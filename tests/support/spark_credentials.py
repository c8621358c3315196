"""A program that gives Spark keys in all ways there are, and lets it write down and say
all it can: `python -m support.spark_credentials ORDER`.

Everything that succeeds and everything that fails is printed; `ORDER` is JSON with
namesrv, topic, credentials, level and a directory for the rest.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PATIENCE = 200


class Listener(StreamingQueryListener):
    """Prints all that Spark tells about queries."""

    def onQueryStarted(self, event: Any) -> None:
        print("listener: started", event.name, flush=True)

    def onQueryProgress(self, event: Any) -> None:
        print("listener:", event.progress.json, flush=True)

    def onQueryIdle(self, event: Any) -> None:
        print("listener: idle", flush=True)

    def onQueryTerminated(self, event: Any) -> None:
        print("listener: ended", event.exception, flush=True)


def fails(what: str, call: Callable[[], object]) -> None:
    """Print an error that has to come, with its traceback's text."""
    try:
        call()
    except PySparkException as error:
        print(f"failed as it should, {what}: {error}", flush=True)
    else:
        raise AssertionError(f"{what} did not fail")


def batches(spark: SparkSession, options: dict[str, str], topic: str) -> None:
    """Writes and reads that succeed, plans, and failures of plans and tasks."""
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS body")
    sink: dict[str, str] = {**options, "topic": topic}
    rows.write.format("rocketmq").options(**sink).mode("append").save()
    frame = spark.read.format("rocketmq").options(subscribe=topic, **options).load()
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.where("queueId >= 0").explain(mode=mode)
    print("rows read:", frame.count(), frame)
    bad = spark.range(3).selectExpr("IF(id = 1, NULL, 'x') AS body").coalesce(1)
    fails("a bad row", lambda: bad.write.format("rocketmq").options(**sink).mode("append").save())
    fails(
        "a plan",
        lambda: (
            spark.read.format("rocketmq")
            .options(subscribe=f"{topic}-missing", **options)
            .load()
            .count()
        ),
    )
    fails(
        "an option",
        lambda: spark.read.format("rocketmq").options(subscrib=topic, **options).load().count(),
    )
    nobody = {**options, "namesrvAddr": "127.0.0.1:1", "retryTimeout": "500ms"}
    fails(
        "a name server",
        lambda: spark.read.format("rocketmq").options(subscribe=topic, **nobody).load().count(),
    )
    fails(
        "a sink",
        lambda: (
            rows.write.format("rocketmq")
            .options(**{**nobody, "topic": topic})
            .mode("append")
            .save()
        ),
    )


def streams(spark: SparkSession, options: dict[str, str], topic: str, directory: Path) -> None:
    """A stream with state to files, one from topic to topic, one that fails."""
    from rocketmq_sdk.spark import deduplicated

    def source(**more: str) -> Any:
        return (
            spark.readStream.format("rocketmq")
            .options(**{**options, "subscribe": topic, "startingOffsets": "earliest", **more})
            .load()
        )

    def run(frame: Any, name: str, form: str, **more: str) -> None:
        writer = (
            frame.writeStream.format(form)
            .queryName(name)
            .options(checkpointLocation=str(directory / "checkpoints" / name), **more)
        )
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE), f"the stream {name} takes too long"
        query.explain(extended=True)
        print(
            "progress:", query.lastProgress, query.recentProgress, query.status, query, flush=True
        )

    run(
        deduplicated(source(maxOffsetsPerTrigger="60"), within="10 minutes").select("body"),
        "state",
        "parquet",
        path=str(directory / "files"),
    )
    run(source().select("body"), "copy", "rocketmq", topic=f"{topic}-copy", **options)
    fails("a stream", lambda: run(source(assign='{"x":{"y":[0]}}'), "failing", "noop"))


def statements(spark: SparkSession, options: dict[str, str], topic: str) -> None:
    """A view by SQL, whose text has the keys in it. Logging is at its default: Spark's
    parser tells each statement as it is when it debugs.
    """
    spark.sparkContext.setLogLevel("INFO")
    given = ", ".join(
        f"{name} '{value}'" for name, value in {**options, "subscribe": topic}.items()
    )
    spark.sql(f"CREATE TEMPORARY VIEW rows USING rocketmq OPTIONS ({given})")
    spark.sql("EXPLAIN EXTENDED SELECT count(*) FROM rows").show(truncate=False)
    print("rows by SQL:", spark.sql("SELECT count(*) FROM rows").collect())
    spark.sql("DESCRIBE EXTENDED rows").show(100, truncate=False)
    spark.sql(f"CREATE TABLE kept USING rocketmq OPTIONS ({given})")
    fails("a table", lambda: spark.table("kept").count())


def session(events: Path, warehouse: Path) -> SparkSession:
    """A session that is not made by `local_session`, which would name the Python of its
    workers.
    """
    from pyspark.sql import SparkSession

    from rocketmq_sdk.spark import register, use_packaged_java

    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        use_packaged_java()
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    builder: Any = SparkSession.builder.master("local")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    register(made)
    return made


def main() -> None:
    """All of it."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    directory = Path(order["directory"])
    events = directory / "events"
    events.mkdir(parents=True)
    spark = session(events, directory / "warehouse")
    spark.sparkContext.setLogLevel(order["level"])
    spark.streams.addListener(Listener())
    options = {"namesrvAddr": order["namesrv"], **order["credentials"]}
    batches(spark, options, order["topic"])
    streams(spark, options, order["topic"], directory)
    statements(spark, options, order["topic"])
    spark.stop()
    print("all done", flush=True)


if __name__ == "__main__":
    main()
