"""Requests that a broker gets as chunks, for tests of what is served together."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import trio
import trio.testing

from rocketmq_sdk.protocol.flags import FLAG_ONEWAY
from rocketmq_sdk.protocol.frame import decode_frame, encode_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.protocol.command import Command

_LENGTH = Struct(">I")


def frames_of(data: bytearray) -> list[bytes]:
    """Take the whole frames out of what was received."""
    found = []
    while len(data) >= 4 and len(data) >= 4 + _LENGTH.unpack_from(data)[0]:
        end = 4 + _LENGTH.unpack_from(data)[0]
        found.append(bytes(data[:end]))
        del data[:end]
    return found


async def exchange(broker: EmbeddedBroker, chunks: Sequence[Sequence[Command]]) -> dict[int, bytes]:
    """Write chunks of requests to a connection, each after the answers to the one
    before; returns the frames of all answers by opaque.
    """
    answers: dict[int, bytes] = {}
    async with trio.open_nursery() as nursery:
        near, far = trio.testing.memory_stream_pair()
        nursery.start_soon(broker.server._serve_stream, far, {})
        received = bytearray()
        for chunk in chunks:
            await near.send_all(b"".join(map(encode_frame, chunk)))
            missing = sum(1 for command in chunk if not command.flag & FLAG_ONEWAY)
            if not missing:
                await trio.testing.wait_all_tasks_blocked()
            while missing:
                data = await near.receive_some()
                assert data, "the broker has closed the connection"
                received += data
                for frame in frames_of(received):
                    answers[decode_frame(frame[4:]).opaque] = frame
                    missing -= 1
        await near.aclose()
        nursery.cancel_scope.cancel()
    return answers
