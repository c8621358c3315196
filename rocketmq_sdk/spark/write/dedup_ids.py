"""Dedup ids: scope, partition, a hash of the row, and its ordinal among equal rows.

A task that runs again over the same rows gives the same ids, whatever the rows' order.
Rows that still have the place where they were read from are told apart by it, so their
ids do not name the partition, and are the same however the rows are spread over tasks.
To number equal rows a task has to remember the hash of every row that it has written.
Neither Spark nor pyarrow is needed here.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HASH_SIZE: Final = 16
_SET_LIMIT: Final = 1 << 19
"""Hashes up to which a set remembers them.

A set is faster but takes 110 bytes for each; packed they take 25 to 30.
"""
_BUCKETS: Final = 1 << 16
_REST: Final = HASH_SIZE - 2


def content_hash(content: bytes) -> bytes:
    """128 bits of a row's content."""
    return blake2b(content, digest_size=HASH_SIZE).digest()


class _Packed:
    """Hashes packed in memory.

    Those that begin with the same two bytes are kept together, one after another, in no
    order.
    """

    def __init__(self, hashes: set[bytes]) -> None:
        self._buckets = [bytearray() for _ in range(_BUCKETS)]
        for value in hashes:
            self._buckets[value[0] << 8 | value[1]] += value[2:]

    def add(self, value: bytes) -> bool:
        """Remember a hash; whether it was there before."""
        bucket = self._buckets[value[0] << 8 | value[1]]
        rest = value[2:]
        place = bucket.find(rest)
        while place >= 0:
            if place % _REST == 0:
                return True
            place = bucket.find(rest, place + 1)
        bucket += rest
        return False


class DedupIds:
    """Gives the rows of one task their ordinals among equal rows.

    `start` is what ids begin with; `placed_start`, never longer, is that of rows with
    a place.
    """

    def __init__(self, scope: str, partition: int, *, set_limit: int = _SET_LIMIT) -> None:
        self.start = f"{scope}:{partition}:"
        self.placed_start = f"{scope}:-:"
        self._set_limit = set_limit
        self._seen: set[bytes] = set()
        self._packed: _Packed | None = None
        self._repeated: dict[bytes, int] = {}
        """How often each hash came, of those that came more than once."""

    def ordinals(self, hashes: Sequence[bytes]) -> list[int] | None:
        """How many rows of the same content came before each row; None for all zero."""
        if self._packed is not None:
            packed = [self._ordinal(value, self._packed.add(value)) for value in hashes]
            return packed if any(packed) else None
        seen, fresh = self._seen, set(hashes)
        result: list[int] | None = None
        if len(fresh) == len(hashes) and seen.isdisjoint(fresh):
            seen |= fresh
        else:
            result = []
            for value in hashes:
                result.append(self._ordinal(value, value in seen))
                seen.add(value)
        if len(seen) > self._set_limit:
            self._packed = _Packed(seen)
            self._seen = set()
        return result

    def _ordinal(self, value: bytes, was_there: bool) -> int:
        if not was_there:
            return 0
        ordinal = self._repeated.get(value, 1)
        self._repeated[value] = ordinal + 1
        return ordinal

    def id_of(self, value: bytes, *, placed: bool = False) -> str:
        """The id of one row."""
        ordinals = self.ordinals([value])
        start = self.placed_start if placed else self.start
        return f"{start}{value.hex()}:{ordinals[0] if ordinals else 0}"
