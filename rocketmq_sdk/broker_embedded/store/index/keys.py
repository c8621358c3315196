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

from operator import mul
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.index.hash_lanes import HALF, LANE, hashes_of_ends, power
from rocketmq_sdk.broker_embedded.store.index.words import Words
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
_UNIQ_KEY_BEHIND: Final = _END_BYTE + _UNIQ_KEY_BYTES
_SOME: Final = 16
"""So many messages are worth to be hashed together."""
_COUNTER: Final = 4
_COUNTER_WEIGHT: Final = _HEAD_WEIGHTS[_COUNTER]


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


Alike = tuple[int, bytes]
"""Where a unique key ends, and the last characters of all keys: see `alike`."""


def alike(properties: Sequence[bytes], *, equally_long: bool = False) -> Alike | None:
    """What texts of properties that have a unique key differ in, if in little.

    Returns where the key ends in all of them, and the last characters of each key,
    joined: `HALF`, which is the counter, or `LANE`, with that of the time which changes
    within a minute. None when the texts differ in more, as in most batches and runs of
    one producer they do not. `equally_long`: it is known that they have the same
    length.
    """
    first, count = properties[0], len(properties)
    length = len(first)
    at = _unique_key_at(first)
    end = first.find(_END_BYTE, at) if at else -1
    if end < at + LANE:
        return None
    if not equally_long and set(map(len, properties)) != {length}:
        return None
    # Nothing is done for each text, except by C. Mostly only the counters differ.
    texts, sample, same = bytearray().join(properties), bytearray(first), bytearray(count)
    columns: list[bytearray] = []
    for size in (HALF, LANE):
        places = range(end - size, end - size + HALF)
        columns[:0] = [texts[at::length] for at in places]
        for at in places:
            texts[at::length] = same
            sample[at] = 0
        if texts == sample * count:
            ends = bytearray(size * count)
            for place, column in enumerate(columns):
                ends[place::size] = column
            return (end, bytes(ends)) if ends.isalnum() else None
    return None


def _unique_key_at(properties: bytes) -> int:
    """Where the first unique key begins in a text of properties; 0 without one."""
    if properties.startswith(_UNIQ_KEY_BYTES):
        return _UNIQ_KEY_AT
    at = properties.find(_UNIQ_KEY_BEHIND)
    return at + len(_UNIQ_KEY_BEHIND) if at >= 0 else 0


class KeyHasher:
    """Hashes of the entries of messages; remembers those of repeated texts."""

    __slots__ = ("_around", "_heads", "_others", "_rests", "_stem", "_stem_hash", "_tags")

    def __init__(self) -> None:
        self._heads: dict[tuple[str, str], int] = {}
        self._tags: dict[tuple[str, str], int] = {}
        self._rests: dict[tuple[str, str], list[int]] = {}
        """The hashes of what follows a unique key, when that has no list of keys."""
        self._around = ("", b"", b"")
        self._others: list[int] = []
        """Topic, what stands around the unique keys of messages that are alike, and the
        hashes of the entries of that.
        """
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
            return self._hashes_of_own(topic, properties)
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
        same: Alike | None,
    ) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """The hashes of the entries of several messages.

        Returns them with the position of the message of each, and with those that come
        behind each, for the same message. `same` is what `alike` says.
        """
        if same is not None and (of_keys := self._of_alike(topic, properties, same)):
            return of_keys[0], positions, of_keys[1]
        if len(properties) < _SOME:
            found: list[int] = []
            at: list[int] = []
            for raw, position in zip(properties, positions, strict=True):
                values = self.hashes(topic, raw.decode("utf-8", "replace"))
                found += values
                at += [position] * len(values)
            return found, at, ()
        words = Words(topic)
        words.add_all(properties, positions)
        return words.hashes(), words.positions, ()

    def _of_alike(
        self, topic: str, properties: Sequence[bytes], same: Alike
    ) -> tuple[Sequence[int], Sequence[int]] | None:
        """The hashes of the unique keys of messages that are `alike`, and those of the
        other entries, which all of them have.

        None where the first one, which stands for all, is not as usual.
        """
        first, (end, ends) = properties[0], same
        at, size = _unique_key_at(first), len(ends) // len(properties)
        start, rest = first[at : end - size], first[end:]
        if not start.isascii() or _UNIQ_KEY_BYTES in rest:
            return None
        around = (topic, first[:at], rest)
        if around != self._around:
            self._others = self._hashes(topic, first.decode("utf-8", "replace"))[1:]
            self._around = around
        stem = self._stem_of(topic, start.decode()) * power(size)
        return hashes_of_ends(stem, ends, len(properties)), self._others

    def _hashes_of_own(self, topic: str, properties: str) -> list[int]:
        """`hashes` for a text that does not begin with a unique key.

        Messages of the broker's own have mostly no key at all, and the same text.
        """
        found = self._rests.get((topic, properties))
        if found is None:
            found = self._hashes(topic, properties)
            keyed = _UNIQ_KEY in properties or _KEYS in properties
            if len(properties) <= _LONGEST and not keyed:
                self._make_room(self._rests)
                self._rests[topic, properties] = found
        return found

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
        stem = (topic, key[:-_COUNTER])
        if stem != self._stem:
            middle = key[-_TAIL:-_COUNTER]
            value = self._head(topic, key[:-_TAIL]) * _HEAD_WEIGHTS[len(middle)] + sum(
                map(mul, middle.encode(), _TAIL_WEIGHTS[len(middle)])
            )
            self._stem, self._stem_hash = stem, value * _COUNTER_WEIGHT & _MASK
        first, second, third, fourth = key[-_COUNTER:].encode()
        value = self._stem_hash + first * 29791 + second * 961 + third * 31 + fourth & _MASK
        return value if value < _SMALLEST else 0 if value == _SMALLEST else _MASK + 1 - value

    def _stem_of(self, topic: str, start: str) -> int:
        """The hash of `topic#start`, fast where its last characters are a time."""
        last = start[-LANE:]
        value: int = sum(map(mul, last.encode(), _TAIL_WEIGHTS[len(last)]))
        return self._head(topic, start[:-LANE]) * power(len(last)) + value

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
