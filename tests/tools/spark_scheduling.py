"""Tasks that Spark starts a second time, and executors that come and go, for
`tools.spark_modes`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.ports import free_port
from support.waiting import plain_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

PATIENCE = 240.0
SLOW = 30.0
"""Seconds for which the first try of a task stands still: longer than a second one
takes to start and to end.
"""
SPECULATION = {
    "spark.executor.memory": "1g",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}
ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """A cluster of Spark's own with two workers of one core, which Spark takes for two
    machines: it never starts the second try of a task where the first one is running.

    Gives the address of its master.
    """
    port = free_port()
    start = [f"{os.environ['SPARK_HOME']}/bin/spark-class"]
    named = "org.apache.spark.deploy"
    parts = [("127.0.0.1", [f"{named}.master.Master", "--port", str(port)])]
    for host in ("127.0.0.2", "127.0.0.3"):
        room = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / host)]
        parts.append((host, [f"{named}.worker.Worker", *room, f"spark://127.0.0.1:{port}"]))
    with ExitStack() as stack:
        for host, what in parts:
            process = subprocess.Popen(
                [*start, what[0], "--host", host, "--webui-port", "0", *what[1:]],
                env={**os.environ, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            plain_until(lambda: _listens(port), "the master does not start", PATIENCE)
        yield f"spark://127.0.0.1:{port}"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def cluster_session(master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    """A session with executors in processes of their own."""
    from pyspark.sql import SparkSession

    from rocketmq_sdk.spark import register

    builder: Any = SparkSession.builder.master(master).appName("spark-modes")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    work = Path(os.environ["SPARK_HOME"]) / "work" / spark.sparkContext.applicationId
    try:
        spark.sparkContext.setLogLevel("OFF")
        register(spark)
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


def count_executors(spark: SparkSession) -> int:
    """How many executors there are now."""
    context: Any = spark.sparkContext
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def stumbling(spark: SparkSession, rows: int, marks: Path) -> DataFrame:
    """Rows for the sink in eight tasks. The first try of the last of them stands still
    in its middle, so Spark starts it once more elsewhere; each try leaves a mark.
    """

    def make(number: int, _: Iterable[int]) -> Iterator[tuple[str]]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        attempt = context.attemptNumber()
        (marks / f"{number}-{attempt}").touch()
        own = range(number * rows // 8, (number + 1) * rows // 8)
        for done, row in enumerate(own):
            if number == 7 and attempt == 0 and done == len(own) // 2:
                time.sleep(SLOW)
            yield (f"{row:0200}",)  # long, so that no buffer on the way holds all of it

    rdd: Any = spark.sparkContext.parallelize(range(8), 8).mapPartitionsWithIndex(make)
    return spark.createDataFrame(rdd, "body STRING")
