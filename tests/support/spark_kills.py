"""Streams that are killed with everything that belongs to them, driver and JVM, and go
on from their checkpoints; what came out is counted.

Run as a program this is the process that is killed; `rounds` is the parent that kills
it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs
import trio

from rocketmq_sdk import Admin, Message, Producer
from support.paths import TESTS
from support.processes import PATIENCE as PATIENT
from support.processes import BrokerProcess, broker_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 800.0
"""Seconds that a life may take on a machine that is busy with other things; the last
one gets more, by its rows and `SLOWEST`.
"""
SLOWEST = 2_000
"""Rows per second that even a busy machine reads and writes."""
LIMITS: dict[str, object] = {
    "maxTransferCountOnMessageInMemory": 2048,
    "maxTransferBytesOnMessageInMemory": 1 << 20,
}
OF_SPARK = (
    "Python worker failed to connect back",
    "CANNOT_OPEN_SOCKET",
    "java.io.OptionalDataException",
)
"""What Spark itself ends a query with, so that the life begins again: Python took
longer than 10 s to start, which cannot be changed; the driver took rows too slowly; or
two queries of a new session began at the same moment, and the task of one was written
while the other changed a map that both share.
"""
ANEW = 12
"""How often a life may begin again for such a reason."""


@attrs.define
class Outcome:
    """What a run gave: rows in the files, distinct ones among them, the same for the
    topics written to.
    """

    rows: int
    kills: int
    troubles: int = 0
    """How often the second broker hung or was restarted."""
    file_rows: int = 0
    file_distinct: int = 0
    topic_rows: dict[str, int] = attrs.field(factory=dict)
    topic_distinct: dict[str, int] = attrs.field(factory=dict)
    topic_deduplicated: dict[str, int] = attrs.field(factory=dict)


async def _fill(namesrv: str, topic: str, rows: int) -> None:
    async with (
        Producer("filler", namesrv=namesrv, send_timeout=PATIENCE) as producer,
        trio.open_nursery() as nursery,
    ):
        limiter = trio.CapacityLimiter(8)

        async def send(begin: int) -> None:
            async with limiter:
                await producer.send_batch(
                    [
                        Message(topic, b"%d" % number)
                        for number in range(begin, min(begin + 500, rows))
                    ]
                )

        for begin in range(0, rows, 500):
            nursery.start_soon(send, begin)


class Trouble:
    """A broker that hangs or is restarted at random while the block lasts."""

    def __init__(self, broker: BrokerProcess, chance: random.Random) -> None:
        self._broker = broker
        self._chance = chance
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.times = 0
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            while not self._over.wait(self._chance.uniform(0.5, 6)):
                self.times += 1
                assert self._broker.process is not None
                if self._chance.random() < 0.6:
                    self._broker.process.send_signal(signal.SIGSTOP)
                    self._over.wait(self._chance.uniform(0.5, 8))
                    self._broker.process.send_signal(signal.SIGCONT)
                else:
                    self._broker.signal(signal.SIGTERM)
                    self._over.wait(self._chance.uniform(0, 5))
                    self._broker.start()
        except BaseException as error:  # noqa: BLE001 - raised at the end of the block
            self.failure = error

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure


@contextmanager
def _second(namesrv: str, store: Path, chance: random.Random) -> Iterator[Trouble]:
    """A second broker of the cluster, and the trouble with it."""
    second = BrokerProcess(
        store, settings={**PATIENT, **LIMITS, "namesrvAddr": namesrv, "brokerName": "broker-b"}
    )
    second.start()
    try:
        yield Trouble(second, chance)
    finally:
        if second.process is not None:
            second.kill()


async def _create(namesrv: str, topic: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        await admin.topics.create(topic, queues=4)


def rounds(
    rows: int,
    kills: int,
    seed: int,
    *,
    targets: tuple[str, ...] = ("plain",),
    brokers: int = 1,
    tell: Callable[[str], object] = str,
) -> Outcome:
    """Kill a process with streams to files and to topics `kills` times; the target
    `shuffled` has a shuffle before its sink. The second of two brokers hangs and is
    restarted at random meanwhile. `tell` gets a line for each life.
    """
    chance = random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="rocketmq-kills-") as text,
        broker_process(Path(text) / "store", **LIMITS) as broker,
        ExitStack() as stack,
    ):
        directory = Path(text)
        trouble = None
        if brokers > 1:
            trouble = stack.enter_context(_second(broker.namesrv, directory / "store-b", chance))
        for topic in ("source", *(f"target-{target}" for target in targets)):
            trio.run(_create, broker.namesrv, topic)
        trio.run(_fill, broker.namesrv, "source", rows)
        order = {
            "namesrv": broker.namesrv,
            "directory": text,
            # A life may end one batch of each stream, and there must be some for all.
            "limit": max(rows // max(12, 2 * kills), 100),
            "targets": targets,
        }
        killed, began = 0, time.monotonic()
        with trouble or nullcontext():
            for number in range(1, kills + 1):
                killed += _run(order, chance.uniform(0.2, 2.5), PATIENCE)
                troubles = "" if trouble is None else f", {trouble.times} troubles"
                tell(f"life {number}: {killed} killed, {time.monotonic() - began:.0f} s{troubles}")
        _run(order, None, PATIENCE + rows / SLOWEST)
        tell(f"the last life ended, {time.monotonic() - began:.0f} s")
        counts = json.loads((directory / "outcome.json").read_text())
        return Outcome(rows, killed, 0 if trouble is None else trouble.times, **counts)


def _run(
    order: dict[str, Any], kill_after: float | None, patience: float, more: int = ANEW
) -> bool:
    """One life: killed some time after its first progress, or to its end; whether it
    was killed so. It may not take longer than `patience`.
    """
    tests = str(TESTS)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [tests, str(Path(tests).parent), os.environ.get("PYTHONPATH", "")]
        ),
    }
    command = [
        sys.executable,
        "-m",
        "support.spark_kills",
        json.dumps({**order, "count": kill_after is None}),
    ]
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            start_new_session=True,
        )
        watchdog = threading.Timer(patience, os.killpg, (child.pid, signal.SIGKILL))
        watchdog.start()
        try:
            assert child.stdout is not None
            for line in child.stdout:
                if kill_after is not None and line.startswith("progress"):
                    time.sleep(kill_after)
                    os.killpg(child.pid, signal.SIGKILL)
                    return child.wait() == -signal.SIGKILL
            code = child.wait()
            errors.seek(0)
            text = errors.read() if code else ""
            if more > 0 and any(reason in text for reason in OF_SPARK):
                return _run(order, kill_after, patience, more - 1)
            if code:
                raise AssertionError(f"a life ended by itself with {code}: {text[-3000:]}")
            return False
        finally:
            watchdog.cancel()
            if child.stdout is not None:
                child.stdout.close()


def begun(query: Any) -> None:
    """Wait until a query has its planner, or is over: those of several that start at
    the same moment take longer than Spark waits for a process, on a machine of two
    cores.
    """
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(0.05)


def main(order: dict[str, Any]) -> None:
    """A life: both streams from where they were; counts at the end of the last."""
    from rocketmq_sdk.spark import deduplicated, local_session

    spark = local_session(
        spark__driver__memory="768m", spark__python__authenticate__socketTimeout="200s"
    )
    spark.sparkContext.setLogLevel("OFF")
    directory, namesrv = Path(order["directory"]), order["namesrv"]
    queries = []
    source = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("subscribe", "source")
    )
    frame = (
        source.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", order["limit"])
        .load()
    )
    files = (
        frame.select("body", "queueId", "queueOffset")
        .writeStream.format("parquet")
        .option("path", str(directory / "files"))
    )
    queries.append(
        files.option("checkpointLocation", str(directory / "check-files"))
        .trigger(availableNow=True)
        .start()
    )
    begun(queries[-1])
    for target in order["targets"]:
        rows = frame.select("body") if target == "plain" else frame.select("body").repartition(2)
        sink = (
            rows.writeStream.format("rocketmq")
            .option("namesrvAddr", namesrv)
            .option("topic", f"target-{target}")
        )
        queries.append(
            sink.option("checkpointLocation", str(directory / f"check-{target}"))
            .trigger(availableNow=True)
            .start()
        )
        begun(queries[-1])
    told = 0
    while any(query.isActive for query in queries):
        done = sum(
            1 for query in queries for progress in query.recentProgress if progress["numInputRows"]
        )
        if done > told:
            told = done
            print(f"progress {done}", flush=True)
        time.sleep(0.05)
    for query in queries:
        query.awaitTermination()
    if not order["count"]:
        return
    found = spark.read.parquet(str(directory / "files"))
    outcome: dict[str, Any] = {
        "file_rows": found.count(),
        "file_distinct": found.select("body").distinct().count(),
    }
    for name in ("topic_rows", "topic_distinct", "topic_deduplicated"):
        outcome[name] = {}
    for target in order["targets"]:
        written = (
            spark.read.format("rocketmq")
            .option("namesrvAddr", namesrv)
            .option("subscribe", f"target-{target}")
            .load()
        )
        outcome["topic_rows"][target] = written.count()
        outcome["topic_distinct"][target] = written.select("body").distinct().count()
        outcome["topic_deduplicated"][target] = deduplicated(written).count()
    (directory / "outcome.json").write_text(json.dumps(outcome))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
