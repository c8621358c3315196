"""The frames of the classic replication protocol. Pure: no sockets, no clock.

`DefaultHAConnection` and `DefaultHAClient` of Apache RocketMQ 5.4.0. There is no
handshake and nothing names the protocol. A slave sends 8 bytes again and again: the
position up to which it has the log. The master sends frames of 8 bytes of position, 4
bytes of size and so many bytes of its log; a frame without bytes is a heartbeat.
Numbers are big-endian and signed.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from rocketmq_sdk.errors import RemoteProtocolError

_REPORT: Final = Struct(">q")
_HEAD: Final = Struct(">qi")
REPORT_SIZE: Final = _REPORT.size
HEAD_SIZE: Final = _HEAD.size
MAX_BODY: Final = 4 * 1024 * 1024 - HEAD_SIZE
"""Largest body of a frame.

It fits into the read buffer of Apache's slave, and no more is taken from a master.
"""


def encode_report(position: int) -> bytes:
    """What a slave tells: it has the log up to here."""
    return _REPORT.pack(position)


def encode_head(position: int, size: int) -> bytes:
    """What goes in front of `size` bytes of the log, 0 for a heartbeat."""
    return _HEAD.pack(position, size)


class ReportReader:
    """Takes the reports of a slave out of a stream of bytes."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes | bytearray) -> int | None:
        """The last complete report in the data so far, or None.

        Older ones no longer count, as with Apache's master. Raises
        `RemoteProtocolError` for a position below 0.
        """
        rest = self._rest + data
        whole = len(rest) - len(rest) % REPORT_SIZE
        self._rest = bytes(rest[whole:])
        if not whole:
            return None
        position: int = _REPORT.unpack_from(rest, whole - REPORT_SIZE)[0]
        if position < 0:
            raise RemoteProtocolError(f"a slave reports the position {position}")
        return position


class FrameReader:
    """Takes the frames of a master out of a stream of bytes."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray) -> list[tuple[int, bytes]]:
        """The frames that are whole now, as position and bytes.

        Raises `RemoteProtocolError` for a position or a size that cannot be.
        """
        buffer = self._buffer
        buffer += data
        frames: list[tuple[int, bytes]] = []
        at = 0
        while len(buffer) - at >= HEAD_SIZE:
            position, size = _HEAD.unpack_from(buffer, at)
            if position < 0 or not 0 <= size <= MAX_BODY:
                raise RemoteProtocolError(
                    f"a master sends a frame of {size} bytes at position {position}"
                )
            end = at + HEAD_SIZE + size
            if end > len(buffer):
                break
            frames.append((position, bytes(buffer[at + HEAD_SIZE : end])))
            at = end
        del buffer[:at]
        return frames
