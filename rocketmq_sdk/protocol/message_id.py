"""The two kinds of message ids.

An offset id names the broker and the physical offset of a record
(`MessageDecoder.createMessageId` of Apache RocketMQ 5.4.0); a unique id is made by the
producer (`MessageClientIDSetter`). Both are upper-case hex of 16 or, with an IPv6
address, 28 bytes, so their form does not tell them apart.
"""

from __future__ import annotations

import os
from datetime import datetime, tzinfo
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from rocketmq_sdk.distinct import next_incarnation, process_id
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.route import unpack_host

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

_SIZES: Final = (16, 28)
_COUNTERS: Final = 0x10000
_BLOCK: Final = 256
_DISTINCTION: Final = 12
"""Bytes of an id behind the address."""
_LOW_BYTES: Final = tuple(f"{number:02X}" for number in range(_BLOCK))
_ENCODED_LOW_BYTES: Final = tuple(digits.encode() for digits in _LOW_BYTES)
DIGITS_OF_BYTES: Final = tuple(map(bytes, zip(*_ENCODED_LOW_BYTES, strict=True)))
"""The first digits of all bytes in upper-case hex, and the second ones."""

IdRange = tuple[str, int, int]
"""Unique ids that differ in the last byte: what is in front of it, its first value, and
the first one behind them.
"""


def ids_of(ranges: Iterable[IdRange]) -> list[str]:
    """The unique ids in some ranges."""
    return [stem + digits for stem, low, end in ranges for digits in _LOW_BYTES[low:end]]


def encoded_ids_of(ranges: Iterable[IdRange]) -> Iterator[bytes]:
    """The same, encoded, each made when it is asked for."""
    return chain.from_iterable(
        map(stem.encode().__add__, _ENCODED_LOW_BYTES[low:end]) for stem, low, end in ranges
    )


def joined_ids(ranges: Iterable[IdRange], without: Collection[int]) -> str:
    """The same with commas, but for those at some places."""
    ids = ids_of(ranges)
    return ",".join([one for at, one in enumerate(ids) if at not in without] if without else ids)


def write_ids(ranges: Sequence[IdRange], pieces: bytearray, size: int, at: int) -> None:
    """Write the unique ids at a place in equal pieces of `size` bytes.

    The id of the first piece is there in all of them, but for its last two digits.
    """
    first = ranges[0][0]
    for stem, low, end in ranges:
        behind = at + size * (end - low)
        if stem != first:
            for digit, (one, other) in enumerate(zip(stem, first, strict=True), at):
                if one != other:
                    pieces[digit:behind:size] = one.encode() * (end - low)
        for digit, column in enumerate(DIGITS_OF_BYTES, at + len(stem)):
            pieces[digit:behind:size] = column[low:end]
        at = behind


def create_offset_id(packed_host: bytes, physical_offset: int) -> str:
    """The offset id for a store host (IP and port, packed) and a physical offset."""
    return (packed_host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def _bytes_of(message_id: str) -> bytes:
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        raw = b""
    if len(raw) * 2 != len(message_id) or not raw:
        raise ConfigurationError(f"{message_id!r} is not a message id; ids are hexadecimal")
    return raw


def parse_offset_id(message_id: str) -> tuple[str, int, int]:
    """IP text, port and physical offset of an offset id.

    A unique id parses too, into numbers without meaning. Raises `ConfigurationError`
    when the text is not 32 or 56 hexadecimal digits.
    """
    raw = _offset_id_bytes(message_id)
    host, port = unpack_host(raw[:-8])
    return host, port, int.from_bytes(raw[-8:], "big", signed=True)


def position_of(message_id: str) -> int:
    """The physical offset of an offset id. Raises as `parse_offset_id` does."""
    return int.from_bytes(_offset_id_bytes(message_id)[-8:], "big", signed=True)


def _offset_id_bytes(message_id: str) -> bytes:
    raw = _bytes_of(message_id)
    if len(raw) not in _SIZES:
        raise ConfigurationError(
            f"{message_id!r} has {len(message_id)} digits; message ids have 32 or 56"
        )
    return raw


def _month_start(now_ms: int, zone: tzinfo | None, *, months_back: int = 0) -> int:
    """The beginning of the month of `now_ms`, or of an earlier month.

    In epoch milliseconds. `zone` None is the local time zone.
    """
    moment = datetime.fromtimestamp(now_ms / 1000, zone)
    months = moment.year * 12 + moment.month - 1 - months_back
    return round(datetime(months // 12, months % 12 + 1, 1, tzinfo=zone).timestamp() * 1000)


def unique_id_time(message_id: str, now_ms: int, *, zone: tzinfo | None = None) -> int:
    """About when a unique id was made, in epoch milliseconds.

    The id holds the time since the beginning of a month; the latest month that fits is
    taken.

    `zone` is the maker's time zone, None the local one. Raises `ConfigurationError`
    when the text is no id.
    """
    raw = _bytes_of(message_id)
    start = (16 if len(raw) == 28 else 4) + 6
    if len(raw) < start + 4:
        raise ConfigurationError(f"{message_id!r} is too short for a unique id")
    passed = int.from_bytes(raw[start : start + 4], "big")
    found = _month_start(now_ms, zone) + passed
    return found if found <= now_ms else _month_start(now_ms, zone, months_back=1) + passed


def unique_id_ip(message_id: str) -> bytes:
    """The packed IP address of a unique id.

    Raises `ConfigurationError` when the text is no id.
    """
    raw = _bytes_of(message_id)
    return raw[: 16 if len(raw) == 28 else 4]


def unique_id_pid(message_id: str) -> int:
    """The low 16 bits of the maker's process id.

    Raises `ConfigurationError` when the text is no id.
    """
    raw = _bytes_of(message_id)
    return int.from_bytes(raw[-12:-10], "big")


class WallClock(Protocol):
    """What a maker of ids needs of a clock; `rocketmq_sdk.clock` has two."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        ...


# An id is: IP, low 16 bits of the pid, an incarnation number, milliseconds since the
# month began, a counter. No id may come twice:
# - within a millisecond the counter has 65536 values; when they are used up, the next
#   millisecond is borrowed, and real time catches up later;
# - a clock that goes back is ignored until it passes the highest millisecond used;
# - a new month starts the milliseconds again, so it takes a new incarnation number;
# - so do a second maker in the process and a forked child, which would otherwise
#   continue with the parent's counter.
class UniqueIdGenerator:
    """Makes the unique ids of one client.

    `ip` is its packed address (4 or 16 bytes). Not for use by several threads at once.
    """

    __slots__ = (
        "__weakref__",
        "_block_end",
        "_counter",
        "_incarnation",
        "_ip",
        "_millisecond",
        "_millisecond_end",
        "_month",
        "_next_month",
        "_now_ms",
        "_pid",
        "_stem",
    )

    def __init__(
        self, ip: bytes, pid: int, clock: WallClock, *, incarnation: int | None = None
    ) -> None:
        if len(ip) not in (4, 16):
            raise ConfigurationError(f"an IP address has 4 or 16 bytes, not {len(ip)}")
        self._ip = ip
        self._pid = pid
        self._incarnation = next_incarnation() if incarnation is None else incarnation
        self._now_ms = clock.now_ms
        self._counter = 0
        self._block_end = 0
        self._millisecond_end = 0
        self._millisecond = -1
        self._month = 0
        self._next_month = 0
        self._stem = ""
        _generators.add(self)

    def next_id(self, now: int | None = None) -> str:
        """A new id; never the same twice. `now` is the time if it is known."""
        if now is None:
            now = self._now_ms()
        counter = self._counter
        if now > self._millisecond or counter == self._block_end:
            self._enter(now)
        self._counter = counter + 1
        return self._stem + _LOW_BYTES[counter & 0xFF]

    def next_ids(self, count: int) -> list[str]:
        """As many new ids, made at one time."""
        return ids_of(self.next_ranges(count))

    def next_ranges(self, count: int) -> list[IdRange]:
        """As many new ids, not written yet."""
        now = self._now_ms()
        ranges: list[IdRange] = []
        while count > 0:
            counter = self._counter
            if now > self._millisecond or counter == self._block_end:
                self._enter(now)
            self._counter = end = min(counter + count, self._block_end)
            count -= end - counter
            low = counter & 0xFF
            ranges.append((self._stem, low, low + end - counter))
        return ranges

    @property
    def digits(self) -> int:
        """How long an id is."""
        return 2 * (len(self._ip) + _DISTINCTION)

    def _enter(self, now: int) -> None:
        """Fix all but the last byte of the next ids.

        It lasts for one millisecond and at most 256 values of the counter.
        """
        # Interrupted by Ctrl-C, it is done again: an old stem would repeat old ids.
        self._block_end = self._counter
        if now > self._millisecond:
            self._enter_millisecond(now)
        elif self._counter == self._millisecond_end:
            self._enter_millisecond(self._millisecond + 1)
        prefix = (
            self._ip
            + (self._pid & 0xFFFF).to_bytes(2, "big")
            + self._incarnation.to_bytes(4, "big")
        )
        since, block = self._millisecond - self._month, self._counter >> 8 & 0xFF
        self._stem = f"{prefix.hex().upper()}{since:08X}{block:02X}"
        self._block_end = min((self._counter | 0xFF) + 1, self._millisecond_end)

    def _enter_millisecond(self, millisecond: int) -> None:
        if millisecond >= self._next_month:
            if self._next_month:
                self._incarnation = next_incarnation()
            self._month = _month_start(millisecond, None)
            self._next_month = _month_start(millisecond, None, months_back=-1)
        self._millisecond = millisecond
        self._millisecond_end = self._counter + _COUNTERS

    def _renew_after_fork(self) -> None:
        self._pid = process_id()
        self._incarnation = next_incarnation()
        self._millisecond = -1


_generators: WeakSet[UniqueIdGenerator] = WeakSet()


def _after_fork() -> None:
    for generator in _generators:
        generator._renew_after_fork()


os.register_at_fork(after_in_child=_after_fork)
