"""Hashes of many texts at once: Java's, as the digits of one number.

`String.hashCode` is a sum over the characters of a text, which counts on with 32 bits.
So all sums can be made together: the texts stand one behind the other in one number, of
which each eight bytes are a lane. A lane has room for eight characters times their
powers of 31, and no sum reaches into its neighbour. What each text costs is then done
by C.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LANE: Final = 8
"""Characters of a lane, and its bytes."""
HALF: Final = LANE // 2
MOST: Final = 8 * LANE
"""Characters of the longest text that is hashed with others."""
_FORMS: Final = 64
"""How many numbers of lanes are remembered; batches of a producer mostly have one."""
_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in range(MOST + 1))
_FARTHEST: Final = 255 * (31**3 + 31**2 + 31 + 1)
"""The most that the last four characters of a text add to its hash."""


def hashes_of_ends(stem: int, ends: bytes, count: int) -> tuple[int, ...]:
    """The hashes of texts that begin alike, and differ in their last bytes only.

    `ends` are these, joined: `HALF` or `LANE` of each. `stem` is Java's sum of what is
    in front of them, times the power that they take.
    """
    stem &= _MASK
    if len(ends) == count * HALF:
        ones, evens, pairs = _halves(count)
        number = int.from_bytes(ends)
        number = (number >> 8 & evens) * 31 + (number & evens)
        number = (number >> 16 & pairs) * 961 + (number & pairs)
        # Mostly they lie so close together that all are numbers of one sign.
        if stem + _FARTHEST < _SIGN:
            return _values((number + stem * ones).to_bytes(len(ends)))
        if stem > _SIGN and stem + _FARTHEST <= _MASK:
            return _values(((_MASK + 1 - stem) * ones - number).to_bytes(len(ends)))
        wide = bytearray(count * LANE)
        for place in range(HALF):
            wide[HALF + place :: LANE] = ends[place::HALF]
        ends = bytes(wide)
    lanes = _lanes(count)
    return _absolute(_sums(int.from_bytes(ends), lanes) + stem * lanes[0], lanes, count)


def hashes_of_words(words: Sequence[bytes], stems: Sequence[int]) -> tuple[int, ...]:
    """The hashes of texts of one byte for each character, and no more than `MOST`.

    What stands in front of a word adds what is at its place in `stems`, a number of 32
    bits. There is one word or more.
    """
    count = len(words)
    parts = (max(map(len, words)) + LANE - 1) // LANE or 1
    size, lanes = parts * LANE, _lanes(count)
    text = b"".join([word.rjust(size, b"\0") for word in words])
    sums = int.from_bytes(struct.pack(f">{count}Q", *stems))
    # One lane of each word at a time, the last ones first.
    for part in range(parts):
        start = size - (part + 1) * LANE
        ends = bytearray(text) if parts == 1 else bytearray(count * LANE)
        for place in range(LANE if parts > 1 else 0):
            ends[place::LANE] = text[start + place :: size]
        of_part = _sums(int.from_bytes(ends), lanes)
        sums += (of_part & lanes[3]) * _POWERS[part * LANE] & lanes[3] if part else of_part
    return _absolute(sums, lanes, count)


def power(exponent: int) -> int:
    """A power of 31 with 32 bits, up to that of `MOST`."""
    return _POWERS[exponent]


_Lanes = tuple[int, int, int, int]
"""Lanes in which is set: 1, the even bytes, the even pairs of bytes, the low half."""


def _sums(number: int, lanes: _Lanes) -> int:
    """The sum of the characters of each lane, in it; all take less than 43 bits."""
    _ones, evens, pairs, halves = lanes
    number = (number >> 8 & evens) * 31 + (number & evens)
    number = (number >> 16 & pairs) * 961 + (number & pairs)
    return (number >> 32 & halves) * 923521 + (number & halves)


def _absolute(number: int, lanes: _Lanes, count: int) -> tuple[int, ...]:
    """The absolute values of the last 32 bits of each lane, as Java has them.

    It is 0 for the smallest number, which has none.
    """
    ones, _evens, _pairs, halves = lanes
    number &= halves
    signs = number >> 31 & ones
    if signs:
        number = (number ^ (signs << 32) - signs) + signs
        number &= halves ^ ones << 31
    return struct.unpack(f">{count}Q", number.to_bytes(count * LANE))


@lru_cache(_FORMS)
def _lanes(count: int) -> _Lanes:
    lanes = (
        b"\0\0\0\0\0\0\0\1",
        b"\0\xff\0\xff\0\xff\0\xff",
        b"\0\0\xff\xff\0\0\xff\xff",
        b"\0\0\0\0\xff\xff\xff\xff",
    )
    ones, evens, pairs, halves = [int.from_bytes(lane * count) for lane in lanes]
    return ones, evens, pairs, halves


@lru_cache(_FORMS)
def _halves(count: int) -> tuple[int, int, int]:
    """The same for lanes of half the size: 1, the even bytes, the low pairs."""
    halves = (b"\0\0\0\1", b"\0\xff\0\xff", b"\0\0\xff\xff")
    ones, evens, pairs = [int.from_bytes(half * count) for half in halves]
    return ones, evens, pairs


def _values(raw: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(raw) // HALF}I", raw)
