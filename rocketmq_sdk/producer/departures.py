"""Messages that leave a producer together, as one observer of clients sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.client.observers import MOST_FAILURES, Departure, tell
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.producer.outgoing import MAX_UTF8_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketmq_sdk.client.observers import Observer
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.producer.handle import SendHandle


_MOST_BESIDE: Final = MAX_UTF8_CHARACTERS - 1024


@attrs.define(eq=False)
class Joined(Departure):
    """A departure, and what its producer knows of it."""

    text: str = ""
    """What goes with each message, encoded."""
    tails: tuple[str, str] = ("", "")
    """The property text of a message without and with it: mostly all have the same."""
    requests: int = 0
    """How many are under way."""
    is_open: bool = True
    """Whether it takes more messages."""


class Departures:
    """What leaves together, for an observer that `joins`.

    A departure takes messages until the loop's turn ends (`close`); one of batches that
    gather, until the first of these leaves; one of a batch that was handed over is
    complete. It is over when no request with its messages is under way. Nothing is made
    for a message: it is counted, and its request is remembered if the observer looks.
    """

    __slots__ = (
        "_caller",
        "_client_id",
        "_departed",
        "_departs",
        "_gathered",
        "_gathering",
        "_group",
        "_last",
        "_of",
        "_open",
        "begun",
        "brings_context",
    )

    def __init__(self, observer: Observer, group: str, client_id: str) -> None:
        self._group = group
        self._client_id = client_id
        self._caller = observer.caller
        self.brings_context = observer.brings_context
        self._departs = (observer.departs,)
        self._departed = (observer.departed,)
        self.begun = False
        """Whether one has begun, until somebody has looked."""
        self._open: dict[tuple[str, int], Joined] = {}
        self._last: Joined | None = None
        """The one of those that are open which was joined last."""
        self._of: dict[SendHandle, Joined] = {}
        self._gathering: dict[tuple[str, int], Joined] = {}
        """Those of batches that gather."""
        self._gathered: dict[object, dict[Joined, int]] = {}
        """By batches: how many messages they have of which."""

    def _begin(self, context: object, first: Message, *, is_batch: bool) -> Joined:
        """Raises `ConfigurationError` for properties that cannot be encoded."""
        departure = Joined(
            self._group, self._client_id, first.topic, trio.current_time(), context, is_batch
        )
        departure.first = first
        tell(self._departs, departure)
        if departure.properties:
            try:
                departure.text = property_text(departure.properties)
            except ConfigurationError as error:
                departure.count = 1
                self._note_failure(departure, "", error, 1)
                self._end(departure)
                raise
        return departure

    # --- messages in requests of their own

    def join(self, handle: SendHandle) -> None:
        """A message is about to be sent. Raises as `property_text`."""
        message, context = handle.message, self._caller()
        departure = self._last
        if (
            departure is None
            or departure.context is not context
            or departure.topic != message.topic
        ):
            departure = self._last = self._of_caller(message, context)
        if departure.is_seen:
            departure.count += 1
            departure.requests += 1
            without, whole = departure.tails
            tail = handle.tail
            if tail != without:
                whole = tail + departure.text if has_room(tail) else tail
                departure.tails = tail, whole
                if departure.are_alike:
                    departure.are_alike = _are_alike(message, departure.first)
            handle.tail = whole
            self._of[handle] = departure

    def _of_caller(self, message: Message, context: object) -> Joined:
        key = message.topic, id(context)
        departure = self._open.get(key)
        if departure is None:
            departure = self._open[key] = self._begin(context, message, is_batch=False)
            self.begun = True
        return departure

    def close(self) -> None:
        """The turn of the loop is over: what is sent from now on leaves later."""
        self._last = None
        opened, self._open = self._open, {}
        for departure in opened.values():
            departure.is_open = False

    def takes_more(self) -> bool:
        """Whether one is open; forgets that it has `begun`."""
        self.begun = False
        return bool(self._open)

    # --- messages in batches

    def gather(self, message: Message) -> Joined:
        """A message is about to go into a batch that gathers.

        `count` tells into which, `gathered` that it is there or has failed.
        """
        context = self._caller()
        key = message.topic, id(context)
        departure = self._gathering.get(key)
        if departure is None:
            departure = self._gathering[key] = self._begin(context, message, is_batch=True)
        departure.requests += 1  # so that it does not end meanwhile
        return departure

    def gathered(self, departure: Joined, error: BaseException | None = None) -> None:
        """A message is in its batch, else has failed."""
        if error is not None:
            self._note_failure(departure, "", error, 1)
        departure.requests -= 1
        if departure.is_seen and not departure.requests:
            self._end(departure)

    def batch(self, messages: Sequence[Message]) -> Joined:
        """Messages are about to be made a batch."""
        departure = self._begin(self._caller(), messages[0], is_batch=True)
        departure.is_open = False
        return departure

    def count(self, departure: Joined, batch: object, messages: Sequence[Message]) -> None:
        """Messages of a departure are in a batch, which has a handle or unique ids."""
        if not departure.is_seen:
            return
        counts = self._gathered.setdefault(batch, {})
        if departure not in counts:
            departure.requests += 1
        counts[departure] = counts.get(departure, 0) + len(messages)
        departure.count += len(messages)
        departure.are_alike = departure.are_alike and all(
            _are_alike(message, departure.first) for message in messages
        )

    def leaves(self, handle: SendHandle) -> None:
        """A batch is about to be sent."""
        counts = self._gathered.pop(handle.message_id, None)
        if counts is None:
            self._take_back(handle)
        else:
            self._gathered[handle] = counts
        for departure in list(self._gathering.values()):
            if not departure.is_seen or departure in self._gathered.get(handle, ()):
                self._shut(departure)

    def _take_back(self, handle: SendHandle) -> None:
        """Count no messages that a batch which has gathered does not have any more.

        Whose they were is not known, which matters only where a batch has messages of
        several departures.
        """
        counts = self._gathered.get(handle, {})
        lost = sum(counts.values()) - handle.count
        for departure in reversed(list(counts)):
            number = min(lost, counts[departure])
            counts[departure] -= number
            departure.count -= number
            lost -= number

    def forget(self, batch: object, error: BaseException) -> None:
        """A batch that had unique ids got no handle."""
        for departure, number in self._gathered.pop(batch, {}).items():
            departure.requests -= 1
            self._note_failure(departure, "", error, number)
            if not departure.requests:
                self._end(departure)

    # --- the end

    def ended(self, handles: Sequence[SendHandle], error: BaseException | None = None) -> None:
        """Requests are finished; `error` keeps them from beginning."""
        found, gathered = self._of, self._gathered
        for handle in handles if found or gathered or self._gathering else ():
            joined = found.pop(handle, None)
            if joined is not None:
                self._request_ended(joined, handle, 1, error or handle.error)
                continue
            if gathered:
                for departure, number in gathered.pop(handle, {}).items():
                    self._request_ended(departure, handle, number, error or handle.error)
            if handle.error is not None and handle.is_batch:
                # It may not have left: all of its messages were taken back.
                for departure in list(self._gathering.values()):
                    if not departure.is_seen:
                        self._shut(departure)

    def _request_ended(
        self, departure: Joined, handle: SendHandle, number: int, error: BaseException | None
    ) -> None:
        target = handle.target
        if target is not None and departure.address != target.address:
            departure.address = target.address if departure.address is None else ""
        if error is not None:
            self._note_failure(departure, handle.message_id, error, number)
        departure.requests -= 1
        if departure.requests:
            return
        result = handle.result
        if departure.count == number and result is not None:
            departure.queue_id = result.queue.queue_id
        if departure.count == 1 and not departure.is_batch:
            departure.message_id = handle.message_id
        self._end(departure)

    def _note_failure(
        self, departure: Joined, message_id: str, error: BaseException, number: int
    ) -> None:
        departure.failed += number
        if len(departure.failures) < MOST_FAILURES:
            departure.failures.append((message_id, error))

    def _shut(self, departure: Joined) -> None:
        """It takes no more messages."""
        if departure.is_open:
            departure.is_open = False
            table = self._gathering if departure.is_batch else self._open
            table.pop((departure.topic, id(departure.context)), None)
            if departure is self._last:
                self._last = None

    def _end(self, departure: Joined) -> None:
        self._shut(departure)
        departure.ended = trio.current_time()
        tell(self._departed, departure)


def has_room(text: str) -> bool:
    """Whether properties may get those of observers, for which no send is to fail."""
    return len(text) <= _MOST_BESIDE


def _are_alike(message: Message, other: Message | None) -> bool:
    """Whether observers have the same to say of two messages, but for their bodies."""
    return message is other or (
        other is not None
        and message.tags == other.tags
        and message.keys == other.keys
        and ((message.is_plain and other.is_plain) or _kind(message) == _kind(other))
    )


def _kind(message: Message) -> tuple[object, ...]:
    return (
        message.sharding_key,
        message.is_delayed,
        message.delay_level,
        message.deliver_at_ms,
    )


def property_text(properties: Mapping[str, str]) -> str:
    """Properties as a message has them. Raises `ConfigurationError`."""
    for name, value in properties.items():
        if (
            not (isinstance(name, str) and isinstance(value, str) and name and value)
            or "\x01" in name + value
            or "\x02" in name + value
        ):
            raise ConfigurationError(
                f"a hook gave the property {name!r:.200}: {value!r:.200}; give texts that are not "
                "empty and have no \\x01 or \\x02"
            )
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
