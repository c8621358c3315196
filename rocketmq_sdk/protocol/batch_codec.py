"""The body of a client batch: small frames one after another.

Follows `MessageDecoder.encodeMessages` of Apache RocketMQ 5.4.0.

Each frame is total size, magic 0, CRC 0, flag, body length and body, properties length
and properties. The same form is the body of an inner batch (topics with queue type
BatchCQ). The three numbers in front of the flag are not checked by Apache when it
reads, except that here the total size must agree with the lengths behind it, since it
cannot be anything else.
"""

from __future__ import annotations

from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEAD: Final = Struct(">iIIii")
_SHORT: Final = Struct(">h")
_HEAD_SIZE: Final = _HEAD.size
FRAME_OVERHEAD: Final = _HEAD.size + _SHORT.size
"""Bytes of a message in a batch besides its body and its properties."""
MAX_PROPERTIES: Final = 32767

BatchItem = tuple[int, bytes, bytes]
"""Flag, body and encoded properties of one message of a batch."""


def batch_head(total: int, flag: int, body_length: int) -> bytes:
    """What stands in front of the body of a message with `total` bytes in a batch."""
    return _HEAD.pack(total, 0, 0, flag, body_length)


def batch_heads(
    totals: Iterable[int], flags: Iterable[int], body_lengths: Iterable[int]
) -> Iterator[bytes]:
    """`batch_head` for several messages."""
    return map(_HEAD.pack, totals, repeat(0), repeat(0), flags, body_lengths)


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The batch body for messages in order.

    For bodies of `Producer.send_encoded_batch`, of tests and of tools; producers write
    the bodies of their own batches from forms (`producer.outgoing`).

    Raises `LocalProtocolError` when the properties of one are longer than 32767 bytes.
    """
    parts: list[bytes] = []
    put = parts.append
    for flag, body, properties in items:
        body_length = len(body)
        properties_length = len(properties)
        if properties_length > MAX_PROPERTIES:
            raise LocalProtocolError(
                f"the properties of a message take {properties_length} bytes, more than "
                f"{MAX_PROPERTIES}"
            )
        put(batch_head(FRAME_OVERHEAD + body_length + properties_length, flag, body_length))
        put(body)
        put(_SHORT.pack(properties_length))
        put(properties)
    return b"".join(parts)


def decode_batch(data: bytes | bytearray | memoryview) -> list[BatchItem]:
    """The messages of a batch body, in order; an empty body holds none.

    Raises `RemoteProtocolError` naming the position of the frame that is broken.
    """
    if type(data) is not bytes:
        data = bytes(data)
    size = len(data)
    position = 0
    items: list[BatchItem] = []
    while position < size:
        body_start = position + _HEAD_SIZE
        if body_start > size:
            raise RemoteProtocolError(
                f"the batch ends inside the head of the message at {position}: {size - position} "
                "bytes are left"
            )
        total, _magic, _crc, flag, body_length = _HEAD.unpack_from(data, position)
        end = position + total
        body_end = body_start + body_length
        if body_length < 0 or end > size or body_end + 2 > end:
            claim = f"claims {total} bytes with a body of {body_length}"
            raise RemoteProtocolError(
                f"the batch message at {position} {claim}; {size - position} bytes are left"
            )
        properties_start = body_end + 2
        if properties_start + _SHORT.unpack_from(data, body_end)[0] != end:
            raise RemoteProtocolError(
                f"the properties of the batch message at {position} do not end where the message "
                "does"
            )
        items.append((flag, data[body_start:body_end], data[properties_start:end]))
        position = end
    return items


def count_batch(data: bytes) -> int:
    """The number of messages in a batch body, without taking them out of it.

    Raises as `decode_batch`.
    """
    size = len(data)
    position = count = 0
    while position < size:
        body_start = position + _HEAD_SIZE
        if body_start > size:
            return len(decode_batch(data))
        total, _magic, _crc, _flag, body_length = _HEAD.unpack_from(data, position)
        end = position + total
        body_end = body_start + body_length
        if (
            body_length < 0
            or end > size
            or body_end + 2 > end
            or body_end + 2 + _SHORT.unpack_from(data, body_end)[0] != end
        ):
            return len(decode_batch(data))
        position = end
        count += 1
    return count
