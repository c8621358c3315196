"""Frames that wait to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.protocol.frame import decode_frame
from rocketmq_sdk.remoting.dispatch import error_response

if TYPE_CHECKING:
    from rocketmq_sdk.errors import RocketMQError
    from rocketmq_sdk.protocol.connection import Connection

DIRECT_SIZE: Final = 256 * 1024
"""More unsent bytes than this are left to the writer, which joins no more than this."""


def take_frames(frames: list[bytes], size: int) -> bytes:
    """Take all frames, which have `size` bytes, in one; or some when they are large:
    joining those would cost their memory once more.
    """
    number = len(frames)
    if number > 1 and size > DIRECT_SIZE:
        size = number = 0
        while number < len(frames) and (not number or size + len(frames[number]) <= DIRECT_SIZE):
            size += len(frames[number])
            number += 1
    taken = frames[:number]
    del frames[:number]
    return taken[0] if number == 1 else b"".join(taken)


def refuse_answers(
    frames: list[bytes], first: int, error: RocketMQError, connection: Connection
) -> int:
    """Put an error in the place of the answers from an index on, which are not true.

    Returns how many bytes more that are.
    """
    more = 0
    for number in range(first, len(frames)):
        frame = frames[number]
        answer = decode_frame(memoryview(frame)[4:])
        if not answer.flag & FLAG_RESPONSE:
            continue
        refusal = error_response(error)
        refusal.opaque, refusal.encoding = answer.opaque, answer.encoding
        refusal.flag |= FLAG_RESPONSE
        frames[number] = replaced = connection.send(refusal)
        more += len(replaced) - len(frame)
    return more
