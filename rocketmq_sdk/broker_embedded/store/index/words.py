"""The hashes of the entries of messages that differ in more than their unique keys.

Keys, tags and the rest of their properties may differ as they like. What each message
is found by is cut out of its bytes, and hashed with that of the others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.index.hash_lanes import (
    LANE,
    MOST,
    hashes_of_words,
    power,
)
from rocketmq_sdk.model.properties import KEYS, TAGS, UNIQ_KEY, value_in_bytes
from rocketmq_sdk.names import java_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

_END: Final = b"\x02"
_UNIQ_KEY: Final = f"\x02{UNIQ_KEY}\x01".encode()
_KEYS: Final = f"\x02{KEYS}\x01".encode()
_TAGS: Final = f"\x02{TAGS}\x01".encode()
_TRACE: Final = b"\x02traceparent\x01"
_TRACE_SIZE: Final = 55
"""Bytes of the context of a trace, as W3C has it; it differs in each message."""
_TOPICS: Final = 64
"""Topics whose sums are remembered."""
_FIRST: Final = _UNIQ_KEY[1:]
_FIRST_AT: Final = len(_FIRST)
_RESTS: Final = 32
"""How many texts behind a unique key are remembered; where they differ, more do."""
_STARTS: Final = 8
"""How many beginnings of unique keys are told apart; those of one client are few."""
_AT_ONCE: Final = 256
"""Words that are hashed together."""


class Words:
    """What messages of a topic are found by, and the positions of their records.

    An entry has a word, and the sum of what stands in front of it in the text of the
    entry.
    """

    __slots__ = ("_keys", "_rests", "_starts", "_stems", "_tags", "_topic", "_words", "positions")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._keys, self._tags = _sums(topic)
        self._starts: dict[bytes, int] = {}
        self._rests: dict[bytes, tuple[list[bytes], list[int]]] = {}
        """Words, and sums in front of them, of what stands behind a unique key."""
        self._words: list[bytes] = []
        self._stems: list[int] = []
        self.positions: list[int] = []
        """For each entry."""

    def add_all(self, properties: Sequence[bytes], positions: Sequence[int]) -> None:
        """Add the entries of messages, in their order."""
        words, stems, at = self._words, self._stems, self.positions
        starts, rests = self._starts, self._rests
        for text, position in zip(properties, positions, strict=True):
            count = len(words)
            end = text.find(_END, _FIRST_AT) if text.startswith(_FIRST) else -1
            rest = text[end:] if end >= _FIRST_AT + LANE else b""
            others = rests.get(rest)
            if others is None and _TRACE in rest:
                rest = _without_trace(rest)
                others = rests.get(rest)
            if others is None:
                self._add(text, rest)
            else:
                stem, last = starts.get(text[_FIRST_AT : end - LANE]), text[end - LANE : end]
                if stem is None or not last.isascii():
                    self._add_unique(text[_FIRST_AT:end])
                else:
                    words.append(last)
                    stems.append(stem)
                words += others[0]
                stems += others[1]
            at += (position,) * (len(words) - count)

    def _add(self, properties: bytes, rest: bytes) -> None:
        """Add the entries of any message.

        `rest` is what stands behind a unique key, where that is in front.
        """
        text, is_ascii = _END + properties, properties.isascii()
        words, stems, of_keys = self._words, self._stems, self._keys
        if unique := value_in_bytes(text, _UNIQ_KEY):
            self._add_unique(unique)
        count = len(words)
        if keys := value_in_bytes(text, _KEYS):
            for key in keys.split(b" ") if b" " in keys else (keys,):
                if is_ascii and 0 < len(key) <= MOST:
                    words.append(key)
                    stems.append(of_keys[len(key)])
                elif key:
                    self._add_word(key, of_keys, "#")
        if tags := value_in_bytes(text, _TAGS):
            self._add_word(tags, self._tags, "#T#")
        if rest and not keys and len(self._rests) < _RESTS and text.rfind(_UNIQ_KEY, 1) < 0:
            self._rests[rest] = words[count:], stems[count:]

    def _add_unique(self, key: bytes) -> None:
        """Add a unique key: most begin as others do."""
        start, last = key[:-LANE], key[-LANE:]
        stem = self._starts.get(start)
        if stem is None and len(self._starts) < _STARTS and start.isascii():
            stem = java_hash(f"{self._topic}#{start.decode()}") * power(LANE) & 0xFFFFFFFF
            self._starts[start] = stem
        if stem is None or len(last) < LANE or not last.isascii():
            self._add_word(key, self._keys, "#")
        else:
            self._words.append(last)
            self._stems.append(stem)

    def hashes(self) -> Sequence[int]:
        """The hash of each entry."""
        words, stems = self._words, self._stems
        if 0 < len(words) <= _AT_ONCE:
            return hashes_of_words(words, stems)
        found: list[int] = []
        for first in range(0, len(words), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            found += hashes_of_words(words[part], stems[part])
        return found

    def _add_word(self, word: bytes, stems: Sequence[int], separator: str) -> None:
        length = len(word)
        if length <= MOST and word.isascii():
            self._words.append(word)
            self._stems.append(stems[length])
        else:
            self._words.append(b"")
            text = f"{self._topic}{separator}{word.decode('utf-8', 'replace')}"
            self._stems.append(java_hash(text) & 0xFFFFFFFF)


def _without_trace(text: bytes) -> bytes:
    """`without_traceparent` for bytes."""
    at = text.find(_TRACE)
    end = at + len(_TRACE) + _TRACE_SIZE
    value = text[at + len(_TRACE) : end].replace(b"-", b"")
    return text[:at] + text[end:] if text[end : end + 1] == _END and value.isalnum() else text


@lru_cache(_TOPICS)
def _sums(topic: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What topic and separator add to the hash of a word of each length: in entries of
    keys, and in those of tags.
    """
    starts = java_hash(f"{topic}#"), java_hash(f"{topic}#T#")
    keys, tags = [
        tuple(start * power(length) & 0xFFFFFFFF for length in range(MOST + 1)) for start in starts
    ]
    return keys, tags
