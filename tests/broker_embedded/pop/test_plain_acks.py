"""Acks that arrive together get the same answers and do the same as one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.tables.stats import GroupAction
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, HeaderEncoding
from rocketmq_sdk.protocol.frame import decode_frame
from rocketmq_sdk.protocol.headers.pop import AckMessageRequestHeader
from rocketmq_sdk.testing.faults import Operation
from support.bad_disk import LOG, disk_of, open_on_disk
from support.broker import open_on
from support.chunks import exchange
from support.popping import Popper, make_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.protocol.receipt_handle import ReceiptHandle
    from support.broker import Peer

MESSAGES = 12
KINDS: dict[str, dict[str, Any]] = {
    "stored": {},
    "merged": {"enable_pop_buffer_merge": True},
    "synced": {"flush_disk_type": FlushDiskType.SYNC_FLUSH},
}


class Change(NamedTuple):
    """What is odd about one ack of a chunk; nothing where all are None."""

    number: int
    field: str | None = None
    value: str | None = None
    flag: int = 0
    body: bytes = b""
    encoding: HeaderEncoding = HeaderEncoding.JSON


class Outcome(NamedTuple):
    """What acks did to a broker, and its answers."""

    answers: dict[int, bytes]
    again: list[bytes]
    """What came again as it was not acknowledged."""
    counted: dict[tuple[str, str], tuple[int, int]]
    """Messages and requests by topic and group."""


def ack_of(handle: ReceiptHandle, change: Change, opaque: int) -> Command:
    header = AckMessageRequestHeader(
        consumer_group="PopGroup",
        topic="T",
        queue_id=handle.queue_id,
        extra_info=str(handle),
        offset=handle.offset,
    )
    command = Command.request(RequestCode.ACK_MESSAGE, header)
    if change.field is not None:
        if change.value is None:
            command.ext_fields.pop(change.field, None)
        else:
            command.ext_fields[change.field] = change.value
    command.flag |= change.flag
    command.body, command.encoding, command.opaque = change.body, change.encoding, opaque
    return command


async def popped(peer: Peer) -> list[ReceiptHandle]:
    """The receipts of what one pop of two queues brings."""
    await make_topic(peer, "T", 2)
    for number in range(MESSAGES):
        await peer.send("T", b"%d" % number, queue_id=number * 2 // MESSAGES)
    found = await Popper(peer, "T").pop(invisible_time=30_000)
    assert len(found.handles) == MESSAGES
    return list(found.handles)


async def outcome_of(kind: str, changes: Sequence[Change], *, together: bool) -> Outcome:
    async with open_on(MemoryFileSystem(write_through=True), **KINDS[kind]) as (broker, peer):
        handles = await popped(peer)
        acks = [
            ack_of(handles[change.number], change, opaque)
            for opaque, change in enumerate(changes, 1)
        ]
        answers = await exchange(broker, [acks] if together else [[ack] for ack in acks])
        counted = counts(broker)
        await trio.sleep(40)
        again = await Popper(peer, "T").bodies()
        return Outcome(answers, again, counted)


def counts(broker: EmbeddedBroker) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        key: (counts.messages, counts.times)
        for key, group in broker.core.stats.groups.items()
        if (counts := group.actions.get(GroupAction.ACKNOWLEDGE)) is not None
    }


def run(kind: str, changes: Sequence[Change], *, together: bool) -> Outcome:
    async def main() -> Outcome:
        return await outcome_of(kind, changes, together=together)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


ODD = ["0", "1", "3", "-1", "x", "", " 2", "9" * 20, "٣", "T", "other", "0 1 2", "9 " * 8 + "9"]
CHANGES = st.tuples(
    st.integers(0, MESSAGES - 1),
    st.sampled_from(["extraInfo", "offset", "queueId", "topic", "consumerGroup", "more", None]),
    st.sampled_from([None, *ODD]),
    st.sampled_from([0, 0, 0, FLAG_ONEWAY]),
    st.sampled_from([b"", b"", b"x"]),
    st.sampled_from([HeaderEncoding.JSON, HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ]),
).map(lambda fields: Change(*fields))
CHUNKS = st.integers(0, 3).flatmap(
    lambda odd: st.lists(CHANGES, min_size=odd, max_size=odd).flatmap(
        lambda some: st.permutations([*map(Change, range(MESSAGES)), *some])
    )
)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(KINDS)), CHUNKS | st.just(list(map(Change, range(MESSAGES)))))
def test_a_chunk_does_the_same_as_its_acks_one_by_one(kind: str, changes: list[Change]) -> None:
    assert run(kind, changes, together=True) == run(kind, changes, together=False)


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_acks_of_one_pop_become_one_record(autojump_clock: MockClock, kind: str) -> None:
    async with open_on(MemoryFileSystem(write_through=True), **KINDS[kind]) as (broker, peer):
        handles = await popped(peer)
        written = broker.parts.pop.state.records.written
        acks = [ack_of(handle, Change(0), opaque) for opaque, handle in enumerate(handles, 1)]
        answers = await exchange(broker, [acks])
        assert {decode_frame(frame[4:]).code for frame in answers.values()} == {0}
        assert sorted(answers) == list(range(1, MESSAGES + 1))
        records = 0 if kind == "merged" else 2  # one for each queue
        assert broker.parts.pop.state.records.written - written == records
        await trio.sleep(40)
        assert await Popper(peer, "T").bodies() == []


async def test_acks_that_cannot_be_stored_are_refused_as_one_is(autojump_clock: MockClock) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        handles = await popped(peer)
        acks = [ack_of(handle, Change(0), opaque) for opaque, handle in enumerate(handles, 1)]
        broken = disk_of(broker).faults.fail(Operation.WRITE, LOG)
        answers = await exchange(broker, [[acks[0]], [acks[0]], acks])
        told = {decode_frame(frame[4:]).code for frame in answers.values()}
        assert sorted(answers) == list(range(1, MESSAGES + 1))
        assert told == {ResponseCode.SERVICE_NOT_AVAILABLE}
        broken.lift()
        await trio.sleep(10)
        answers = await exchange(broker, [acks])
        assert {decode_frame(frame[4:]).code for frame in answers.values()} == {0}
        await trio.sleep(40)
        assert await Popper(peer, "T").bodies() == []
