"""The CRC over a whole record, held in the last property `__CRC32#`.

Apache RocketMQ 5.4.0 appends it with `enabledAppendPropCRC` (`MessageExtEncoder`) and
checks it with `forceVerifyPropCRC`. Its place, 20 bytes at the end of the properties,
is kept free when the record is laid out and filled when all else is in place: CRC-32
without the highest bit over all bytes in front of the place, as ten decimal digits, the
lowest first.
"""

from __future__ import annotations

import zlib
from typing import Final

from rocketmq_sdk.model.properties import CRC32

_MARK: Final = CRC32.encode() + b"\x01"
_DIGITS: Final = 10
PROPERTY_CRC_SIZE: Final = len(_MARK) + _DIGITS + 1
_PLACE: Final = _MARK + b"0" * _DIGITS + b"\x02"
_CRC_MASK: Final = 0x7FFFFFFF


def reserve_property_crc(properties: bytes, *, from_batch: bool = False) -> bytes:
    """The properties with room for the CRC at their end; a CRC in them is removed.

    For a message of a client batch Apache does not add the separator that may be
    missing in front.
    """
    if _MARK in properties:
        properties = b"\x02".join(
            [entry for entry in properties.split(b"\x02") if not entry.startswith(_MARK)]
        )
    if properties and not from_batch and not properties.endswith(b"\x02"):
        properties += b"\x02"
    return properties + _PLACE


def fill_property_crc(record: bytes | bytearray | memoryview) -> bytes:
    """The record with the CRC in its place, which `reserve_property_crc` made."""
    covered = memoryview(record)[:-PROPERTY_CRC_SIZE]
    return b"".join((covered, _entry(covered)))


def verify_property_crc(record: bytes | bytearray | memoryview) -> bool:
    """Whether the record ends with a CRC property that is right."""
    if len(record) <= PROPERTY_CRC_SIZE:
        return False
    view = memoryview(record)
    return bytes(view[-PROPERTY_CRC_SIZE:]) == _entry(view[:-PROPERTY_CRC_SIZE])


def _entry(covered: memoryview) -> bytes:
    digits = str(zlib.crc32(covered) & _CRC_MASK)[::-1].ljust(_DIGITS, "0")
    return _MARK + digits.encode("ascii") + b"\x02"
