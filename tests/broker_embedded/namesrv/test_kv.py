"""The name server's key-value table and its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.namesrv.kv import KeyValueTable
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.errors import StoreCorruptError, StoreError

if TYPE_CHECKING:
    from pathlib import Path


class File:
    """A table file in memory that can refuse to be written."""

    def __init__(self, content: object = None) -> None:
        self.content = content
        self.full = False

    def load(self) -> object:
        return self.content

    def store(self, value: object) -> None:
        if self.full:
            raise StoreError("kvConfig.json cannot be written: no space left on device")
        self.content = value


async def test_texts_survive_in_the_file() -> None:
    file = File()
    table = KeyValueTable(file)
    await table.put("n", "a", "1")
    await table.put("n", "b", "2")
    await table.delete("n", "a")
    await table.delete("never used", "a")
    again = KeyValueTable(file)
    assert again.get("n", "a") is None
    assert again.get("n", "b") == "2"
    assert again.namespace("n") == {"b": "2"}
    assert again.namespace("never used") is None


async def test_a_change_that_cannot_be_written_has_not_happened() -> None:
    file = File()
    table = KeyValueTable(file)
    await table.put("n", "a", "1")
    file.full = True
    with pytest.raises(StoreError):
        await table.put("n", "a", "2")
    with pytest.raises(StoreError):
        await table.put("m", "a", "2")
    with pytest.raises(StoreError):
        await table.delete("n", "a")
    assert table.namespace("n") == {"a": "1"}
    assert table.namespace("m") is None


async def test_changes_beside_the_loop_come_one_after_the_other(tmp_path: Path) -> None:
    """Others are served meanwhile; a caller that is cancelled leaves table and file
    alike.
    """
    files = OsFileSystem(tmp_path)
    table = KeyValueTable(ConfigFile(files, "kvConfig.json"))
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(table.put, "n", f"k{number}", "v")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(table.put, "n", "cancelled", "v")
            await trio.lowlevel.checkpoint()
            assert table.get("n", "cancelled") is None
            scope.cancel()
    again = KeyValueTable(ConfigFile(files, "kvConfig.json"))
    assert again.namespace("n") == table.namespace("n")
    assert len(again.namespace("n") or {}) == 21


@pytest.mark.parametrize("content", [{"configTable": []}, {"configTable": {"n": []}}, []])
def test_a_file_that_is_no_table_is_named(content: object) -> None:
    with pytest.raises(StoreCorruptError, match=r"kvConfig\.json"):
        KeyValueTable(File(content))
