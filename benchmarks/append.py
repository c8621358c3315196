"""Encoding records and putting them into the store, beside a bare loop.

Also the cost of a put as the store grows: message by message with one key for all, and
by runs, as of messages that arrived together, with a key for each and their index.
"""

from __future__ import annotations

import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from benchmarks.baselines import bare_append
from benchmarks.sending import BODY
from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.clock import SystemClock, TrioClock
from rocketmq_sdk.protocol.message_codec import encode_record
from rocketmq_sdk.protocol.message_id import UniqueIdGenerator
from rocketmq_sdk.remoting.channel import TOGETHER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.harness import Report
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
PROPERTIES = "UNIQ_KEY\x017F000001000000000000000000000001\x02WAIT\x01true\x02"
GROWN = 2_000_000
QUEUES = 8


def message(queue_id: int = 0) -> MessageToStore:
    """A message of 100 bytes as a send handler makes it."""
    return MessageToStore(
        "append", queue_id, BODY, PROPERTIES, born_timestamp=1_700_000_000_000, born_host=HOST
    )


def encode_rate(count: int) -> float:
    """Records encoded per second."""
    topic, properties = b"append", PROPERTIES.encode()
    begin = time.perf_counter()
    for number in range(count):
        encode_record(
            topic,
            BODY,
            properties,
            queue_id=0,
            flag=0,
            queue_offset=number,
            physical_offset=number,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            born_host=HOST,
            store_timestamp=1_700_000_000_000,
            store_host=HOST,
            reconsume_times=0,
            prepared_offset=0,
        )
    return count / (time.perf_counter() - begin)


def put_rate(store: MessageStore, count: int) -> float:
    """Puts per second, spread over the queues."""
    put = store.put
    begin = time.perf_counter()
    for number in range(count):
        put(message(number % QUEUES))
    return count / (time.perf_counter() - begin)


class Runs:
    """Puts messages into a store by runs, each with a unique key, and indexes them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._ids = UniqueIdGenerator(HOST[:4], 1, TrioClock())
        self._later: list[Callable[[], None]] = []
        store.put_off(answered=lambda _call: False, idle=self._put_off)
        for queue_id in range(QUEUES):
            store.put(message(queue_id))  # a run goes into queues that are there

    def _put_off(self, call: Callable[[], None]) -> bool:
        self._later.append(call)
        return True

    def rate(self, count: int) -> float:
        """Messages put and indexed per second, spread over the queues."""
        properties = [
            b"UNIQ_KEY\x01%b\x02WAIT\x01true\x02" % unique.encode()
            for unique in self._ids.next_ids(count)
        ]
        index, done = self._store._index, 0
        begin = time.perf_counter()
        while done < count:
            stored = self._put(properties[done : done + TOGETHER])
            if not stored:  # the next one makes the log grow
                self._store.put(message())
            done += stored
            later, self._later = self._later, []
            for call in later:
                call()
            if index.pending > 4 * TOGETHER:  # it goes on to another file, as a flush does
                index.drain()
        return count / (time.perf_counter() - begin)

    def _put(self, properties: Sequence[bytes]) -> int:
        run = self._store.begin_run()
        if run is None:
            raise RuntimeError("the store takes no run")
        lanes = [lane for queue_id in range(QUEUES) if (lane := run.lane("append", queue_id))]
        run.messages = [
            (lane, BODY, text, 1_700_000_000_000, (0, 0, 0, 0), 0)
            for lane, text in zip(cycle(lanes), properties, strict=False)
        ]
        return self._store.put_run(run, HOST)


async def grow_by_runs(files: FileSystem, name: str, report: Report, scale: float) -> None:
    """A store that grows by runs of messages with keys of their own."""
    async with MessageStore(StoreConfig(), files, TrioClock(), HOST) as store:
        runs = Runs(store)
        runs.rate(10_000)
        first = f"put by runs with index, {name}, 10,000 stored"
        report.add(first, "/s", runs.rate(20_000))
        stored = int(GROWN * scale)
        for _ in range(30_000, stored, 100_000):
            runs.rate(100_000)
            await trio.lowlevel.checkpoint()
        grown = f"put by runs with index, {name}, {stored:,} stored"
        report.add(grown, "/s", runs.rate(20_000), first)


async def _measure(files: FileSystem, name: str, report: Report, scale: float) -> None:
    async with MessageStore(StoreConfig(), files, TrioClock(), HOST) as store:
        put_rate(store, 10_000)
        small = put_rate(store, 20_000)
        report.add(f"put, {name}, 10,000 stored", "/s", small, "bare pack, crc and copy")
        stored = int(GROWN * scale)
        for _ in range(30_000, stored, 100_000):
            put_rate(store, 100_000)
            await trio.lowlevel.checkpoint()
        report.add(
            f"put, {name}, {stored:,} stored",
            "/s",
            put_rate(store, 20_000),
            f"put, {name}, 10,000 stored",
        )


def run(report: Report, scale: float) -> None:
    """One round."""
    report.add("bare pack, crc and copy", "/s", bare_append(int(300_000 * scale)))
    report.add(
        "encode a record", "/s", encode_rate(int(300_000 * scale)), "bare pack, crc and copy"
    )
    clock = SystemClock()
    begin = time.perf_counter()
    for _ in range(100_000):
        clock.now_ms()
    report.add("read the clock", "/s", 100_000 / (time.perf_counter() - begin))
    for grow in (_measure, grow_by_runs):
        trio.run(grow, MemoryFileSystem(4 * 1024**3), "memory", report, scale)
        with tempfile.TemporaryDirectory(prefix="rocketmq-bench-") as directory:
            trio.run(grow, OsFileSystem(Path(directory)), "disk", report, scale)
