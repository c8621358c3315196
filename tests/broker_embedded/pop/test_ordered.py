"""Ordered pops: one batch of a queue at a time, until it is acknowledged or its time is
over.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.errors import MessageIllegalError
from rocketmq_sdk.protocol.bodies.pop import ConsumerOrderInfoSerializeWrapper, OrderInfo
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_json
from support.broker import Peer, open_broker, open_on
from support.paths import CODEC_VECTORS
from support.popping import Popper, make_topic

if TYPE_CHECKING:
    from trio.testing import MockClock

TABLE = [
    json.loads(line.rstrip(",\n"))
    for line in (CODEC_VECTORS / "pop.json").read_text().splitlines()[1:-1]
]


async def filled(peer: Peer, count: int = 6) -> Popper:
    await make_topic(peer, "F", 1)
    for number in range(count):
        await peer.send("F", b"%d" % number)
    return Popper(peer, "F", order=True, max_msg_nums=2, invisible_time=5_000)


@pytest.mark.parametrize(
    "entry",
    [entry for entry in TABLE if entry["kind"] == "order_info"],
    ids=["plain", "with counts"],
)
def test_order_infos_are_written_as_apache_writes_them(entry: dict[str, str]) -> None:
    data = entry["json"].encode()
    info = OrderInfo.decode(data)
    assert info.encode() == data
    assert (info.offsets(), info.next_offset()) == ([10, 11, 15], 10)


def test_the_file_has_apaches_members() -> None:
    wrapper = ConsumerOrderInfoSerializeWrapper(
        {"F@G": {0: OrderInfo(offset_list=(3, 1), pop_time=7)}}
    )
    text = encode_json(wrapper.to_json(), object_keys=True)
    assert ConsumerOrderInfoSerializeWrapper.from_json(decode_json(text)) == wrapper
    assert b'"orderedConsumptionLevel":"QUEUE"' in text


async def test_a_queue_is_blocked_until_its_messages_are_acknowledged(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (broker, peer):
        popper = await filled(peer)
        first = await popper.pop(attempt_id="a")
        assert [message.body for message in first.messages] == [b"0", b"1"]
        assert all(handle.is_ordered for handle in first.handles)
        assert await popper.bodies(attempt_id="b") == []
        again = await popper.pop(attempt_id="a")
        assert [message.body for message in again.messages] == [b"0", b"1"]
        await popper.ack(again.handles[1])
        assert await popper.bodies(attempt_id="b") == []
        assert broker.core.offsets.query("PopGroup", "F", 0) == 0
        await popper.ack(again.handles[0])
        assert broker.core.offsets.query("PopGroup", "F", 0) == 2
        assert await popper.bodies(attempt_id="b") == [b"2", b"3"]
        with pytest.raises(MessageIllegalError):
            await popper.ack(
                type(first.handles[0]).parse(
                    f"2 {(await popper.pop(attempt_id='b')).pop_time} 5000 999 0 broker-a 0 5"
                )
            )


async def test_what_is_not_acknowledged_blocks_until_its_time_is_over_and_counts_its_deliveries(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (_broker, peer):
        popper = await filled(peer)
        began = trio.current_time()
        counts = []
        for attempt in range(4):
            popped = await popper.pop(attempt_id=str(attempt), poll_time=15_000)
            assert [message.body for message in popped.messages] == [b"0", b"1"]
            counts.append([message.reconsume_times for message in popped.messages])
        assert counts == [[number, number] for number in range(4)]
        assert trio.current_time() - began == pytest.approx(15, abs=0.5)


async def test_an_ack_wakes_the_pop_that_waits_for_its_queue(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        popper = await filled(peer)
        popped = await popper.pop(attempt_id="a", invisible_time=60_000)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def wait() -> None:
                assert await popper.bodies(attempt_id="b", poll_time=15_000) == [b"2", b"3"]
                assert trio.current_time() - began == pytest.approx(2)

            await trio.sleep(2)
            await popper.ack_all(popped.handles)


async def test_a_changed_invisible_time_keeps_the_pop_time(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        popper = await filled(peer)
        popped = await popper.pop(attempt_id="a", invisible_time=60_000)
        for handle in popped.handles:
            renewed = await popper.change(handle, 1_000)
            assert (renewed.pop_time, renewed.start_offset) == (
                handle.pop_time,
                handle.start_offset,
            )
        assert await popper.bodies(attempt_id="b", poll_time=10_000) == [b"0", b"1"]


async def test_blocks_outlive_a_clean_stop_and_a_lost_file_loses_no_message(
    autojump_clock: MockClock,
) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_on(files) as (_broker, peer):
        popper = await filled(peer)
        popped = await popper.pop(attempt_id="a", invisible_time=60_000)
    async with open_on(files) as (_broker, peer):
        popper = Popper(peer, "F", order=True, max_msg_nums=2)
        assert await popper.bodies(attempt_id="b") == []
        await popper.ack(popped.handles[0])
    for name in ("consumerOrderInfo.json", "consumerOrderInfo.json.bak"):
        files.remove(f"config/{name}")
    async with open_on(files) as (_broker, peer):
        popper = Popper(peer, "F", order=True, max_msg_nums=2)
        await popper.ack(popped.handles[1])  # of a pop that nothing is known of any more
        assert await popper.bodies(attempt_id="b") == [b"1", b"2"]
