"""Pops of queues whose messages are damaged in the log; no start looked at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.pop.plan import first_offset, record_offsets
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.errors import StoreCorruptError
from rocketmq_sdk.protocol.message_codec import POSITION_QUEUE_OFFSET
from support.broker import open_on
from support.popping import Popper, make_topic

if TYPE_CHECKING:
    from trio.testing import MockClock

BODY_AT = 88
LOG = "commitlog/00000000000000000000"
GARBAGE = [
    pytest.param(bytes(4), id="zero"),
    pytest.param(b"\xff" * 4, id="negative"),
    pytest.param(b"\x7f" + b"\xff" * 3, id="huge"),
    pytest.param(b"\x00\x00\x00\x01", id="tiny"),
]


def damage(files: MemoryFileSystem, body: bytes, at: int, garbage: bytes) -> None:
    """Overwrite bytes of the record that holds a body, `at` behind its begin."""
    file = files.open(LOG)
    found = file.pread(1 << 16, 0).index(body)
    file.pwrite(garbage, found - BODY_AT + at)
    file.close()


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_pop_goes_over_a_damaged_message(
    autojump_clock: MockClock, garbage: bytes, order: bool
) -> None:
    files = MemoryFileSystem()
    bodies = [b"body-%d" % number * (number + 1) for number in range(6)]
    async with open_on(files) as (_broker, peer):
        await make_topic(peer, "T", 1)
        for body in bodies:
            await peer.send("T", body)
    damage(files, bodies[2], 0, garbage)
    async with open_on(files) as (_broker, peer):
        popper = Popper(peer, "T", order=order)
        found: list[bytes] = []
        for _ in range(8):
            result = await popper.pop(max_msg_nums=32)
            found += [message.body for message in result.messages]
            for handle in result.handles:
                await popper.ack(handle)
        assert found == bodies[:2] + bodies[3:]
        assert await peer.pull("T", 3)


@pytest.mark.parametrize("offset", [-1, 1 << 62])
async def test_a_damaged_queue_offset(autojump_clock: MockClock, offset: int) -> None:
    files = MemoryFileSystem()
    async with open_on(files) as (_broker, peer):
        await make_topic(peer, "T", 1)
        for number in range(4):
            await peer.send("T", b"body-%d" % number)
    garbage = offset.to_bytes(8, "big", signed=True)
    damage(files, b"body-1", POSITION_QUEUE_OFFSET, garbage)
    async with open_on(files) as (_broker, peer):
        popper = Popper(peer, "T")
        found = [body for _ in range(5) for body in await popper.bodies()]
        assert found == [b"body-0", b"body-2", b"body-3"]


@pytest.mark.parametrize("body", [b"", b"\x00\x00\x00\x05a", bytes(200), b"\xff" * 200])
def test_what_is_no_record(body: bytes) -> None:
    with pytest.raises(StoreCorruptError):
        record_offsets(body, 10)
    assert first_offset(body[:20]) == -1
