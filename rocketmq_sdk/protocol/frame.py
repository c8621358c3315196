"""Frames: length word, header encoding and header length, header, body.

Follows `RemotingCommand`, `NettyEncoder` and `NettyDecoder`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.header_binary import (
    CODE_MAX,
    CODE_MIN,
    decode_binary_header,
    encode_binary_header,
)
from rocketmq_sdk.protocol.header_json import decode_json_header, encode_json_header

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.command import Command

DEFAULT_MAX_FRAME: Final = 16 * 1024 * 1024
"""Bytes of the longest frame that peers take by default, its length word included."""

HEADER_LENGTH_MAX: Final = 0xFFFFFF
_WORDS = Struct(">II")
_WORD = Struct(">I")
_ROCKETMQ = HeaderEncoding.ROCKETMQ


def encode_frame(command: Command, *, max_frame: int = DEFAULT_MAX_FRAME) -> bytes:
    """The bytes of a command, length word included, in its header encoding.

    A code that does not fit the 16 bits of a binary header is sent with a JSON header.
    Raises `LocalProtocolError` when the frame is longer than `max_frame` or a field
    does not fit; nothing was sent then.
    """
    if command.encoding is _ROCKETMQ:
        return b"".join((*_head(command, max_frame), command.body))
    # `_head` for the header of nearly all frames, without another call.
    header, body = encode_json_header(command), command.body
    length = len(header)
    total = 4 + length + len(body)
    if total + 4 > max_frame or length > HEADER_LENGTH_MAX:
        raise _too_long(command, total, length, max_frame)
    return b"".join((_WORDS.pack(total, length), header, body))


def encode_head(command: Command, *, max_frame: int = DEFAULT_MAX_FRAME) -> bytes:
    """What comes before the body in a command's bytes. Raises as `encode_frame`."""
    return b"".join(_head(command, max_frame))


def _head(command: Command, max_frame: int) -> tuple[bytes, bytes]:
    """The words at the beginning, and the header."""
    if command.encoding is _ROCKETMQ and CODE_MIN <= command.code <= CODE_MAX:
        header = encode_binary_header(command)
        header_length = len(header)
        word = 0x1000000 | header_length
    else:
        header = encode_json_header(command)
        header_length = word = len(header)
    total = 4 + header_length + len(command.body)
    if total + 4 > max_frame or header_length > HEADER_LENGTH_MAX:
        raise _too_long(command, total, header_length, max_frame)
    return _WORDS.pack(total, word), header


def _too_long(command: Command, total: int, header: int, max_frame: int) -> LocalProtocolError:
    return LocalProtocolError(
        f"{command!r} makes a frame of {total + 4} bytes with a header of {header}; "
        f"the limit is {max_frame}"
    )


def decode_parts(encoding: int, header: bytes, body: bytes) -> Command:
    """A command out of the parts of a frame.

    Raises `RemoteProtocolError` when the header cannot be read.
    """
    if encoding == 0:
        return decode_json_header(header, body)
    if encoding == 1:
        return decode_binary_header(header, body)
    raise RemoteProtocolError(f"a frame has the header encoding {encoding}, which does not exist")


def decode_frame(frame: bytes | memoryview) -> Command:
    """A command out of one complete frame without its length word.

    Raises `RemoteProtocolError` for anything broken.
    """
    if len(frame) < 4:
        raise RemoteProtocolError(
            f"a frame has {len(frame)} bytes, less than the 4 of its header word"
        )
    (word,) = _WORD.unpack_from(frame)
    body_at = 4 + (word & HEADER_LENGTH_MAX)
    if body_at > len(frame):
        raise RemoteProtocolError(
            f"a frame of {len(frame)} bytes announces a header of {body_at - 4}"
        )
    return decode_parts(word >> 24, bytes(frame[4:body_at]), bytes(frame[body_at:]))
