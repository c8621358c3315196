"""Frames that wait to be written.

A frame is bytes. Where its body is large, that follows as a view, so that it is copied
nowhere but into the socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.protocol.frame import decode_frame
from rocketmq_sdk.protocol.frame_template import frame_of, head_of
from rocketmq_sdk.remoting.dispatch import error_response
from rocketmq_sdk.transport.tcp import send_now, send_pieces_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import trio

    from rocketmq_sdk.errors import RocketMQError
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.protocol.connection import Connection
    from rocketmq_sdk.remoting.channel import Reply

DIRECT_SIZE: Final = 256 * 1024
"""More unsent bytes than this are left to the writer, which joins no more than this."""
ENOUGH: Final = 16
"""Requests of a chunk that are worth a write for the answers to those before them: so
the peer works on these answers while they are served.
"""
JOINED_SIZE: Final = 16 * 1024
"""Up to so many bytes are joined: cheaper than to tell the socket of each piece."""
LARGE: Final = 4096
"""Bytes of a body that stays apart from its header."""

_ONLY_FRAMES: Final = {bytes}

Piece = bytes | memoryview
"""A frame, the beginning of one, or the body that belongs to the piece before."""


def frame_with(header: bytes, body: bytes | memoryview) -> bytes | tuple[bytes, memoryview]:
    """The frame with a JSON header that is encoded: whole, or with its body apart."""
    if len(body) < LARGE:
        return frame_of(header, body)
    return head_of(header, body), memoryview(body)


def queue_frame(frames: list[Piece], connection: Connection, command: Command) -> int:
    """Add the frame of a command; returns the number of its bytes.

    Raises `LocalProtocolError` when it cannot be written.
    """
    body = command.body
    if len(body) < LARGE:
        frames.append(frame := connection.send(command))
        return len(frame)
    head = connection.send_head(command)
    frames += (head, memoryview(body))
    return len(head) + len(body)


def queue_replies(
    frames: list[Piece],
    requests: Iterable[Command],
    replies: Sequence[Reply],
    answer: Callable[[Command, Command], None],
) -> int:
    """Add the replies to requests that were served together.

    Returns the bytes of those that are frames; `answer` is called for the others.
    """
    if {*map(type, replies)} == _ONLY_FRAMES:
        frames += replies  # type: ignore[arg-type]
        return sum(map(len, replies))  # type: ignore[arg-type]
    size = 0
    for request, reply in zip(requests, replies, strict=False):
        if isinstance(reply, bytes):
            frames.append(reply)
            size += len(reply)
        elif isinstance(reply, tuple):
            frames += reply
            size += len(reply[0]) + len(reply[1])
        elif reply is not None:
            answer(request, reply)
    return size


def send_queued(stream: trio.abc.Stream, frames: list[Piece], size: int) -> int:
    """Send of all frames, which have `size` bytes, what the stream takes at once.

    They are dropped from the list. Returns the number of bytes.
    """
    if len(frames) == 1 and isinstance(first := frames[0], bytes):
        sent = send_now(stream, first)
    elif size > JOINED_SIZE and len(frames) > 1:
        sent = send_pieces_now(stream, frames)
    else:
        sent = send_now(stream, b"".join(frames))
    if sent == size:
        frames.clear()
        return sent
    left, number = sent, 0
    while (length := len(frames[number])) <= left:
        left -= length
        number += 1
    frames[: number + 1] = [memoryview(frames[number])[left:] if left else frames[number]]
    return sent


def take_frames(frames: list[Piece], size: int) -> Piece:
    """Take all frames, which have `size` bytes, in one; or some when they are large:
    joining those would cost their memory once more.

    What is taken does not keep much more in memory than it has bytes: views of answers
    that were made together show one body, which leaves memory with the last of them.
    """
    number = len(frames)
    if number > 1 and size > DIRECT_SIZE:
        size = number = 0
        while number < len(frames) and (not number or size + len(frames[number]) <= DIRECT_SIZE):
            size += len(frames[number])
            number += 1
    taken = frames[:number]
    del frames[:number]
    piece = taken[0]
    if number == 1 and not (
        isinstance(piece, memoryview) and 2 * len(piece) < memoryview(piece.obj).nbytes
    ):
        return piece
    return b"".join(taken)


def refuse_answers(
    frames: list[Piece], first: int, error: RocketMQError, connection: Connection
) -> int:
    """Put an error in the place of the answers from an index on, which are not true.

    Returns how many bytes more that are.
    """
    more = 0
    for number in range(first, len(frames)):
        frame = frames[number]
        if isinstance(frame, memoryview):
            continue
        body = frames[number + 1] if number + 1 < len(frames) else b""
        apart = isinstance(body, memoryview)
        answer = decode_frame(memoryview(b"".join((frame, body)) if apart else frame)[4:])
        if not answer.flag & FLAG_RESPONSE:
            continue
        refusal = error_response(error)
        refusal.opaque, refusal.encoding = answer.opaque, answer.encoding
        refusal.flag |= FLAG_RESPONSE
        frames[number] = replaced = connection.send(refusal)
        more += len(replaced) - len(frame)
        if apart:
            more -= len(body)
            frames[number + 1] = memoryview(b"")
    return more
