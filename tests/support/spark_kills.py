"""Streams that are killed with everything that belongs to them, driver and JVM, and go
on from their checkpoints; what came out is counted.

Run as a program this is the process that is killed; `rounds` is the parent that kills
it.
"""

from __future__ import annotations

import functools
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
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import trio

from rocketmq_sdk import Admin, Message, Producer, PullConsumer
from rocketmq_sdk.spark.schema import DEDUP_PROPERTY
from support.paths import TESTS
from support.processes import PATIENCE as PATIENT
from support.processes import BrokerProcess, broker_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketmq_sdk.model.queue import MessageQueue

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
    log: Path | None = None,
) -> Outcome:
    """Kill a process with streams to files and to topics `kills` times; the target
    `shuffled` has a shuffle before its sink. The second of two brokers hangs and is
    restarted at random meanwhile. `tell` gets a line for each life, and one for each
    that begins again; what the lives log is added to the file `log`.
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
        run = functools.partial(_run, order, tell, log)
        killed, began = 0, time.monotonic()
        with trouble or nullcontext():
            for number in range(1, kills + 1):
                killed += run(chance.uniform(0.2, 2.5), PATIENCE)
                troubles = "" if trouble is None else f", {trouble.times} troubles"
                tell(f"life {number}: {killed} killed, {time.monotonic() - began:.0f} s{troubles}")
        run(None, PATIENCE + rows / SLOWEST)
        tell(f"the last life ended, {time.monotonic() - began:.0f} s")
        found = Outcome(rows, killed, 0 if trouble is None else trouble.times)
        found.file_rows, found.file_distinct = rows_of_files(directory / "files")
        for target in targets:
            counted = trio.run(count_topic, broker.namesrv, f"target-{target}")
            found.topic_rows[target], found.topic_distinct[target] = counted[:2]
            found.topic_deduplicated[target] = counted[2]
        tell(f"everything is counted, {time.monotonic() - began:.0f} s")
        return found


def committed_files(directory: Path) -> list[Path]:
    """The files of a stream, as its log names them: those of batches that were killed
    lie beside them.
    """
    log = [path for path in (directory / "_spark_metadata").iterdir() if path.name[0].isdigit()]
    numbers = {int(path.name.partition(".")[0]): path for path in log}
    whole = max((n for n, path in numbers.items() if path.suffix == ".compact"), default=0)
    found: list[Path] = []
    for number in sorted(numbers):
        if number >= whole:
            lines = numbers[number].read_text().splitlines()
            assert lines[0] == "v1", lines[0]
            found += [directory / json.loads(line)["path"].rpartition("/")[2] for line in lines[1:]]
    return found


def rows_of_files(directory: Path) -> tuple[int, int]:
    """How many rows the files of a stream have, and how many different bodies."""
    parts = [pq.read_table(path, columns=["body"])["body"] for path in committed_files(directory)]
    bodies = pa.chunked_array(chain.from_iterable(part.chunks for part in parts), pa.binary())
    return len(bodies), pc.count_distinct(bodies).as_py()


async def count_topic(namesrv: str, topic: str) -> tuple[int, int, int]:
    """How many messages a topic has, how many different bodies, and how many are left
    when those with the same dedup id count once. Read by the client, without Spark.
    """
    rows, bodies, ids = 0, set[bytes](), set[int]()

    async def count(queue: MessageQueue) -> None:
        nonlocal rows
        offset, end = 0, await consumer.end_offset(queue)
        while offset < end:
            found = await consumer.pull(queue, offset, max_messages=2048, timeout=PATIENCE)
            for message in found.messages:
                rows += 1
                bodies.add(message.body)
                ids.add(hash(message.properties[DEDUP_PROPERTY]))
            assert found.next_begin_offset > offset, found
            offset = found.next_begin_offset

    async with PullConsumer("counter", namesrv=namesrv) as consumer:
        queues = await consumer.message_queues(topic)
        async with trio.open_nursery() as nursery:
            for queue in queues:
                nursery.start_soon(count, queue)
    return rows, len(bodies), len(ids)


def _run(
    order: dict[str, Any],
    tell: Callable[[str], object],
    log: Path | None,
    kill_after: float | None,
    patience: float,
    more: int = ANEW,
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
        json.dumps(order),
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
            reasons = [reason for reason in OF_SPARK if reason in text]
            if more > 0 and reasons:
                tell(f"a life begins again: {reasons[0]}")
                return _run(order, tell, log, kill_after, patience, more - 1)
            if code:
                raise AssertionError(f"a life ended by itself with {code}: {text[-3000:]}")
            return False
        finally:
            watchdog.cancel()
            if child.stdout is not None:
                child.stdout.close()
            if log is not None:
                errors.seek(0)
                with log.open("a") as whole:
                    whole.write(f"--- a life, killed after {kill_after} s\n{errors.read()}")


def begun(query: Any) -> None:
    """Wait until a query has its planner, or is over: those of several that start at
    the same moment take longer than Spark waits for a process, on a machine of two
    cores.
    """
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(0.05)


def main(order: dict[str, Any]) -> None:
    """A life: all streams from where they were."""
    from rocketmq_sdk.spark import local_session

    spark = local_session(
        spark__driver__memory="768m",
        spark__driver__extraJavaOptions="-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        spark__python__authenticate__socketTimeout="200s",
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
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
