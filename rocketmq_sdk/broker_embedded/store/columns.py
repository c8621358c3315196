"""Numbers that are set in many equal pieces of bytes at once, a byte in all of them.

Records, queue units and ids of messages that are alike differ in few bytes. So the
first piece is made and repeated, and a slice with a stride sets each byte that differs:
that is one call for a byte of all pieces, not one for each piece.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import repeat
from typing import Final

_LONG: Final = struct.Struct(">q")
_FORMS: Final = 8
"""How many forms are remembered; the batches of a producer mostly have one."""
_REMEMBERED: Final = 8
"""A batch asks for its positions in records, answer and queue units."""

Columns = tuple[tuple[int, bytes], ...]
"""Some bytes of big-endian numbers: where in the number, and that byte of each."""


@lru_cache(_FORMS)
def _lanes(count: int, step: int) -> tuple[int, int]:
    """Numbers with digits of 8 bytes: 0, `step`, 2 `step` and so on, and 1, 1, 1."""
    form = f">{count}q"
    rising, ones = range(0, count * step, step), repeat(1, count)
    return int.from_bytes(struct.pack(form, *rising)), int.from_bytes(struct.pack(form, *ones))


@lru_cache(_REMEMBERED)
def rising_columns(numbers: range) -> Columns:
    """The columns in which positive long numbers differ; others are as in the first.

    Raises `struct.error` for what is no long.
    """
    first, last = numbers[0], numbers[-1]
    _LONG.pack(last)
    rising, ones = _lanes(len(numbers), numbers.step)
    raw = (rising + first * ones).to_bytes(_LONG.size * len(numbers))
    place = _LONG.size - ((first ^ last).bit_length() + 7) // 8
    return tuple([(at, raw[at :: _LONG.size]) for at in range(place, _LONG.size)])


def set_columns(pieces: bytearray, size: int, at: int, values: Columns) -> None:
    """Set numbers at a place in all pieces; `size` is that of a piece."""
    for place, column in values:
        pieces[at + place :: size] = column
