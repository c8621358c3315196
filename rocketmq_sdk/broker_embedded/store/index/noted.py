"""Messages that wait to be indexed, and how much work they are.

A message has an entry for each of its keys, of which there may be thousands: work is
counted by the length of properties, not by messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_NOTED_CHARACTERS: Final = 32 * 1024 * 1024
"""Properties that may wait in memory; what is behind them is indexed from the log."""
_AT_ONCE: Final = 100
_OF_ONE: Final = 256
"""Characters of properties that count as one message."""


class NotedBatch:
    """Messages of one topic and one store time that were noted together.

    The first `made` of them are in the index.
    """

    __slots__ = ("made", "positions", "properties", "store_timestamp", "topic")

    def __init__(
        self, topic: str, properties: list[bytes], positions: list[int], store_timestamp: int
    ) -> None:
        self.topic = topic
        self.properties = properties
        self.positions = positions
        self.store_timestamp = store_timestamp
        self.made = 0

    @property
    def work(self) -> int:
        """How much work it is to index them."""
        return work_of(len(self.positions), sum(map(len, self.properties)))


Noted = tuple[str, str, int, int] | NotedBatch
"""One message (topic, properties, position, store time), or several."""


def work_of(messages: int, characters: int) -> int:
    """The work for messages with so many characters of properties together."""
    return messages + characters // _OF_ONE


def batches_of(
    topic: str, properties: list[bytes], positions: list[int], store_timestamp: int
) -> Iterator[NotedBatch]:
    """Messages of a batch in parts that do not take long."""
    first = characters = 0
    for end, one in enumerate(properties, 1):
        characters += len(one)
        if end - first >= _AT_ONCE or characters >= _AT_ONCE * _OF_ONE:
            yield NotedBatch(topic, properties[first:end], positions[first:end], store_timestamp)
            first, characters = end, 0
    if first < len(positions):
        yield NotedBatch(topic, properties[first:], positions[first:], store_timestamp)


def characters_in(waiting: Iterable[Noted]) -> int:
    """The properties of all of them."""
    return sum(
        sum(map(len, noted.properties)) if isinstance(noted, NotedBatch) else len(noted[1])
        for noted in waiting
    )
