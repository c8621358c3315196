"""Frames that wait to be written keep in memory what is counted for them."""

from __future__ import annotations

import pytest
import trio

from rocketmq_sdk.remoting.queued_frames import Piece, send_queued, take_frames


class _TakesAllBut(trio.abc.SendStream):
    """A stream that leaves some bytes of the first write."""

    sends_now = True

    def __init__(self, left: int) -> None:
        self._left = left

    def send_now(self, data: bytes) -> int:
        return len(data) - self._left

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        raise NotImplementedError

    async def wait_send_all_might_not_block(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


def kept(piece: Piece) -> int:
    """The bytes that stay in memory with a piece."""
    return memoryview(piece.obj).nbytes if isinstance(piece, memoryview) else len(piece)


@pytest.mark.parametrize("left", [1, 4096, 5000, 100_000])
def test_the_rest_of_answers_that_show_one_body_does_not_keep_it(left: int) -> None:
    body = memoryview(bytes(200_000))
    frames: list[Piece] = [b"h" * 60, body[:195_000], b"h" * 60, body[195_000:]]
    size = sum(map(len, frames))
    sent = send_queued(_TakesAllBut(left), frames, size)  # type: ignore[arg-type]
    assert size - sent == left
    rest = take_frames(frames, left)
    assert len(rest) == left
    assert kept(rest) <= 2 * left
    assert not frames


def test_a_large_body_that_waits_alone_is_not_copied() -> None:
    body = memoryview(bytes(600_000))
    frames: list[Piece] = [b"h" * 60, body]
    assert take_frames(frames, 600_060) == b"h" * 60
    assert take_frames(frames, 600_000) is body
