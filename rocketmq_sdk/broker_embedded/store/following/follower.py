"""The follower: how a service goes through the messages of a queue or of a list.

Delay levels, timers, the check of transactions and revival follow the log with it. It
reads ahead in threads, tries again what cannot be read, and sets it aside after some
tries, so that nothing waits for ever and nothing is repeated. How far a service has
come is its own matter; `MessageStore.secure` says when that may be written down.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.broker_embedded.store.following.tries import Tries
from rocketmq_sdk.broker_embedded.store.following.unreadable import Place, SetAside
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rocketmq_sdk.broker_embedded.store.following.records import (
        Outcome,
        RecordReader,
        Span,
        Unit,
    )
    from rocketmq_sdk.broker_embedded.store.following.unreadable import UnreadableRecords
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
AHEAD: Final = 64
"""How many messages are read together."""
_AHEAD_BYTES: Final = 1024 * 1024
_PROBE_SECONDS: Final = 1.0
_MOST_TOLD: Final = 10


class Followed(NamedTuple):
    """One message of a queue, with its record or why that cannot be read.

    `record` is None when the log does not have it any more.
    """

    place: Place
    code: int
    record: Outcome


class Follower:
    """Reads for one service; `name` is what logs and statistics call that."""

    __slots__ = (
        "_answers",
        "_clock",
        "_probed_at",
        "_reader",
        "_set_aside",
        "_tries",
        "_waiting",
        "name",
    )

    def __init__(
        self, name: str, reader: RecordReader, set_aside: UnreadableRecords, clock: Clock
    ) -> None:
        self.name = name
        self._reader = reader
        self._set_aside = set_aside
        self._clock = clock
        self._tries = Tries()
        self._waiting: dict[Place, str] = {}
        self._answers, self._probed_at = True, -_PROBE_SECONDS

    def __len__(self) -> int:
        """How many messages cannot be read now."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[str]:
        """What cannot be read now and is tried again, in words."""
        waiting = list(self._waiting.items())
        told = [f"{place}: {error}" for place, error in waiting[:_MOST_TOLD]]
        if len(waiting) > _MOST_TOLD:
            told.append(f"{len(waiting) - _MOST_TOLD} more messages cannot be read")
        return iter(told)

    # --- reading

    async def units(
        self, topic: str, queue_id: int, offset: int, count: int = AHEAD
    ) -> list[Unit] | StoreError:
        """Units of a queue, see `RecordReader.units`."""
        return await self._reader.units(topic, queue_id, offset, count)

    async def records(self, spans: Sequence[Span]) -> list[Outcome]:
        """Records by position and size, see `RecordReader.records`."""
        return await self._reader.records(spans)

    async def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        wanted: Callable[[int, int], bool] | None = None,
        most: int = AHEAD,
    ) -> list[Followed]:
        """The messages of a queue from an offset on; none at its end.

        At most `most`, about a megabyte, and only up to the first one of which
        `wanted`, by offset and tags code, is false. Where retention has removed the
        first ones, those that are left. Does not wait when all of it is in memory.
        """
        offset = max(offset, self._reader.bounds(topic, queue_id)[0])
        units = await self._reader.units(topic, queue_id, offset, most)
        if isinstance(units, StoreError):
            return [Followed(Place(topic, queue_id, offset), 0, units)]
        chosen: list[tuple[Place, int]] = []
        total = 0
        for number, (position, size, code) in enumerate(units, offset):
            total += size
            if (chosen and total > _AHEAD_BYTES) or (
                wanted is not None and not wanted(number, code)
            ):
                break
            chosen.append((Place(topic, queue_id, number, position, size), code))
        records = await self._reader.records([(place.position, place.size) for place, _ in chosen])
        return [
            Followed(place, code, record)
            for (place, code), record in zip(chosen, records, strict=True)
        ]

    # --- what cannot be read

    def left(self, place: Place) -> float:
        """Seconds until a message that could not be read may be tried again."""
        return self._tries.left(place, self._clock.monotonic()) if self._waiting else 0.0

    def waits(self, place: Place) -> bool:
        """Whether a message could not be read and is to be tried again."""
        return place in self._waiting

    async def disk_answers(self, place: Place) -> bool:
        """Whether other parts of the log can be read; asked at most once a second."""
        now = self._clock.monotonic()
        if now - self._probed_at >= _PROBE_SECONDS:
            self._answers = await self._reader.disk_answers(place.position, place.size)
            self._probed_at = now
        return self._answers

    async def failed(self, place: Place, error: StoreError) -> float | None:
        """A message could not be read; returns the seconds until the next try.

        None when it was tried often enough: it is set aside and must not be tried any
        more. Nothing is set aside while the disk gives nothing at all.
        """
        answers = not self._tries.is_last(place) or await self.disk_answers(place)
        delay = self._tries.failed(place, self._clock.monotonic(), disk_answers=answers)
        if delay is None:
            self.give_up(place, str(error))
        else:
            if place not in self._waiting:
                _log.warning(
                    "%s: %s cannot be read and is tried again: %s", self.name, place, error
                )
            self._waiting[place] = str(error)
        return delay

    def went_well(self, place: Place) -> None:
        """A message was read, or is not wanted any more."""
        if self._waiting and self._tries.over(place):
            self._waiting.pop(place, None)

    def give_up(self, place: Place, reason: str) -> None:
        """Set a message aside at once: another try would meet the same."""
        self._tries.over(place)
        self._waiting.pop(place, None)
        self._set_aside.add(SetAside(self.name, place, reason, self._clock.now_ms()))
