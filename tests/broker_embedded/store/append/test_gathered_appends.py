"""Appends that wait for one write (`begin`, `end`) while that write fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = small_config(
    mapped_file_size_commit_log=8 * 1024 * 1024, mapped_file_size_consume_queue=20_000
)
PIECE = b"x" * 8000


async def test_a_message_refused_because_a_write_failed_is_not_in_the_log() -> None:
    files = FaultyFileSystem()
    async with open_store(files, CONFIG) as store:
        assert store.put(message(body=b"first")).ok
        store.begin()
        files.faults.fail(Operation.WRITE, times=1)
        taken = 0
        while store.put(message(body=b"%d " % taken + PIECE)).ok:
            taken += 1
            assert taken < 1000
        assert store.put(message(body=b"last")).ok
        store.end()
        expected = [b"first", *(b"%d " % number + PIECE for number in range(taken)), b"last"]
        assert bodies(store) == expected
    files.remove_tree("consumequeue")
    files.write("abort", b"")
    files.remove("checkpoint")
    async with open_store(files, CONFIG) as store:
        assert bodies(store) == expected


async def test_large_records_between_small_ones_are_read_like_all(tmp_path: Path) -> None:
    """They are not kept in memory, and leave no more pieces there than a bound allows;
    what is read is the same, in turns and outside of them.
    """
    config = small_config(
        mapped_file_size_commit_log=64 * 1024 * 1024,
        mapped_file_size_consume_queue=20_000,
        hot_bytes=1024 * 1024,
    )
    expected = [b"%d " % number + bytes(20_000 if number % 2 else 10) for number in range(700)]
    async with open_store(OsFileSystem(tmp_path), config) as store:
        for number, body in enumerate(expected):
            if number % 7 == 0:
                store.begin()
            assert store.put(message(body=body)).ok
            if number % 7 == 6:
                store.end()
        assert len(store._log._hot[0]) <= 129
        assert bodies(store) == expected
        end = store.max_physical_offset
        small, large = store.put(message(body=b"small")), store.put(message(body=bytes(30_000)))
        assert (small.physical_offset, store._log.read_hot(end, small.size)) == (
            end,
            store.record_at(end),
        )
        assert store._log.read_hot(large.physical_offset, large.size) is None
        assert store._log.read_hot(end, small.size + large.size) is None
        both = store._log.read(end, small.size + large.size)
        assert both is not None
        assert bytes(both) == bytes(store.record_at(end) or b"") + bytes(
            store.record_at(large.physical_offset) or b""
        )
    async with open_store(OsFileSystem(tmp_path), config) as store:
        assert bodies(store)[:-2] == expected
