"""The name server's key-value table and its file."""

from __future__ import annotations

import pytest

from rocketmq_sdk.broker_embedded.namesrv.kv import KeyValueTable
from rocketmq_sdk.errors import StoreCorruptError, StoreError


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


def test_texts_survive_in_the_file() -> None:
    file = File()
    table = KeyValueTable(file)
    table.put("n", "a", "1")
    table.put("n", "b", "2")
    table.delete("n", "a")
    table.delete("never used", "a")
    again = KeyValueTable(file)
    assert again.get("n", "a") is None
    assert again.get("n", "b") == "2"
    assert again.namespace("n") == {"b": "2"}
    assert again.namespace("never used") is None


def test_a_change_that_can_not_be_written_has_not_happened() -> None:
    file = File()
    table = KeyValueTable(file)
    table.put("n", "a", "1")
    file.full = True
    with pytest.raises(StoreError):
        table.put("n", "a", "2")
    with pytest.raises(StoreError):
        table.put("m", "a", "2")
    with pytest.raises(StoreError):
        table.delete("n", "a")
    assert table.namespace("n") == {"a": "1"}
    assert table.namespace("m") is None


@pytest.mark.parametrize("content", [{"configTable": []}, {"configTable": {"n": []}}, []])
def test_a_file_that_is_no_table_is_named(content: object) -> None:
    with pytest.raises(StoreCorruptError, match=r"kvConfig\.json"):
        KeyValueTable(File(content))
