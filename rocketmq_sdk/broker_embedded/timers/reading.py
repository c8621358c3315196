"""Reads the messages of timers; what cannot be read waits for a later slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.following.unreadable import Place
from rocketmq_sdk.broker_embedded.timers.messages import delete_keys
from rocketmq_sdk.errors import ProtocolError, StoreError
from rocketmq_sdk.model.properties import REAL_TOPIC, TIMER_DEL_UNIQKEY, UNIQ_KEY, property_in_text
from rocketmq_sdk.names import TIMER_TOPIC
from rocketmq_sdk.protocol.message_codec import MAX_PROPERTIES, decode_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.store.following.follower import Followed
    from rocketmq_sdk.broker_embedded.store.following.records import Outcome
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.timers.record import TimerRecord
    from rocketmq_sdk.model.received import ReceivedMessage

    Found = tuple[ReceivedMessage, str]

_MOST_WAITING: Final = 1000
"""While the disk gives nothing, so many unreadable timers may go to later slots."""


class Recalls:
    """The messages that those of one slot take back."""

    __slots__ = ("_found", "_topics")

    def __init__(self) -> None:
        self._topics: dict[str, str] = {}
        self._found: set[str] = set()

    def add(self, text: str) -> None:
        """A message that takes another one back, by its properties."""
        key = property_in_text(text, TIMER_DEL_UNIQKEY)
        if key is not None:
            self._topics[key] = property_in_text(text, REAL_TOPIC) or ""

    def take(self, text: str) -> bool:
        """Whether a message is taken back, by its properties."""
        if not self._topics:
            return False
        unique = property_in_text(text, UNIQ_KEY)
        keys = (
            () if unique is None else delete_keys(property_in_text(text, REAL_TOPIC) or "", unique)
        )
        key = next((key for key in keys if key in self._topics), None)
        if key is not None:
            self._found.add(key)
        return key is not None

    def without_effect(self) -> list[str]:
        """The real topics of recalls that found nothing.

        Each was subtracted from the topic's timers.
        """
        return [topic for key, topic in self._topics.items() if key not in self._found]


class TimerReader:
    """Reads timer messages by their place in the log."""

    __slots__ = ("follower",)

    def __init__(self, store: MessageStore) -> None:
        self.follower = store.follow("timers")

    async def topic(self, offset: int, *, most: int | None = None) -> list[Followed]:
        """Messages of the timer topic from an offset on."""
        if most is None:
            return await self.follower.read(TIMER_TOPIC, 0, offset)
        return await self.follower.read(TIMER_TOPIC, 0, offset, most=most)

    async def found(self, records: Sequence[TimerRecord]) -> list[Found | StoreError | None]:
        """The messages of some timers, or why one cannot be read.

        None for what is no timer message; that is named and set aside.
        """
        outcomes = await self.follower.records(
            [(record.physical_offset, record.message_size) for record in records]
        )
        return [
            self.decoded(record.physical_offset, record.message_size, outcome)
            for record, outcome in zip(records, outcomes, strict=True)
        ]

    def decoded(self, position: int, size: int, outcome: Outcome) -> Found | StoreError | None:
        """A timer message and its property text, as `found`."""
        if isinstance(outcome, StoreError):
            return outcome
        place = place_of(position, size)
        self.follower.went_well(place)
        if outcome is None:
            self.follower.give_up(place, "the log does not have it any more")
            return None
        try:
            message = decode_message(outcome, inflate=False)
        except ProtocolError as error:
            self.follower.give_up(place, str(error))
            return None
        if message.topic != TIMER_TOPIC:
            self.follower.give_up(place, f"it belongs to {message.topic} and is no timer")
            return None
        raw = message.properties_bytes
        text = raw.decode("utf-8", "replace")
        return message, text if len(text.encode()) <= MAX_PROPERTIES else raw.decode(
            "utf-8", "ignore"
        )

    async def later(self, position: int, size: int, error: StoreError) -> float | None:
        """In how many seconds an unreadable timer is tried again; None for never.

        Raises `StoreError` while the disk gives nothing and many wait: then all do.
        """
        place = place_of(position, size)
        if (
            len(self.follower) >= _MOST_WAITING
            and not self.follower.waits(place)
            and not await self.follower.disk_answers(place)
        ):
            raise error
        return await self.follower.failed(place, error)


def place_of(position: int, size: int) -> Place:
    """The place of a timer message in the log."""
    return Place(TIMER_TOPIC, 0, position=position, size=size)
