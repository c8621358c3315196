"""From what is noted of messages to entries of the file that is written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.index.keys import KeyHasher, alike

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.index.file import IndexFile
    from rocketmq_sdk.broker_embedded.store.index.noted import NotedBatch

_SOME: Final = 8
"""So many messages are worth to be compared."""


class EntryMaker:
    """Makes the entries of messages, each once, whatever fails in between.

    `current` gives the file that is written to, `roll` the next one when it is full.
    Both raise `StoreError`.
    """

    __slots__ = ("_current", "_hasher", "_made_for", "_roll", "made")

    def __init__(
        self, current: Callable[[], IndexFile], roll: Callable[[IndexFile], IndexFile]
    ) -> None:
        self._current = current
        self._roll = roll
        self._hasher = KeyHasher()
        self._made_for = 0
        self.made = 0
        """How many entries of the message that comes next there are already."""

    def start_behind(self, position: int) -> None:
        """The message at a position is the last one that has entries."""
        self._made_for, self.made = position, 0

    def make(self, topic: str, properties: str, position: int, store_timestamp: int) -> None:
        """Make the entries of one message. Raises `StoreError`.

        Entries that a failed call made are not made again.
        """
        file = self._current()
        hashes = self._hasher.hashes(topic, properties)
        if position != self._made_for:
            self.made = 0
            self._made_for = position
        hashes = hashes[self.made :]
        self.made += (made := file.put(hashes, position, store_timestamp))
        while made < len(hashes):
            file = self._roll(file)
            count = file.put(hashes[made:], position, store_timestamp)
            made += count
            self.made += count
        self.made = 0

    def make_at_once(self, batch: NotedBatch) -> bool:
        """Make the entries of messages noted together, if all fit into the file.

        False, and nothing is done, otherwise. Raises `StoreError`.
        """
        file = self._current()
        if batch.made or self.made:
            return False
        properties, same = batch.properties, batch.same
        if same is None and len(properties) >= _SOME:
            same = alike(properties)
        hashes, positions, others = self._hasher.hashes_of_batch(
            batch.topic, properties, batch.positions, same
        )
        time = batch.time_of(positions[-1]) if positions else 0
        if not file.put_all(hashes, positions, time, others):
            return False
        self._made_for = batch.positions[-1]
        return True

    def make_batch(self, batch: NotedBatch) -> None:
        """Make the entries of messages noted together.

        Raises `StoreError`; a later call continues where this one stopped.
        """
        if self.make_at_once(batch):
            return
        for position, raw in zip(
            batch.positions[batch.made :], batch.properties[batch.made :], strict=True
        ):
            text = raw.decode("utf-8", "replace")
            self.make(batch.topic, text, position, batch.store_timestamp)
            batch.made += 1
