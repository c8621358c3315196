"""Checkpoints and acks of pops, as a broker keeps them in the revive topic.

They are bodies of messages there, byte for byte as Apache RocketMQ 5.4.0 writes them
(`PopCheckPoint`, `AckMsg`, `BatchAckMsg`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.protocol.body_values import read_int, read_long, read_text
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping


CHECKPOINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
MAX_COUNT: Final = 32
"""How many messages one checkpoint covers: the bits of its map."""
_WORD: Final = 0xFFFFFFFF
_LONGEST: Final = 65_536


def _signed(bits: int) -> int:
    return bits - (1 << MAX_COUNT) if bits >> (MAX_COUNT - 1) else bits


class _Record:
    """Reading members of a record under their short or long names."""

    __slots__ = ("_members", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        if len(data) > _LONGEST:
            raise FieldError(f"a {what} of {len(data)} bytes is none")
        members = decode_json(data)
        if not isinstance(members, dict):
            raise FieldError(f"a {what} is not a JSON object")
        self._members: Mapping[str, Any] = members
        self._what = what

    def _get(self, short: str, long: str) -> Any:
        found = self._members.get(short)
        return self._members.get(long) if found is None and long else found

    def _read(self, reader: Any, missing: Any, short: str, long: str) -> Any:
        value = self._get(short, long)
        if value is None:
            return missing
        try:
            return reader(value)
        except ValueError as error:
            raise FieldError(
                f"the member {short} of a {self._what} is {str(value)[:60]!r}, {error}"
            ) from None

    def number(self, short: str, long: str = "") -> int:
        found: int = self._read(read_long, 0, short, long)
        return found

    def small(self, short: str, long: str = "") -> int:
        found: int = self._read(read_int, 0, short, long)
        return found

    def flag(self, name: str) -> bool:
        return self._members.get(name) in (True, "true")

    def text(self, short: str, long: str = "") -> str | None:
        found: str | None = self._read(read_text, None, short, long)
        return found

    def numbers(self, short: str, long: str = "") -> list[int] | None:
        value = self._get(short, long)
        if value is None:
            return None
        if not isinstance(value, list):
            raise FieldError(f"the member {short} of a {self._what} is no array")
        try:
            return [read_long(item) for item in value]
        except ValueError as error:
            raise FieldError(f"the member {short} of a {self._what}: {error}") from None


@attrs.define(slots=True)
class PopCheckPoint:
    """A checkpoint: what one pop took out of one queue.

    Those are `count` messages, at `start_offset` plus each of `distances`; bit n of
    `bits` means that message n is done.

    Times are milliseconds. `revive_offset` is the checkpoint's own place in the revive
    queue, known when it is read there; `re_put_times` says how often it was written
    again because its messages could not be put into the retry topic.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    invisible_time: int
    count: int
    distances: list[int] | None = None
    bits: int = 0
    broker_name: str | None = None
    revive_offset: int = 0
    re_put_times: int | None = None
    suspend: bool = False

    @property
    def revive_time(self) -> int:
        """When what is not acknowledged is seen again (epoch milliseconds)."""
        return self.pop_time + self.invisible_time

    @property
    def all_done(self) -> bool:
        """Whether every message is acknowledged."""
        full = (1 << self.count) - 1
        return self.bits & full == full

    @property
    def key(self) -> str:
        """What an ack has in common with its checkpoint."""
        return match_key(
            self.topic,
            self.group,
            self.queue_id,
            self.start_offset,
            self.pop_time,
            self.broker_name,
        )

    @property
    def identity(self) -> tuple[object, ...]:
        """What it has in common with nothing but another copy of itself.

        Two may have one key: a message gets another invisible time in the millisecond
        in which it is popped again, or is revived with a second try.
        """
        return self.key, self.invisible_time, self.re_put_times, self.count, *(self.distances or ())

    @property
    def unique_key(self) -> str:
        """The unique key of the message that carries it."""
        return (
            f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.group}@{self.pop_time}@"
            f"{self.broker_name or 'null'}@ck"
        )

    def index_of(self, offset: int) -> int:
        """The place of a queue offset, -1 when the checkpoint does not cover it."""
        distance = offset - self.start_offset
        if self.distances is None:
            return distance if 0 <= distance < self.count else -1
        try:
            return self.distances.index(distance)
        except ValueError:
            return -1

    def offset_at(self, index: int) -> int:
        """The queue offset of a message."""
        return self.start_offset + (index if self.distances is None else self.distances[index])

    def acknowledge(self, offsets: list[int]) -> list[int]:
        """Mark messages as done; gives those that the checkpoint does not cover."""
        left: list[int] = []
        bits = self.bits
        for offset in offsets:
            index = self.index_of(offset)
            if index < 0:
                left.append(offset)
            else:
                bits |= 1 << index
        self.bits = bits
        return left

    def open_offsets(self) -> list[int]:
        """The queue offsets that nobody acknowledged."""
        return [self.offset_at(index) for index in range(self.count) if not self.bits >> index & 1]

    def encode(self) -> bytes:
        """The body of the message that carries it."""
        members: dict[str, object] = {"bm": _signed(self.bits & _WORD)}
        if self.broker_name is not None:
            members["bn"] = self.broker_name
        members["c"] = self.group
        if self.distances is not None:
            members["d"] = self.distances
        members |= {
            "it": self.invisible_time,
            "n": self.count,
            "pt": self.pop_time,
            "q": self.queue_id,
            "reviveTime": self.revive_time,
            "ro": self.revive_offset,
        }
        if self.re_put_times is not None:
            members["rp"] = str(self.re_put_times)
        members["so"] = self.start_offset
        if self.suspend:
            members["sp"] = True
        members["t"] = self.topic
        return encode_json(members)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """A checkpoint out of a message's body.

        Raises `RemoteProtocolError` for what cannot be one.
        """
        record = _Record(data, "checkpoint")
        topic, group, count, distances = (
            record.text("t"),
            record.text("c"),
            record.small("n"),
            record.numbers("d"),
        )
        if not topic or not group:
            raise FieldError("a checkpoint names no topic or no group")
        if not 0 <= count <= MAX_COUNT or (distances is not None and len(distances) != count):
            raise FieldError(
                f"a checkpoint of {count} messages has {len(distances or ())} distances"
            )
        return cls(
            topic,
            group,
            record.small("q"),
            record.number("so"),
            record.number("pt"),
            record.number("it"),
            count,
            distances,
            record.small("bm") & _WORD,
            record.text("bn"),
            record.number("ro"),
            _times(record.text("rp")),
            record.flag("sp"),
        )


def _times(text: str | None) -> int | None:
    # As Java's parseInt with 0 for what is no number.
    return None if text is None else int(text) if text.isdecimal() and len(text) < 10 else 0


def match_key(
    topic: str, group: str, queue_id: int, start_offset: int, pop_time: int, broker_name: str | None
) -> str:
    """What an ack has in common with its checkpoint."""
    return f"{topic}{group}{queue_id}{start_offset}{pop_time}{broker_name or 'null'}"


@attrs.define(slots=True)
class AckRecord:
    """An ack: messages of one pop of one queue are done.

    One message (`AckMsg`), or several (`BatchAckMsg`, when `batch`).
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str | None
    offsets: list[int]
    batch: bool = False

    @property
    def key(self) -> str:
        """What it has in common with its checkpoint."""
        return match_key(
            self.topic,
            self.group,
            self.queue_id,
            self.start_offset,
            self.pop_time,
            self.broker_name,
        )

    @property
    def unique_key(self) -> str:
        """The unique key of the message that carries it."""
        head = f"{self.topic}@{self.queue_id}"
        if self.batch:
            return f"{head}@{self.offsets}@{self.group}@{self.pop_time}@{BATCH_ACK_TAG}"
        return (
            f"{head}@{self.offsets[0]}@{self.group}@{self.pop_time}@{self.broker_name or 'null'}@"
            f"{ACK_TAG}"
        )

    @property
    def tag(self) -> str:
        """The tag of the message that carries it."""
        return BATCH_ACK_TAG if self.batch else ACK_TAG

    def encode(self) -> bytes:
        """The body of the message that carries it."""
        members: dict[str, object] = (
            {"ao": -1, "aol": self.offsets} if self.batch else {"ao": self.offsets[0]}
        )
        if self.broker_name is not None:
            members["bn"] = self.broker_name
        members |= {
            "c": self.group,
            "pt": self.pop_time,
            "q": self.queue_id,
            "so": self.start_offset,
            "t": self.topic,
        }
        return encode_json(members)

    @classmethod
    def decode(cls, data: bytes, *, batch: bool) -> Self:
        """An ack out of a message's body.

        Raises `RemoteProtocolError` for what cannot be one.
        """
        record = _Record(data, "ack")
        offsets = (
            record.numbers("aol", "ackOffsetList") or []
            if batch
            else [record.number("ao", "ackOffset")]
        )
        return cls(
            record.text("t", "topic") or "",
            record.text("c", "consumerGroup") or "",
            record.small("q", "queueId"),
            record.number("so", "startOffset"),
            record.number("pt", "popTime"),
            record.text("bn", "brokerName"),
            offsets,
            batch,
        )
