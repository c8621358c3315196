"""A read of many recent messages at once finds what a look at each of them finds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.messages import QueueRead
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import ConsumeQueue
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import PRE_BLANK, UNIT
from rocketmq_sdk.protocol.batch_codec import encode_batch
from support.store import message, open_store, small_config

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.messages import GetResult

KIB = 1024
PUTS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([1, 100, 3 * KIB, 17 * KIB]), st.integers(1, 12)),
    min_size=1,
    max_size=12,
)
READS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(-1, 40), st.sampled_from([1, 300, 5 * KIB, 1 << 30])),
    min_size=1,
    max_size=6,
)


def told(result: GetResult) -> tuple[object, ...]:
    bounds = result.min_offset, result.max_offset, result.suggest_slave
    return result.status, result.next_begin_offset, result.count, bytes(result.body), bounds


async def read_both_ways(
    files: FileSystem,
    hot_bytes: int,
    puts: list[tuple[int, int, int]],
    reads: list[tuple[int, int, int]],
) -> int:
    """Compare the reads; returns how many were made at once."""
    config = small_config(
        mapped_file_size_commit_log=256 * KIB,
        mapped_file_size_consume_queue=20 * 16,
        hot_bytes=hot_bytes,
        max_transfer_bytes_on_message_in_memory=20 * KIB,
    )
    at_once = 0
    async with open_store(files, config) as store:
        for queue_id, size, count in puts:
            items = [(0, bytes([number]) * size, b"") for number in range(count)]
            assert store.put_batch(message(queue_id=queue_id, body=encode_batch(items))).ok
        reader, log = store._reader, store._log
        for queue_id in range(3):
            queue = store._table.find("TopicA", queue_id)
            if queue is None:
                continue
            assert isinstance(queue, ConsumeQueue)
            for offset, most, size in reads:
                if offset >= queue.max_offset:
                    continue
                units = queue.units(offset, 32)
                wanted = reader._take(queue, offset, units, most, size, None, log.read)
                found = reader._take_recent(queue, offset, units, most, size, log.read)
                assert found is None or told(found) == told(wanted)
                at_once += found is not None
                units += UNIT.pack(log.position - 1, 1, 0) + PRE_BLANK + units[:20]
                wanted = reader._take(queue, offset, units, most, size, None, log.read)
                found = reader._take_recent(queue, offset, units, most, size, log.read)
                assert found is None or told(found) == told(wanted)
                now = store.read_nowait(QueueRead("TopicA", queue_id, offset, most))
                whole = store.get("TopicA", queue_id, offset, most)
                assert now is None or told(now) == told(whole)
        assert store.read_nowait(QueueRead("TopicA", 7, 0, 32)) is not None
    return at_once


@pytest.mark.parametrize("hot_bytes", [0, 64 * KIB, 32 << 20])
@settings(deadline=None, max_examples=25)
@given(puts=PUTS, reads=READS)
def test_reads_at_once_are_those_of_each_message(
    hot_bytes: int, puts: list[tuple[int, int, int]], reads: list[tuple[int, int, int]]
) -> None:
    trio.run(read_both_ways, MemoryFileSystem(), hot_bytes, puts, reads)


@pytest.mark.real_time
@pytest.mark.parametrize("hot_bytes", [0, 32 << 20])
def test_most_reads_are_made_at_once_also_from_files(hot_bytes: int) -> None:
    puts = [(number % 3, size, 1 + number) for number in range(9) for size in (1, 100, 3 * KIB)]
    reads = [(offset, 32, size) for offset in range(0, 40, 7) for size in (5 * KIB, 1 << 30)]
    with tempfile.TemporaryDirectory() as directory:
        files = OsFileSystem(Path(directory))
        assert trio.run(read_both_ways, files, hot_bytes, puts, reads) > 30
