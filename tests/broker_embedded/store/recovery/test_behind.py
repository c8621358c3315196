"""Whole records behind damage are found in one pass, wherever they begin."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFile, MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.log import record as record_module
from rocketmq_sdk.broker_embedded.store.recovery.behind import look_behind
from rocketmq_sdk.protocol.message_codec import encode_record

if TYPE_CHECKING:
    from collections.abc import Iterable

MEBIBYTE = 1024 * 1024
NAME = f"commitlog/{0:020d}"


def record(
    position: int, *, topic: bytes = b"topic", body: bytes = b"body" * 20, store_timestamp: int = 1
) -> bytes:
    return encode_record(
        topic,
        body,
        b"",
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=position,
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=store_timestamp,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_offset=0,
    )


def chain_with(
    parts: Iterable[tuple[int, bytes]], *, size: int, fill: bytes = b"\xee"
) -> FileChain:
    files = MemoryFileSystem(1 << 30)
    file = files.create(NAME, size)
    file.pwrite(fill * size, 0)
    for position, data in parts:
        file.pwrite(data, position)
    chain = FileChain(files, "commitlog", size, "mappedFileSizeCommitLog")
    chain.load()
    return chain


@pytest.mark.parametrize("back", [-1, 0, 1, 3, 4, 7, 8, 20, 28, 29, 32, 35, 36, 37, 90, 91, 200])
@pytest.mark.parametrize("chunk", [1, 4])
def test_a_record_is_found_on_each_side_of_what_is_read_at_once(back: int, chunk: int) -> None:
    position = 100 + chunk * MEBIBYTE - back
    found = look_behind(chain_with([(position, record(position))], size=6 * MEBIBYTE), 100)
    assert found is not None
    assert (found.records, found.first) == (1, position)
    assert found.end == position + len(record(position))


def test_records_of_all_kinds_are_counted_with_their_times() -> None:
    position, parts = 5000, []
    for number in range(2000):
        data = record(
            position,
            topic=b"long" * 40 if number % 7 == 0 else b"topic%d" % (number % 3),
            body=b"x" * (number % 400),
            store_timestamp=1000 + number % 50,
        )
        parts.append((position, data))
        position += len(data) + (300 if number % 100 == 99 else 0)
    last = parts[-1]
    found = look_behind(chain_with(parts, size=2 * MEBIBYTE), 10)
    assert found == (2000, 5000, last[0] + len(last[1]), 1000, 1049)


def test_a_record_larger_than_what_is_read_at_once_is_found() -> None:
    data = record(700, body=b"big" * MEBIBYTE)
    found = look_behind(chain_with([(700, data)], size=8 * MEBIBYTE), 10)
    assert found == (1, 700, 700 + len(data), 1, 1)


def test_many_small_records_cost_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(record(0))
    parts = [(at, record(at)) for at in range(1000, 4 * MEBIBYTE - size, size)]
    chain = chain_with(parts, size=4 * MEBIBYTE)
    read = 0
    pread = MemoryFile.pread

    def counting(file: MemoryFile, length: int, offset: int) -> bytes:
        nonlocal read
        data = pread(file, length, offset)
        read += len(data)
        return data

    monkeypatch.setattr(MemoryFile, "pread", counting)
    found = look_behind(chain, 10)
    assert found is not None
    assert found.records == len(parts)
    assert read < 1.1 * 4 * MEBIBYTE


def test_a_body_full_of_false_records_does_not_hold_the_start_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each names its own position and a size that fits: only its CRC tells."""
    checked = 0
    size = 4 * MEBIBYTE
    crc32 = zlib.crc32

    class Counting:
        @staticmethod
        def crc32(data: memoryview) -> int:
            nonlocal checked
            checked += len(data)
            return crc32(data)

    monkeypatch.setattr(record_module, "zlib", Counting)
    end = size - 100
    parts = []
    for position in range(1000, size // 2, 100):
        head = bytearray(record(position, body=b"")[:88])
        head[0:4] = (end - position).to_bytes(4)
        head[84:88] = (end - position - 91 - 5).to_bytes(4)
        parts.append((position, bytes(head)))
    parts.append((end - 8, b"\x05topic\0\0"))
    found = look_behind(chain_with(parts, size=size), 10)
    assert found is not None  # kept unread rather than lost
    assert found.end == size
    assert checked < 64 * MEBIBYTE + 10 * size
