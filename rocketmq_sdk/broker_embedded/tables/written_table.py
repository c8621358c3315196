"""Base of the tables of topics and groups: a change is written or undone.

Apache (`ConfigManager`) changes its table, fails to write, logs that and goes on with
what a restart forgets. Here a change whose write fails is undone and raises, so that
nothing is acknowledged that depends on it; the caller tries again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rocketmq_sdk.protocol.bodies.topics import DataVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rocketmq_sdk.broker_embedded.tables.table_file import TableFile
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.protocol.json.dialect import Written

Value = TypeVar("Value")


class WrittenTable(ABC, Generic[Value]):
    """Values by name, the version that others compare, and the file of both.

    Not safe for use from several threads.
    """

    def __init__(
        self, config_file: TableFile | None, clock: Clock, table: dict[str, Value]
    ) -> None:
        self._file = config_file
        self._clock = clock
        self._table = table
        self.data_version = DataVersion(0, clock.now_ms(), 0)
        # What the file holds of each value, so that one more among thousands costs
        # little.
        self._texts: dict[str, Written] = {}
        self._written: dict[str, Value] = {}
        self._together = self._changed = False
        self._undo: list[tuple[dict[str, Any], str, Any]] = []

    @abstractmethod
    def _text(self, name: str, value: Value) -> Written:
        """What the file holds of a value."""

    @abstractmethod
    def _content(self, texts: Mapping[str, Written]) -> dict[str, object]:
        """What the file holds in all."""

    def _after_write(self) -> None:
        """Called when changes are in the file."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write all changes of the block once, at its end.

        For synchronous blocks; an inner block counts as part of the outer one. Raises
        `StoreError` when the file cannot be written. Then, and when the block raises,
        all its changes are undone.
        """
        if self._together:
            yield
            return
        self._together, version = True, self.data_version
        try:
            yield
            if self._changed:
                self.persist()
        except BaseException:
            self._take_back(version)
            raise
        finally:
            self._together, changed, self._changed = False, self._changed, False
            self._undo.clear()
        if changed:
            self._after_write()

    def _take_back(self, version: DataVersion) -> None:
        self.data_version = version
        for table, name, before in reversed(self._undo):
            self._written.pop(name, None)
            if before is None:
                table.pop(name, None)
            else:
                table[name] = before

    def _swap(self, table: dict[str, Any], name: str, value: object | None) -> None:
        """Set or remove (None) a value in one of the tables; within `together`."""
        self._undo.append((table, name, table.get(name)))
        if value is None:
            table.pop(name, None)
        else:
            table[name] = value

    def _count_change(self) -> None:
        """The values that were swapped are one more change; within `together`."""
        self.data_version = self.data_version.next(self._clock.now_ms())
        self._changed = True

    def _replace_all(self, table: Mapping[str, Value], version: DataVersion) -> None:
        """Make the table that of a master, with its version; within `together`."""
        for name in self._table.keys() - table.keys():
            self._swap(self._table, name, None)
        for name, value in table.items():
            if self._table.get(name) != value:
                self._swap(self._table, name, value)
        self.data_version = version
        self._changed = True

    def _change(self, name: str, value: Value | None) -> None:
        """Set or remove (None) one value and write; on `StoreError` nothing changes."""
        with self.together():
            self._swap(self._table, name, value)
            self._count_change()

    def persist(self) -> None:
        """Write the file. Raises `StoreError`."""
        if self._file is None:
            return
        texts, before = self._texts, self._written
        for name, value in self._table.items():
            if before.get(name) is not value:
                texts[name] = self._text(name, value)
        for name in texts.keys() - self._table.keys():
            del texts[name]
        self._written = dict(self._table)
        self._file.store(self._content(texts))
