"""What is read of the log in one piece is there, wherever its bytes are: in the file,
in memory, or begun in the one and ended in the other.

A span of which nothing came back would be passed over by consumers, as if retention had
removed it.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.protocol.message_codec import decode_messages
from support.store import message, open_store, small_config

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

KIB = 1024
SIZES = st.sampled_from([1, 50, 300, 3 * KIB, 15 * KIB, 16 * KIB, 20 * KIB, 70 * KIB])
"""Around what is kept in memory as one segment, and what is written alone."""


async def read_everything(files: FileSystem, sizes: list[int], hot_bytes: int) -> None:
    config = small_config(mapped_file_size_commit_log=1 << 20, hot_bytes=hot_bytes)
    wanted: list[bytes] = []
    starts: list[int] = []
    async with open_store(files, config) as store:
        log = store._log
        for number, size in enumerate(sizes):
            body = bytes([number % 256]) * size
            result = store.put(message(body=body))
            assert result.ok
            wanted.append(body)
            starts.append(result.physical_offset)
            ends = [*starts[1:], log.position]
            for first in range(len(starts)):
                for last in range(first, len(starts)):
                    if any(end < start for end, start in pairwise(starts[first : last + 1])):
                        continue
                    span = ends[last] - starts[first]
                    if log.chain.find(starts[first]) is not log.chain.find(starts[last]):
                        continue  # a span stays within its file
                    found = log.read(starts[first], span)
                    assert found is not None, (first, last)
                    assert len(found) == span
                    near = log.read_nowait(starts[first], span)
                    assert near is None or near == found
        # And as consumers read: from each offset on, nothing is passed over.
        for offset in range(len(wanted)):
            found_bodies: list[bytes] = []
            at = offset
            while at < len(wanted):
                got = store.get("TopicA", 0, at, 32)
                assert got.body, (offset, at)
                found_bodies += [each.body for each in decode_messages(got.body)]
                at = got.next_begin_offset
            assert found_bodies == wanted[offset:]


@pytest.mark.parametrize("hot_bytes", [0, 4 * KIB, 64 * KIB, 32 << 20])
@given(sizes=st.lists(SIZES, min_size=1, max_size=12))
@settings(max_examples=50)
def test_every_span_is_read_in_memory(hot_bytes: int, sizes: list[int]) -> None:
    files = MemoryFileSystem()
    trio.run(read_everything, files, sizes, hot_bytes)


@pytest.mark.real_time
@pytest.mark.parametrize("hot_bytes", [0, 4 * KIB, 32 << 20])
@given(sizes=st.lists(SIZES, min_size=1, max_size=8))
@settings(max_examples=10)
def test_every_span_is_read_on_disk(hot_bytes: int, sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trio.run(read_everything, OsFileSystem(Path(directory)), sizes, hot_bytes)


@pytest.mark.parametrize("sizes", [[50, 20 * KIB, 50], [3 * KIB] * 4])
def test_small_messages_around_a_large_one_reach_consumers(sizes: list[int]) -> None:
    trio.run(read_everything, MemoryFileSystem(), sizes, 32 << 20)
    trio.run(read_everything, MemoryFileSystem(), sizes, 0)
