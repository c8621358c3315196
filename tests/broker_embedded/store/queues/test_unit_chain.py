"""Reads of a queue beside the removal of its files."""

from __future__ import annotations

import pytest

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFile, MemoryFileSystem
from rocketmq_sdk.errors import StoreError
from support.store import message, open_store


async def test_a_read_that_meets_a_removed_file_finds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_store(files) as store:
        for _ in range(35):
            assert store.put(message()).ok
    async with open_store(files) as store:
        queue = store._table.find("TopicA", 0)
        assert queue is not None
        first = queue._files.files[0]

        def removed(_file: MemoryFile, _size: int, _offset: int) -> bytes:
            if queue._files.files[0] is first:
                queue._files.take_first()  # as retention does
            raise StoreError("the file was removed")

        def broken(_file: MemoryFile, _size: int, _offset: int) -> bytes:
            raise StoreError("cannot read")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryFile, "pread", broken)
            with pytest.raises(StoreError, match="cannot read"):
                queue.units(0, 5)
            patch.setattr(MemoryFile, "pread", removed)
            assert queue.units(0, 5) == b""
