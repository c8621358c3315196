"""What a message is found by, and the hashes of it.

`IndexService.buildIndex` and `IndexFile.indexKeyHashMethod` of Apache RocketMQ 5.4.0. A
message has one entry for its unique key, one for each of its keys, and one for its tags
as a whole. The text of an entry is `topic#key`, of a tag `topic#T#tags`; the index
keeps only the absolute value of Java's hash of it.

Hashing is most of the work of indexing, so it is done in parts: the hash of a text is a
sum over its characters, the topic is always the same, and unique keys of one client
differ only near their end (a time and a counter).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.model.properties import (
    KEYS,
    TAGS,
    UNIQ_KEY,
    property_in_text,
    without_traceparent,
)
from rocketmq_sdk.names import java_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

TAG_TYPE: Final = "T"
_TAIL: Final = 12
_REMEMBERED: Final = 4096
_LONGEST: Final = 256
"""Characters of a text whose hash is remembered: longer ones hardly repeat, and 4,096
of the longest would take 128 MiB.
"""
_MASK: Final = 0xFFFFFFFF
_SMALLEST: Final = 0x80000000
_HEAD_WEIGHTS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in range(_TAIL + 1))
_TAIL_WEIGHTS: Final = tuple(tuple(reversed(_HEAD_WEIGHTS[:length])) for length in range(_TAIL + 1))
_UNIQ_KEY: Final = f"{UNIQ_KEY}\x01"
_KEYS: Final = f"{KEYS}\x01"
_TAGS: Final = f"{TAGS}\x01"
_END: Final = "\x02"
_UNIQ_KEY_AT: Final = len(_UNIQ_KEY)
_UNIQ_KEY_BYTES: Final = _UNIQ_KEY.encode()
_END_BYTE: Final = _END.encode()
COUNTER: Final = 4
_FORMS: Final = 16
"""How many forms of batches are remembered; those of a producer mostly have one."""
_COUNTER_WEIGHT: Final = _HEAD_WEIGHTS[COUNTER]


def key_hash(text: str) -> int:
    """The hash that the index keeps of a text: not negative."""
    return _absolute(java_hash(text))


def query_text(topic: str, key: str, index_type: str | None) -> str:
    """The text to look for; `index_type` T looks for tags, any other for keys."""
    return f"{topic}#{TAG_TYPE}#{key}" if index_type == TAG_TYPE else f"{topic}#{key}"


def _absolute(value: int) -> int:
    """The absolute value of a 32-bit number as Java has it.

    It is 0 for the smallest number, which has none.
    """
    value &= _MASK
    if value < _SMALLEST:
        return value
    return 0 if value == _SMALLEST else _MASK + 1 - value


def _property(text: str, name: str, marker: str) -> str | None:
    """`property_in_text`, fast for a name that occurs at most once in the text."""
    start = text.rfind(marker)
    if start < 0:
        return None
    if start and text[start - 1] != _END:
        return property_in_text(text, name)
    start += len(marker)
    end = text.find(_END, start)
    return text[start:end] if end > start else property_in_text(text, name)


_FARTHEST: Final = 255 * (29791 + 961 + 31 + 1)
"""The most that the last four characters of a key add to a hash."""
Alike = tuple[int, bytes]
"""Where a unique key ends, and the last characters of all keys: see `alike`."""


def alike(properties: Sequence[bytes], *, equally_long: bool = False) -> Alike | None:
    """What texts of properties that begin with a unique key differ in, if in little.

    Returns where the key ends in all of them, and the last `COUNTER` characters of each
    key, joined. None when the texts differ in more, as in most batches and runs of one
    producer they do not. `equally_long`: it is known that they have the same length.
    """
    first, count = properties[0], len(properties)
    length = len(first)
    end = first.find(_END_BYTE, _UNIQ_KEY_AT) if first.startswith(_UNIQ_KEY_BYTES) else -1
    if end < _UNIQ_KEY_AT + COUNTER:
        return None
    if not equally_long and set(map(len, properties)) != {length}:
        return None
    # Nothing is done for each text, except by C.
    texts, sample, same = bytearray().join(properties), bytearray(first), b"0" * count
    counters = bytearray(COUNTER * count)
    for place, at in enumerate(range(end - COUNTER, end)):
        counters[place::COUNTER] = texts[at::length]
        texts[at::length] = same
        sample[at] = same[0]
    return (end, bytes(counters)) if texts == sample * count and counters.isalnum() else None


def _hashes_of_counters(stem: int, counters: bytes) -> Sequence[int]:
    """The hashes of keys of which the last characters differ.

    `stem` is the hash of what is in front of them. All sums are made at once: the
    counters are the digits of one number, of `COUNTER` bytes each. Most keys of a batch
    lie so close together that all their sums are numbers of one sign, which is looked
    at once.
    """
    ones, even, low_half = _digits(len(counters) // COUNTER)
    number = int.from_bytes(counters)
    pairs = (number >> 8 & even) * 31 + (number & even)
    sums = (pairs >> 16 & low_half) * 961 + (pairs & low_half)
    low = stem & _MASK
    high = low + _FARTHEST
    if high < _SMALLEST:
        return _of_digits(sums + low * ones, len(counters))
    if low > _SMALLEST and high <= _MASK:
        return _of_digits((_MASK + 1 - low) * ones - sums, len(counters))
    return [_absolute(low + value) for value in _of_digits(sums, len(counters))]


@lru_cache(_FORMS)
def _digits(count: int) -> tuple[int, int, int]:
    """Numbers with so many digits: each is 1, or has its even bytes or low half set."""
    digits = (b"\0\0\0\1", b"\0\xff\0\xff", b"\0\0\xff\xff")
    ones, even, low_half = [int.from_bytes(digit * count) for digit in digits]
    return ones, even, low_half


def _of_digits(number: int, size: int) -> tuple[int, ...]:
    """The digits of a number that has so many bytes."""
    digits: tuple[int, ...] = struct.unpack(f">{size // COUNTER}I", number.to_bytes(size))
    return digits


class KeyHasher:
    """Hashes of the entries of messages; remembers those of repeated texts."""

    __slots__ = ("_heads", "_rests", "_stem", "_stem_hash", "_tags")

    def __init__(self) -> None:
        self._heads: dict[tuple[str, str], int] = {}
        self._tags: dict[tuple[str, str], int] = {}
        self._rests: dict[tuple[str, str], list[int]] = {}
        """The hashes of what follows a unique key, when that has no list of keys."""
        self._stem = ("", "")
        """Topic and unique key, without its counter, of the message before.

        The messages of a batch often have the same ones.
        """
        self._stem_hash = 0

    def hashes(self, topic: str, properties: str) -> list[int]:
        """One hash for each entry of a message, in the order of the entries.

        `properties` is the encoded text.
        """
        if (
            not properties.startswith(_UNIQ_KEY)
            or (end := properties.find(_END, _UNIQ_KEY_AT)) <= _UNIQ_KEY_AT
        ):
            return self._hashes(topic, properties)
        # Properties as this package's producer writes them: what follows the unique
        # key is the same in many messages.
        rest = (topic, without_traceparent(properties[end:]))
        others = self._rests.get(rest)
        if others is None:
            found = self._hashes(topic, properties)
            if len(rest[1]) <= _LONGEST and _UNIQ_KEY not in rest[1] and _KEYS not in rest[1]:
                self._make_room(self._rests)
                self._rests[rest] = found[1:]
            return found
        return [self._hash_unique(topic, properties[_UNIQ_KEY_AT:end]), *others]

    def hashes_of_batch(
        self,
        topic: str,
        properties: Sequence[bytes],
        positions: Sequence[int],
        same: Alike | None = None,
    ) -> tuple[Sequence[int], Sequence[int]]:
        """The hashes of the entries of several messages.

        Returns them with a list that has the position of its message for each hash.
        `same` is what `alike` says, where it has been asked.
        """
        if same is None:
            same = alike(properties)
        if same is not None and (hashes := self._of_alike(topic, properties[0], *same)):
            return self._with_others(hashes, positions)
        found: list[int] = []
        at: list[int] = []
        known: dict[str, list[int]] = {}
        stem, stem_hash = b"", 0
        for raw, position in zip(properties, positions, strict=True):
            end = raw.find(_END_BYTE, _UNIQ_KEY_AT) if raw.startswith(_UNIQ_KEY_BYTES) else -1
            others, rest = None, ""
            if end > _UNIQ_KEY_AT + _TAIL:
                rest = without_traceparent(raw[end:].decode("utf-8", "replace"))
                others = known.get(rest)
            if others is None or not raw.isascii():
                values = self.hashes(topic, raw.decode("utf-8", "replace"))
                if rest and (others := self._rests.get((topic, rest))) is not None:
                    known[rest] = others
                found += values
                at += [position] * len(values)
                continue
            # As in `_hash_unique`, in two steps: most keys differ from the one before
            # in their last two characters.
            start = raw[_UNIQ_KEY_AT : end - 2]
            if start != stem:
                self._hash_unique(topic, raw[_UNIQ_KEY_AT:end].decode())
                stem = start
                stem_hash = self._stem_hash + raw[end - 4] * 29791 + raw[end - 3] * 961
            value = stem_hash + raw[end - 2] * 31 + raw[end - 1] & _MASK
            found.append(
                value if value < _SMALLEST else 0 if value == _SMALLEST else _MASK + 1 - value
            )
            at.append(position)
            if others:
                found += others
                at += [position] * len(others)
        return found, at

    def _of_alike(
        self, topic: str, first: bytes, end: int, counters: bytes
    ) -> tuple[Sequence[int], list[int]] | None:
        """The hashes of the unique keys of messages that are `alike`, and of the rest.

        None where the first one, which stands for all, is not as usual.
        """
        rest = first[end:]
        if end <= _UNIQ_KEY_AT + _TAIL or not first.isascii() or _UNIQ_KEY_BYTES in rest:
            return None
        others = self._rests.get((topic, without_traceparent(rest.decode())))
        if others is None:
            others = self.hashes(topic, first.decode())[1:]
        self._hash_unique(topic, first[_UNIQ_KEY_AT:end].decode())
        return _hashes_of_counters(self._stem_hash, counters), others

    @staticmethod
    def _with_others(
        hashes: tuple[Sequence[int], list[int]], positions: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Hashes of unique keys, each followed by those of the rest."""
        keys, others = hashes
        if not others:
            return keys, positions
        times = 1 + len(others)
        found: list[int] = []
        at: list[int] = []
        for key, position in zip(keys, positions, strict=True):
            found.append(key)
            found += others
            at += [position] * times
        return found, at

    def _hashes(self, topic: str, properties: str) -> list[int]:
        """`hashes` for any text."""
        found: list[int] = []
        unique = _property(properties, UNIQ_KEY, _UNIQ_KEY)
        if unique is not None:
            found.append(self._hash(topic, unique))
        keys = _property(properties, KEYS, _KEYS)
        if keys is not None:
            found += [self._hash(topic, key) for key in keys.split(" ") if key]
        tags = _property(properties, TAGS, _TAGS)
        if tags is not None:
            value = self._tags.get((topic, tags))
            if value is None:
                value = key_hash(query_text(topic, tags, TAG_TYPE))
                if len(tags) <= _LONGEST:
                    self._make_room(self._tags)
                    self._tags[(topic, tags)] = value
            found.append(value)
        return found

    def _hash_unique(self, topic: str, key: str) -> int:
        """The hash of `topic#key`, fast after a similar key.

        Keys of one client differ in their last characters only.
        """
        if len(key) <= _TAIL or not key.isascii():
            return self._hash(topic, key)
        stem = (topic, key[:-COUNTER])
        if stem != self._stem:
            middle = key[-_TAIL:-COUNTER]
            value = self._head(topic, key[:-_TAIL]) * _HEAD_WEIGHTS[len(middle)] + sum(
                map(mul, middle.encode(), _TAIL_WEIGHTS[len(middle)])
            )
            self._stem, self._stem_hash = stem, value * _COUNTER_WEIGHT & _MASK
        first, second, third, fourth = key[-COUNTER:].encode()
        value = self._stem_hash + first * 29791 + second * 961 + third * 31 + fourth & _MASK
        return value if value < _SMALLEST else 0 if value == _SMALLEST else _MASK + 1 - value

    def _hash(self, topic: str, key: str) -> int:
        """The hash of `topic#key`."""
        tail = key[-_TAIL:]
        if not tail.isascii():
            return key_hash(f"{topic}#{key}")
        length = len(tail)
        value = (
            self._head(topic, key[:-_TAIL]) * _HEAD_WEIGHTS[length]
            + sum(map(mul, tail.encode(), _TAIL_WEIGHTS[length]))
            & _MASK
        )
        return value if value < _SMALLEST else 0 if value == _SMALLEST else _MASK + 1 - value

    def _head(self, topic: str, start: str) -> int:
        """The hash of `topic#start`, not cut to 31 bits."""
        head = (topic, start)
        value = self._heads.get(head)
        if value is None:
            value = java_hash(f"{topic}#{start}")
            if len(start) <= _LONGEST:
                self._make_room(self._heads)
                self._heads[head] = value
        return value

    @staticmethod
    def _make_room(table: dict[tuple[str, str], int] | dict[tuple[str, str], list[int]]) -> None:
        if len(table) >= _REMEMBERED:
            table.clear()
