"""The Bloom filter that holds the bits of consumer groups, bit for bit Apache's.

`BloomFilter` and `BloomFilterData` of Apache RocketMQ 5.4.0. A group's string is
`group#topic`. Its bits are set in the bit map of a message when the group's expression
is TRUE for it; a missing bit says that it is not.
"""

from __future__ import annotations

import math
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MASK32: Final = 0xFFFFFFFF
_MASK64: Final = 0xFFFFFFFFFFFFFFFF
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = Struct("<QQ")


class BloomFilter:
    """A Bloom filter for strings.

    `error_rate` is the accepted percentage of false hits when `capacity` strings are in
    a map.
    """

    __slots__ = ("bits", "capacity", "error_rate", "hashes")

    def __init__(self, error_rate: int = 20, capacity: int = 32) -> None:
        if not 1 <= error_rate < 100 or capacity < 1:
            raise ConfigurationError(
                f"a Bloom filter for {capacity} strings "
                f"with {error_rate} % of false hits cannot be built"
            )
        self.error_rate = error_rate
        self.capacity = capacity
        self.hashes = math.ceil(math.log(error_rate / 100) / math.log(0.5))
        """How many bits a string has."""
        wanted = math.ceil(
            capacity * (math.log(1 / (error_rate / 100)) / math.log(2)) * (1 / math.log(2))
        )
        self.bits = -(-wanted // 8) * 8
        """Size of a map."""

    def positions(self, text: str) -> tuple[int, ...]:
        """The bits of a string, in the order of computation; some may be equal."""
        return _positions(text, self.hashes, self.bits)

    def is_valid(self, positions: Sequence[int], bits: int) -> bool:
        """Whether bits that were kept belong to a filter like this one."""
        return bits == self.bits and len(positions) == self.hashes

    def new_map(self) -> bytearray:
        """A map without any string."""
        return bytearray(self.bits // 8)

    def add(self, positions: Sequence[int], bit_map: bytearray) -> None:
        """Set the bits of a string."""
        for position in positions:
            bit_map[position >> 3] |= 1 << (position & 7)

    def has(self, positions: Sequence[int], bit_map: bytes | bytearray) -> bool:
        """Whether all bits of a string are set; map and filter have one size."""
        return all(bit_map[position >> 3] >> (position & 7) & 1 for position in positions)


@lru_cache(maxsize=4096)
def _positions(text: str, hashes: int, bits: int) -> tuple[int, ...]:
    code = murmur3_low(text.encode("utf-8", "replace"))
    first, second = code & _MASK32, code >> 32
    found = []
    for round_number in range(1, hashes + 1):
        combined = (first + round_number * second) & _MASK32
        # A negative number of Java's is replaced by its complement.
        found.append((combined ^ _MASK32 if combined >> 31 else combined) % bits)
    return tuple(found)


def murmur3_low(data: bytes) -> int:
    """The low 64 bits of MurmurHash3 x64 with 128 bits and seed 0, unsigned."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for k1, k2 in _BLOCK.iter_unpack(data[:whole]):
        h1 = ((_rotated(h1 ^ _mixed1(k1), 27) + h2) * 5 + 0x52DCE729) & _MASK64
        h2 = ((_rotated(h2 ^ _mixed2(k2), 31) + h1) * 5 + 0x38495AB5) & _MASK64
    k1, k2 = _BLOCK.unpack(data[whole:].ljust(16, b"\0"))
    h1 ^= _mixed1(k1) ^ len(data)
    h2 ^= _mixed2(k2) ^ len(data)
    h1 = (h1 + h2) & _MASK64
    h2 = (h2 + h1) & _MASK64
    return (_final(h1) + _final(h2)) & _MASK64


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK64


def _mixed1(value: int) -> int:
    return _rotated(value * _C1 & _MASK64, 31) * _C2 & _MASK64


def _mixed2(value: int) -> int:
    return _rotated(value * _C2 & _MASK64, 33) * _C1 & _MASK64


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK64
    return value ^ value >> 33
