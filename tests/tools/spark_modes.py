"""What is to be seen where Spark runs otherwise than in one JVM of one session:
executors of their own, Connect, tasks that are tried twice, executors that come and go,
declarative pipelines.

Run as a program this is such a session, `python -m tools.spark_modes MODE` in the
directory `tests` (MODE: local-cluster, local-cluster-tcp, connect, speculation,
allocation, pipelines or older-broker). Exit code 0 when everything was as it should be.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import rocketmq_sdk
from rocketmq_sdk import Admin, Message, Producer
from support.processes import BrokerProcess, broker_process
from support.waiting import plain_until
from tools.spark_declared import run_pipeline
from tools.spark_scheduling import (
    ALLOCATION,
    PATIENCE,
    SPECULATION,
    cluster_session,
    count_executors,
    standalone,
    stumbling,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

ROWS = 12_000
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.ui.showConsoleProgress": "false",
}


def told(text: str) -> None:
    """Say what was seen."""
    print(f"  {text}", flush=True)


def numbers(spark: SparkSession, begin: int, end: int) -> DataFrame:
    """Rows for the sink, four tasks of them."""
    return spark.range(begin, end, 1, 4).selectExpr(
        "CAST(id AS STRING) AS body",
        "CONCAT('t', id % 3) AS tags",
        "ARRAY(CONCAT('k', id)) AS keys",
        "MAP('n', CAST(id AS STRING)) AS properties",
    )


def check(frame: DataFrame, count: int, *, doubles: bool = False) -> int:
    """The bodies are the numbers below `count`, each once unless `doubles`; how many
    rows there are.
    """
    body = "CAST(CAST(body AS STRING) AS BIGINT)"
    row: Any = frame.selectExpr(
        "COUNT(*) AS n",
        f"COUNT(DISTINCT {body}) AS d",
        f"MIN({body}) AS least",
        f"MAX({body}) AS most",
    ).first()
    assert (row.d, row.least, row.most) == (count, 0, count - 1), row
    assert doubles or row.n == count, row
    return int(row.n)


class Cluster:
    """Where topics are, as options."""

    def __init__(self, spark: SparkSession, namesrv: str) -> None:
        self._spark = spark
        self.namesrv = namesrv

    def read(self, topic: str, **options: Any) -> DataFrame:
        """A batch."""
        return (
            self._spark.read.format("rocketmq")
            .options(namesrvAddr=self.namesrv, subscribe=topic, **options)
            .load()
        )

    def stream(self, topic: str, **options: Any) -> DataFrame:
        """A stream from the first message."""
        given = {
            "namesrvAddr": self.namesrv,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **options,
        }
        return self._spark.readStream.format("rocketmq").options(**given).load()

    def write(self, frame: DataFrame, topic: str) -> None:
        """Append a frame to a topic."""
        frame.write.format("rocketmq").options(namesrvAddr=self.namesrv, topic=topic).mode(
            "append"
        ).save()

    def stored(self, topic: str) -> int:
        """How many messages a topic has."""

        async def ask() -> int:
            async with Admin(namesrv=self.namesrv) as admin:
                if not await admin.topics.exists(topic):
                    return 0
                return sum(
                    place.max_offset for place in (await admin.topics.offsets(topic)).values()
                )

        return trio.run(ask)


def batches(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    """Write, read, filter."""
    cluster.write(numbers(spark, 0, ROWS), topic)
    read = cluster.read(topic)
    check(read, ROWS)
    row: Any = read.where("CAST(body AS STRING) = '4711'").first()
    assert (row.topic, row.tags, row["keys"], row.properties) == (
        topic,
        "t1",
        ["k4711"],
        {"n": "4711"},
    ), row
    tagged = cluster.read(topic, subExpression="t0 || t2", numPartitions=3).count()
    assert tagged == ROWS // 3 * 2, tagged
    told(f"batch: {ROWS:,} rows written and read, {tagged:,} of them by their tags")


def _finish(writer: Any, directory: Path, name: str) -> Any:
    """Run a stream until it has read what was there; the query."""
    query = (
        writer.option("checkpointLocation", str(directory / f"check-{name}"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE), f"the stream {name} takes too long"
    assert query.exception() is None, query.exception()
    return query


def streams(spark: SparkSession, cluster: Cluster, topic: str, directory: Path) -> None:
    """A stream to files that goes on from its checkpoint, and one from topic to
    topic.
    """
    from rocketmq_sdk.spark import deduplicated, lag

    for end in (ROWS, 2 * ROWS):
        if end > ROWS:
            cluster.write(numbers(spark, ROWS, end), topic)
        frame = cluster.stream(topic, maxOffsetsPerTrigger=ROWS // 3).select(
            "body", "queueId", "queueOffset"
        )
        query = _finish(
            frame.writeStream.format("parquet").option("path", str(directory / "files")),
            directory,
            "files",
        )
        done = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        assert sum(done) == ROWS, done
        assert len(done) >= 3, done
        assert lag(query.lastProgress).total == 0, query.lastProgress
    check(spark.read.parquet(str(directory / "files")), 2 * ROWS)
    told(f"stream: {2 * ROWS:,} rows to files in two runs on one checkpoint, each row once")
    target = f"{topic}-copy"
    _finish(
        cluster.stream(topic)
        .writeStream.format("rocketmq")
        .options(namesrvAddr=cluster.namesrv, topic=target),
        directory,
        "copy",
    )
    check(deduplicated(cluster.read(target)), 2 * ROWS)
    frame = deduplicated(cluster.stream(target), within="10 minutes").select("body")
    _finish(
        frame.writeStream.format("parquet").option("path", str(directory / "distinct")),
        directory,
        "distinct",
    )
    check(spark.read.parquet(str(directory / "distinct")), 2 * ROWS)
    told(f"stream: {2 * ROWS:,} rows from topic to topic, and from there without doubles to files")


# --- executors of their own


def _worker(_partition: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Of a worker: its executor, and where the package came from."""
    import rocketmq_sdk

    time.sleep(0.3)  # long enough that no executor runs all of the tasks
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    yield int(daemon[1]), str(rocketmq_sdk.__file__)


def _executors(spark: SparkSession) -> list[int]:
    """The processes of both executors."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(_worker).collect())
        assert {home for _, home in found} == {str(rocketmq_sdk.__file__)}, found
        if len(found) == 2:
            return sorted(executor for executor, _ in found)
    raise AssertionError(f"only one executor takes part: {found}")


def _connections(address: str) -> dict[int, int]:
    """Connections to an address, by process, as the system has them (Linux)."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    wanted = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(port) and line[3] == "01"}
    found: Counter[int] = Counter()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                found[int(process.name)] += sum(
                    str(place.readlink()) in wanted for place in (process / "fd").iterdir()
                )
    return {process: number for process, number in found.items() if number}


def _lose_an_executor(spark: SparkSession, cluster: Cluster, topic: str, executor: int) -> None:
    """Kill an executor in the middle of a write: its tasks run again elsewhere, and
    nothing but doubles with equal ids comes of it.
    """
    from rocketmq_sdk.spark import deduplicated, register

    rows, failures = 8 * ROWS, list[BaseException]()

    def write() -> None:
        try:
            register(spark)  # this thread's session as well
            cluster.write(numbers(spark, 0, rows), topic)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    while not cluster.stored(topic) and writing.is_alive():
        time.sleep(0.01)
    before = cluster.stored(topic)
    os.kill(executor, signal.SIGKILL)
    writing.join(PATIENCE)
    assert not writing.is_alive(), "the write does not end"
    if failures:
        raise failures[0]
    assert before < rows, "everything was written before the executor was killed"
    doubles = check(cluster.read(topic), rows, doubles=True) - rows
    check(deduplicated(cluster.read(topic)), rows)
    told(
        f"an executor killed after {before:,} of {rows:,} rows: none missing, {doubles:,} twice, "
        "none of them when deduplicated"
    )


def _cluster(namesrv: str, broker: str, directory: Path, *, sockets: bool) -> None:
    sockets_of_spark = {"spark.python.unix.domain.socket.enabled": str(sockets).lower()}
    with cluster_session("local-cluster[2,1,1024]", {**SETTINGS, **sockets_of_spark}) as spark:
        executors = _executors(spark)
        told(
            f"two executors, {executors}; {'Unix sockets' if sockets else 'TCP'} between them and "
            "their workers"
        )
        cluster = Cluster(spark, namesrv)
        topic = f"cluster-{'unix' if sockets else 'tcp'}"
        batches(spark, cluster, topic)
        streams(spark, cluster, topic, directory)
        found = _connections(broker)
        assert found, "nobody is connected"
        assert max(found.values()) <= 2, found
        told(
            "connections to the broker afterwards, of a client and a producer in each process: "
            f"{sorted(found.values())}"
        )
        if sockets:
            _lose_an_executor(spark, cluster, f"{topic}-lost", executors[0])


# --- tasks tried twice, executors that come and go


def _speculation(namesrv: str, directory: Path) -> None:
    """The second try of a task sends what the first has sent, with the same ids."""
    from rocketmq_sdk.spark import deduplicated

    rows = 80_000
    with (
        standalone(directory) as master,
        cluster_session(master, {**SETTINGS, **SPECULATION}) as spark,
    ):
        plain_until(lambda: count_executors(spark) == 2, "the executors do not come", PATIENCE)
        cluster = Cluster(spark, namesrv)
        marks = directory / "marks"
        marks.mkdir()
        frame = stumbling(spark, rows, marks)
        cluster.write(frame, "speculation")
        tries = {mark.name for mark in marks.iterdir()}
        assert {f"{number}-0" for number in range(8)} | {"7-1"} <= tries, tries
        doubles = check(cluster.read("speculation"), rows, doubles=True) - rows
        assert doubles, "the first try had sent nothing yet"
        check(deduplicated(cluster.read("speculation")), rows)
        told(
            f"a task tried twice at the same time: none of {rows:,} rows missing, {doubles:,} "
            "twice, none of them when deduplicated"
        )
        read = cluster.stream("speculation").select("body", "queueId", "queueOffset")
        files = str(directory / "files")
        _finish(read.writeStream.format("parquet").option("path", files), directory, "files")
        assert check(spark.read.parquet(files), rows, doubles=True) == rows + doubles
        told(f"stream: {rows + doubles:,} rows to files, each once")


def _allocation(namesrv: str, directory: Path) -> None:
    """Plans and ids do not depend on how many executors there are."""
    with cluster_session("local-cluster[3,1,1024]", {**SETTINGS, **ALLOCATION}) as spark:
        cluster = Cluster(spark, namesrv)
        seen = [count_executors(spark)]
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.1):
                seen.append(count_executors(spark))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            batches(spark, cluster, "allocation")
            streams(spark, cluster, "allocation", directory)
            plain_until(
                lambda: count_executors(spark) == 1, "executors are not given back", PATIENCE
            )
        finally:
            over.set()
            watching.join()
        assert max(seen) > 1, "there was never more than one executor"
        told(f"executors came and went: between {min(seen)} and {max(seen)} of them")


def _pipelines(namesrv: str, directory: Path) -> None:
    """A declared table fed from a topic, a view of it, and a topic as a sink."""
    from rocketmq_sdk.spark.cluster import bridge
    from rocketmq_sdk.spark.options.parsing import parse
    from rocketmq_sdk.spark.options.table import Use
    from rocketmq_sdk.spark.read.batch import TaskReader
    from rocketmq_sdk.spark.read.edges import batch_ranges
    from rocketmq_sdk.spark.schema import COLUMNS

    async def fill(begin: int, end: int) -> None:
        async with Producer("declared", namesrv=namesrv) as producer:
            for number in range(begin, end, 100):
                await producer.send_batch(
                    [
                        Message("declared", b"%d" % each, tags=f"t{each % 3}")
                        for each in range(number, number + 100)
                    ]
                )

    def copied() -> list[int]:
        settings = parse({"namesrvAddr": namesrv, "subscribe": "declared-copy"}, Use.BATCH)
        parts = TaskReader(settings, COLUMNS).read(bridge.run(batch_ranges, settings))
        return sorted(int(body) for part in parts for body in part.column("body").to_pylist())

    done = 0
    for rows in (3_000, 4_000):
        trio.run(fill, done, rows)
        done = rows
        run_pipeline(directory, namesrv)
        found = copied()
        assert found == list(range(rows)), (len(found), found[:5])
        told(f"a declared pipeline: {rows:,} rows from a topic to a table and on to a topic")


# --- Connect


def _connect(namesrv: str, directory: Path) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    from rocketmq_sdk.spark import LagListener, register

    builder: Any = SparkSession.builder.remote("local[2]")
    for name, value in {**SETTINGS, "spark.python.unix.domain.socket.enabled": "true"}.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    try:
        assert type(spark).__module__ == "pyspark.sql.connect.session", type(spark)
        cluster = Cluster(spark, namesrv)
        cluster.write(numbers(spark, 0, 100), "found")
        spark.sql(
            f"CREATE TEMPORARY VIEW found USING rocketmq OPTIONS (namesrvAddr '{namesrv}', "
            "subscribe 'found')"
        )
        check(spark.table("found"), 100)
        told("found without being registered, in Python and SQL")
        register(spark)
        batches(spark, cluster, "connect")
        listener = LagListener()
        spark.streams.addListener(listener)
        streams(spark, cluster, "connect", directory)
        spark.streams.removeListener(listener)
        with pytest.raises(AnalysisException, match=r"(?i)subscribeTo"):
            cluster.read("connect", subscribeTo="x").count()
        told("an option that does not exist is refused with its name")
    finally:
        spark.stop()


# --- a broker of an older release


def _older_broker(_namesrv: str, directory: Path) -> None:
    """All of it against a broker that is to clients as Apache's 4.9.7."""
    older = BrokerProcess(None, command="test-broker", arguments=("--emulate", "4.9.7"))
    older.start()
    try:
        with cluster_session("local[2]", SETTINGS) as spark:
            cluster = Cluster(spark, older.namesrv)
            batches(spark, cluster, "older")
            streams(spark, cluster, "older", directory)
    finally:
        older.kill()


def _surroundings() -> None:
    """The Java of this machine, else the packaged one."""
    import pyspark

    from rocketmq_sdk.spark import use_packaged_java

    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        use_packaged_java()
    os.environ.setdefault("SPARK_HOME", str(Path(str(pyspark.__file__)).parent))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


MODES = {
    "connect": _connect,
    "speculation": _speculation,
    "allocation": _allocation,
    "pipelines": _pipelines,
    "older-broker": _older_broker,
}


def main(mode: str) -> None:
    """One session, whose workers are of this Python and start as those of
    `local_session`: Spark waits 10 s for them, on a busy machine too.
    """
    from rocketmq_sdk.spark.session import _unpacked_spark

    began = time.monotonic()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with (
        _unpacked_spark(),
        tempfile.TemporaryDirectory(prefix="rocketmq-spark-modes-") as directory,
        broker_process() as broker,
    ):
        _surroundings()
        if mode in MODES:
            MODES[mode](broker.namesrv, Path(directory))
        else:
            _cluster(
                broker.namesrv, broker.address, Path(directory), sockets=mode == "local-cluster"
            )
    told(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1])
