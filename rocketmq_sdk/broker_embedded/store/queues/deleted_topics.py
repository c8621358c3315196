"""Which topics were deleted, and where the log ended then.

The records of a deleted topic stay in the log until its files are old. Without this
note a recovery would rebuild their queues, and would take the first messages of a new
topic of the same name for repetitions of old ones. Apache keeps no such note and
ignores the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem


class DeletedTopics:
    """Position by topic; records of the topic below it are in no queue."""

    __slots__ = ("_file", "_positions")

    def __init__(self, files: FileSystem) -> None:
        self._file = ConfigFile(files, "deletedTopics.json")
        self._positions: dict[str, int] = {}

    @property
    def positions(self) -> Mapping[str, int]:
        """A live view."""
        return self._positions

    def load(self) -> None:
        """Read the note. Raises `StoreCorruptError`."""
        value = self._file.load()
        table = value.get("positions") if isinstance(value, dict) else None
        if isinstance(table, dict):
            self._positions.update(
                {
                    topic: position
                    for topic, position in table.items()
                    if isinstance(topic, str) and isinstance(position, int)
                }
            )

    def clamp(self, end: int) -> None:
        """Adapt the notes to a log that lost its end. Raises `StoreError`.

        New records there would otherwise count as deleted.
        """
        clamped = {topic: min(position, end) for topic, position in self._positions.items()}
        if clamped != self._positions:
            self._file.store({"positions": clamped})
            self._positions.update(clamped)

    def with_one_more(self, topic: str, position: int, min_position: int) -> dict[str, int]:
        """The notes with that of a deletion.

        Without those that no record of the log needs any more.
        """
        kept = {name: end for name, end in self._positions.items() if end > min_position}
        kept[topic] = position
        return kept

    def write(self, positions: Mapping[str, int]) -> None:
        """Make notes durable, in a thread; they count from `take` on.

        Raises `StoreError`.
        """
        self._file.store({"positions": positions})

    def take(self, positions: Mapping[str, int]) -> None:
        """Let notes count that were written."""
        self._positions.clear()
        self._positions.update(positions)
