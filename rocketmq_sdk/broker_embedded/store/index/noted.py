"""Messages that wait to be indexed, and how much work they are.

A message has an entry for each of its keys, of which there may be thousands: work is
counted by the length of properties, not by messages.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rocketmq_sdk.broker_embedded.store.index.keys import Alike

MOST_NOTED_CHARACTERS: Final = 32 * 1024 * 1024
"""Properties that may wait in memory; what is behind them is indexed from the log."""
_AT_ONCE: Final = 100
_ALIKE_AT_ONCE: Final = 256
"""Messages whose entries take no longer than those of 100 others."""
_OF_ONE: Final = 256
"""Characters of properties that count as one message."""
_MANY: Final = 64
"""Work that is worth to be done: for few messages it would take twice the time."""
_MOST_JOINED: Final = 16
_BEGINNING: Final = 32
"""Bytes in which properties of different producers mostly differ."""


class NotedBatch:
    """Messages of one topic and one store time that were noted together.

    The first `made` of them are in the index. The store time is that of the last one
    where several batches are joined.
    """

    __slots__ = (
        "characters",
        "made",
        "parts",
        "positions",
        "properties",
        "same",
        "store_timestamp",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        properties: Sequence[bytes],
        positions: Sequence[int],
        store_timestamp: int,
        characters: int,
        same: Alike | None = None,
        parts: Sequence[NotedBatch] = (),
    ) -> None:
        self.topic = topic
        self.properties = properties
        self.positions = positions
        self.store_timestamp = store_timestamp
        self.characters = characters
        """The properties of all of them."""
        self.same = same
        """What `alike` says of the properties, where it has been asked."""
        self.made = 0
        self.parts = parts
        """The batches that it joins."""

    def time_of(self, position: int) -> int:
        """The store time of the message at a position."""
        for part in reversed(self.parts):
            if part.positions[0] <= position:
                return part.store_timestamp
        return self.store_timestamp

    @property
    def work(self) -> int:
        """How much work it is to index them."""
        return work_of(len(self.positions), self.characters)

    def goes_with(self, other: NotedBatch) -> bool:
        """Whether the messages of two batches may be alike, and nothing is done yet."""
        own, others = self.properties[0], other.properties[0]
        return (
            self.topic == other.topic
            and self.same is None
            and other.same is None
            and not self.made
            and not other.made
            and len(own) == len(others)
            and own[:_BEGINNING] == others[:_BEGINNING]
        )


Noted = tuple[str, str, int, int] | NotedBatch
"""One message (topic, properties, position, store time), or several."""


def work_of(messages: int, characters: int) -> int:
    """The work for messages with so many characters of properties together."""
    return messages + characters // _OF_ONE


def batches_of(
    topic: str,
    properties: Sequence[bytes],
    positions: Sequence[int],
    store_timestamp: int,
    same: Alike | None = None,
) -> Iterator[NotedBatch]:
    """Messages of a batch in parts that do not take long."""
    if same is not None:
        yield from _alike_batches(topic, properties, positions, store_timestamp, same)
        return
    count, characters = len(properties), sum(map(len, properties))
    if count <= _AT_ONCE and characters < _AT_ONCE * _OF_ONE:
        yield NotedBatch(topic, properties, positions, store_timestamp, characters)
        return
    first = characters = 0
    for end, one in enumerate(properties, 1):
        characters += len(one)
        if end - first >= _AT_ONCE or characters >= _AT_ONCE * _OF_ONE or end == count:
            part = slice(first, end)
            yield NotedBatch(topic, properties[part], positions[part], store_timestamp, characters)
            first, characters = end, 0


def _alike_batches(
    topic: str,
    properties: Sequence[bytes],
    positions: Sequence[int],
    store_timestamp: int,
    same: Alike,
) -> Iterator[NotedBatch]:
    """`batches_of` for messages that are alike."""
    length, (key_end, last) = len(properties[0]), same
    size = len(last) // len(properties)
    most = min(_ALIKE_AT_ONCE, max(1, _AT_ONCE * _OF_ONE // length))
    for first in range(0, len(properties), most):
        part = slice(first, first + most)
        texts, ends = properties[part], last[first * size : (first + most) * size]
        characters = length * len(texts)
        yield NotedBatch(
            topic, texts, positions[part], store_timestamp, characters, (key_end, ends)
        )


class Waiting(deque[Noted]):
    """What is noted and not in the index, in the order of positions."""

    __slots__ = ("_came_together",)

    def __init__(self, noted: Iterable[Noted] = ()) -> None:
        super().__init__(noted)
        self._came_together = 0

    def first_position(self, end: int) -> int:
        """The position of the first message; `end` without any."""
        if not self:
            return end
        first = self[0]
        return first.positions[first.made] if isinstance(first, NotedBatch) else first[2]

    def add_batch(
        self,
        topic: str,
        properties: Sequence[bytes],
        positions: Sequence[int],
        store_timestamp: int,
        same: Alike | None,
    ) -> None:
        """Add messages of one topic that came together."""
        for batch in batches_of(topic, properties, positions, store_timestamp, same):
            self.append(batch)
            self._came_together += batch.work

    @property
    def many(self) -> bool:
        """Whether much to do came together since `drop` was called last.

        What `IndexService.drain` has done meanwhile counts too: then it is early.
        """
        return self._came_together >= _MANY

    def joined(
        self, first: NotedBatch, most: int, seconds: Callable[[int], int]
    ) -> tuple[NotedBatch, int]:
        """The first batch joined with those behind it that are like it.

        And how many batches these are; together no more work than `most`. `seconds` is
        what is kept of a store time.
        """
        work, time, found = first.work, seconds(first.store_timestamp), [first]
        for other in islice(self, 1, _MOST_JOINED):
            if not isinstance(other, NotedBatch) or not first.goes_with(other):
                break
            work += other.work
            if work > most or seconds(other.store_timestamp) != time:
                break
            found.append(other)
        if len(found) == 1:
            return first, 1
        properties, positions = list[bytes](), list[int]()
        for batch in found:
            properties += batch.properties
            positions += batch.positions
        characters = sum([batch.characters for batch in found])
        last = found[-1].store_timestamp
        joined = NotedBatch(first.topic, properties, positions, last, characters, parts=found)
        return joined, len(found)

    def drop(self, count: int) -> None:
        """Drop the first batches, which are in the index."""
        self._came_together = 0
        for _ in range(count):
            self.popleft()

    @property
    def messages(self) -> int:
        """How many messages wait."""
        return sum(
            [
                len(noted.positions) - noted.made if isinstance(noted, NotedBatch) else 1
                for noted in self
            ]
        )

    @property
    def characters(self) -> int:
        """The properties of all of them."""
        return sum(
            noted.characters if isinstance(noted, NotedBatch) else len(noted[1]) for noted in self
        )
