"""A CRC of the whole record as its last property (`enabledAppendPropCRC`, `CommitLog` and `MessageExtEncoder` of Apache RocketMQ 5.4.0).

The last 20 bytes of a record are `__CRC32#`, 01, ten digits, 02; the digits are those of the CRC-32 (without its sign bit) of all bytes in front of
them, the lowest one first.
"""

import zlib
from typing import Final

NAME: Final = b"__CRC32#"
RESERVED: Final = 20
_MASK: Final = 0x7FFFFFFF
_PLACE: Final = b"__CRC32#\x01" + b"0" * 10 + b"\x02"


def reserve(properties: bytes, *, in_batch: bool = False) -> bytes:
    """Properties with room for the CRC; one that a sender put there is taken out. Of a client batch they are not completed by a 02 in front."""
    if NAME in properties:
        properties = b"".join(entry + b"\x02" for entry in properties.split(b"\x02") if entry and not entry.startswith(NAME + b"\x01"))
    separator = b"" if in_batch or not properties or properties.endswith(b"\x02") else b"\x02"
    return properties + separator + _PLACE


def seal(record: bytes) -> bytes:
    """The record with the CRC in the room that `reserve` made."""
    front = record[:-RESERVED]
    digits = str(zlib.crc32(front) & _MASK)[::-1].ljust(10, "0")
    return b"%b__CRC32#\x01%b\x02" % (front, digits.encode())


def matches(record: bytes) -> bool:
    """Whether a record ends in a CRC that is its own."""
    return record[-RESERVED:-RESERVED + len(NAME)] == NAME and seal(record) == record
