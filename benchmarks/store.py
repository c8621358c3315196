"""The store beside bare loops.

Appends of two sizes, acknowledgements per sync, recovery, stalls of the event loop,
idle queues, a clean start.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
import tracemalloc
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType, StoreConfig
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutStatus
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.protocol.message_codec import encode_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness import Report

Result = TypeVar("Result")
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
PROPERTIES = "UNIQ_KEY\x017F000001000000000000000000000001\x02"
RECORD = struct.Struct(">iiiiiqqiqQqQiqi")
SIZES = {"1 KiB": 1024, "64 KiB": 65_536}
SYNC_SECONDS = 0.005
MEBIBYTE = 1024 * 1024


def message(body: bytes, queue_id: int = 0, topic: str = "bench") -> MessageToStore:
    """A message as a send handler makes it."""
    return MessageToStore(
        topic, queue_id, body, PROPERTIES, born_timestamp=1_700_000_000_000, born_host=HOST
    )


def bare_loop(body: bytes, count: int) -> float:
    """Records per second of pack, CRC and copy."""
    buffer = bytearray(64 * MEBIBYTE)
    pack, crc32, rest = RECORD.pack, zlib.crc32, b"\x05bench\x00\x2a" + PROPERTIES.encode()
    position = 0
    begin = time.perf_counter()
    for number in range(count):
        record = b"".join(
            (
                pack(
                    0,
                    -626843481,
                    crc32(body) & 0x7FFFFFFF,
                    0,
                    0,
                    number,
                    position,
                    0,
                    1,
                    2,
                    3,
                    4,
                    0,
                    0,
                    len(body),
                ),
                body,
                rest,
            )
        )
        end = position + len(record)
        if end > len(buffer):
            position, end = 0, len(record)
        buffer[position:end] = record
        position = end
    return count / (time.perf_counter() - begin)


def log_rate(root: Path, body: bytes, count: int) -> float:
    """Records per second into the log alone, encoded there.

    They reach the operating system 16 at a time, as requests that arrived together do.
    """
    files = OsFileSystem(root)
    files.lock()
    log = CommitLog(files, StoreConfig())
    log.start_at(0)
    properties, store_time = PROPERTIES.encode(), 1_700_000_000_000
    begin = time.perf_counter()
    log.write_through = False
    for number in range(count):
        position = log.position
        record = encode_record(
            b"bench",
            body,
            properties,
            queue_id=0,
            flag=0,
            queue_offset=number,
            physical_offset=position,
            sys_flag=0,
            born_timestamp=store_time,
            born_host=HOST,
            store_timestamp=store_time,
            store_host=HOST,
            reconsume_times=0,
            prepared_offset=0,
        )
        if position + len(record) + 8 > log.limit:
            log.make_room(len(record))
        log.append(record, position + len(record))
        if not number & 15:
            log.write_out()
    log.write_out()
    elapsed = time.perf_counter() - begin
    log.close()
    files.unlock()
    return count / elapsed


async def put_rate(root: Path, body: bytes, count: int) -> float:
    """Whole puts per second, with queues and index."""
    async with MessageStore(StoreConfig(), OsFileSystem(root), TrioClock(), HOST) as store:
        begin = time.perf_counter()
        for number in range(count):
            if not number & 15:
                store.begin()
            store.put(message(body, number & 7))
            if number & 15 == 15:
                store.end()
            if not number & 1023:
                await trio.lowlevel.checkpoint()
        store.end()
        return count / (time.perf_counter() - begin)


class SlowDisk(MemoryFileSystem):
    """Memory whose syncs take their time, and are counted."""

    def __init__(self) -> None:
        super().__init__(write_through=True)
        self.waits = 0

    async def run(self, operation: Callable[[], Result]) -> Result:
        self.waits += 1
        await trio.sleep(SYNC_SECONDS)
        return operation()


async def acknowledged_per_sync(in_flight: int, seconds: float) -> float:
    """Messages acknowledged for each sync of the log, divided by those in flight."""
    files = SlowDisk()
    config = StoreConfig(
        flush_disk_type=FlushDiskType.SYNC_FLUSH, flush_interval_consume_queue=3_600_000
    )
    acknowledged = 0
    async with MessageStore(config, files, TrioClock(), HOST) as store:
        files.waits = 0

        async def sender() -> None:
            nonlocal acknowledged
            while True:
                if await store.wait_durable(store.put(message(b"x" * 100))) is PutStatus.PUT_OK:
                    acknowledged += 1

        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for _ in range(in_flight):
                    nursery.start_soon(sender)
        return acknowledged / max(1, files.waits) / in_flight


async def recovery_rate(root: Path, megabytes: int, *, rebuild: bool) -> float:
    """Megabytes of log read per second at a start that has to, bodies of 1 KiB."""
    body = os.urandom(1024)
    # Little hot memory, a log of one file: what is measured is the reading.
    config = StoreConfig(mapped_file_size_commit_log=max(64, 2 * megabytes) * MEBIBYTE)
    async with MessageStore(config, OsFileSystem(root), TrioClock(), HOST) as store:
        while store.max_physical_offset < megabytes * MEBIBYTE:
            for number in range(512):
                store.put(message(body, number & 7))
            await trio.lowlevel.checkpoint()
        end = store.max_physical_offset
    files = OsFileSystem(root)
    if rebuild:
        files.write("abort", b"")
        files.remove_tree("consumequeue")
        files.remove_tree("index")
    else:
        files.remove("cleanStop.json")
    begin = time.perf_counter()
    async with MessageStore(config, OsFileSystem(root), TrioClock(), HOST) as store:
        elapsed = time.perf_counter() - begin
        assert store.max_physical_offset == end
    return end / MEBIBYTE / elapsed


async def stalls(root: Path, flush: FlushDiskType, seconds: float) -> list[float]:
    """How many milliseconds late a task that wakes each millisecond is.

    Meanwhile 100 MB are appended per second and synced.
    """
    late: list[float] = []
    body = os.urandom(16_384)
    config = StoreConfig(flush_disk_type=flush, mapped_file_size_commit_log=256 * MEBIBYTE)
    async with (
        MessageStore(config, OsFileSystem(root), TrioClock(), HOST) as store,
        trio.open_nursery() as nursery,
    ):

        async def beat() -> None:
            while True:
                due = time.perf_counter() + 0.001
                await trio.sleep(0.001)
                late.append((time.perf_counter() - due) * 1e3)

        nursery.start_soon(beat)
        begin = time.perf_counter()
        sent = 0
        while (now := time.perf_counter() - begin) < seconds:
            while sent < now * 100e6:
                store.put(message(body, sent & 7))
                sent += len(body)
                if not sent // len(body) % 8:
                    await trio.lowlevel.checkpoint()
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    return sorted(late)


async def bytes_per_queue(root: Path, queues: int) -> float:
    """Memory that a queue takes that nobody has used since the store was opened."""
    config = StoreConfig(mapped_file_size_consume_queue=2000, message_index_enable=False)
    async with MessageStore(config, OsFileSystem(root), TrioClock(), HOST) as store:
        for number in range(queues):
            store.put(message(b"x", number % 100, f"topic{number // 100}"))
        await store.flush()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        async with MessageStore(config, OsFileSystem(root), TrioClock(), HOST) as store:
            assert store.statistics()["queues"] == queues
            return (tracemalloc.get_traced_memory()[0] - before) / queues
    finally:
        tracemalloc.stop()


async def clean_start(root: Path, megabytes: int) -> float:
    """Seconds to open a store that was closed, with a last file of the full size."""
    body = bytes(60_000)
    async with MessageStore(StoreConfig(), OsFileSystem(root), TrioClock(), HOST) as store:
        while store.max_physical_offset < megabytes * MEBIBYTE:
            store.put(message(body))
            await trio.lowlevel.checkpoint()
    begin = time.perf_counter()
    async with MessageStore(StoreConfig(), OsFileSystem(root), TrioClock(), HOST):
        return time.perf_counter() - begin


def _fresh(measure: Callable[..., Any], *arguments: Any) -> Any:
    """Measure in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="rocketmq-store-bench-") as home:
        return measure(Path(home), *arguments)


def run(report: Report, scale: float) -> None:
    """One round."""
    for name, size in SIZES.items():
        body = os.urandom(size)
        count = max(200, int(200_000 * scale * 1024 / size))
        report.add(f"bare loop, {name}", "/s", bare_loop(body, count))
        report.add(
            f"append to the log, {name}", "/s", _fresh(log_rate, body, count), f"bare loop, {name}"
        )
        puts = _fresh(
            lambda home, payload, number: trio.run(put_rate, home, payload, number), body, count
        )
        report.add(f"put with queues and index, {name}", "/s", puts, f"bare loop, {name}")
    report.add(
        "acknowledged per sync and sender, 64 in flight",
        "",
        trio.run(acknowledged_per_sync, 64, max(0.5, 3 * scale)),
    )
    megabytes = max(16, int(256 * scale))
    scan = _fresh(lambda home: trio.run(lambda: recovery_rate(home, megabytes, rebuild=False)))
    report.add("recovery, scanning", "MB/s", scan)
    report.add(
        "recovery, queues and index built again",
        "MB/s",
        _fresh(lambda home: trio.run(lambda: recovery_rate(home, megabytes, rebuild=True))),
    )
    for flush in FlushDiskType:
        late = _fresh(lambda home, kind: trio.run(stalls, home, kind, max(1.0, 5 * scale)), flush)
        report.add(
            f"stall of the loop at 100 MB/s, p99.9, {flush.value}",
            "ms",
            late[int(len(late) * 0.999)],
        )
        report.add(f"stall of the loop at 100 MB/s, longest, {flush.value}", "ms", late[-1])
    queues = max(500, int(10_000 * scale))
    report.add(
        "memory of an idle queue",
        "bytes",
        _fresh(lambda home: trio.run(bytes_per_queue, home, queues)),
    )
    full = max(16, int(1000 * scale))
    report.add(
        f"clean start, {full} MiB in the last file",
        "ms",
        1e3 * _fresh(lambda home: trio.run(clean_start, home, full)),
    )
