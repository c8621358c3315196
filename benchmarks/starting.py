"""Starts that have much to look at.

A clean start with 10,000 queues, and the first send after a kill to a log of 256 MiB of
records of 200 bytes, whole and with three damaged pages.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.clock import TrioClock

if TYPE_CHECKING:
    from benchmarks.harness import Report

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
PAGE = 4096
MEBIBYTE = 1024 * 1024
RECORD = 200


def small_message(topic: str, queue_id: int, number: int) -> MessageToStore:
    """A message whose record takes about 200 bytes."""
    properties = f"UNIQ_KEY\x01{number * 7919:032X}\x02WAIT\x01true\x02"
    return MessageToStore(topic, queue_id, b"x" * 50, properties, born_host=HOST)


async def fill_queues(root: Path, queues: int) -> None:
    """Make so many queues with a message each, eight to a topic."""
    async with MessageStore(StoreConfig(), OsFileSystem(root), TrioClock(), HOST) as store:
        for number in range(queues):
            assert store.put(small_message(f"topic{number // 8}", number % 8, number)).ok
            if number % 100 == 99:
                await trio.lowlevel.checkpoint()


async def fill_log(root: Path, size: int) -> None:
    """Write a log of so many bytes of small records, and leave it as a kill does."""
    async with MessageStore(StoreConfig(), OsFileSystem(root), TrioClock(), HOST) as store:
        number = 0
        while store.max_physical_offset < size:
            store.begin()
            for _ in range(500):
                store.put(small_message("small", number & 7, number))
                number += 1
            store.end()
            if not number % 5000:
                await trio.lowlevel.checkpoint()
    (root / "abort").write_text("1")


def damage_pages(root: Path, size: int) -> None:
    """Overwrite a page in each quarter of the log but the first."""
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        for quarter in (1, 2, 3):
            file.seek(size // 4 * quarter // PAGE * PAGE)
            file.write(b"\xa5" * PAGE)


async def first_send(root: Path) -> float:
    """Seconds until a store that is opened has taken a message."""
    begin = time.perf_counter()
    async with MessageStore(StoreConfig(), OsFileSystem(root), TrioClock(), HOST) as store:
        assert store.put(small_message("small", 0, 0)).ok
        return time.perf_counter() - begin


def run(report: Report, scale: float) -> None:
    """One round."""
    queues, size = max(500, int(10_000 * scale)), max(16, int(256 * scale)) * MEBIBYTE
    with tempfile.TemporaryDirectory(prefix="rocketmq-start-bench-") as home:
        root = Path(home, "queues")
        trio.run(fill_queues, root, queues)
        report.add(f"clean start with {queues:,} queues", "s", trio.run(first_send, root))
        shutil.rmtree(root)
        root = Path(home, "log")
        trio.run(fill_log, root, size)
        damaged = Path(home, "damaged")
        shutil.copytree(root, damaged)
        what = f"first send after a kill, {size // MEBIBYTE} MiB of small records"
        report.add(what, "s", trio.run(first_send, root))
        shutil.rmtree(root)
        damage_pages(damaged, size)
        report.add(f"{what}, three damaged pages", "s", trio.run(first_send, damaged))
