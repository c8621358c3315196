"""Timers: never early, at most a slot late, in order, through refusals, failures and
turns of the wheel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutResult, PutStatus
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.names import TIMER_TOPIC
from support.broker import open_broker, send_request
from support.timers import open_watched

if TYPE_CHECKING:
    from trio.testing import MockClock

DAY = 86_400


@pytest.mark.parametrize("wait_ms", [1, 999, 1000, 1001, 3_600_000, 10_000_000])
async def test_a_timer_comes_when_its_slot_is_over_and_not_before(
    wait_ms: int, autojump_clock: MockClock
) -> None:
    with trio.fail_after(4 * DAY):
        async with open_watched() as (broker, peer, deliveries):
            due = broker.core.clock.now_ms() + wait_ms
            await peer.send(
                "orders", b"x", properties=f"TIMER_DELIVER_MS\x01{due}\x02", tag="A", queue_id=2
            )
            await trio.sleep(wait_ms / 1000 + 2)
            [came] = deliveries.times
            assert due <= came <= due + 1001
            [message] = await peer.pull("orders", queue_id=2)
            assert message.body == b"x"
            assert message.tags == "A"
            assert (message.properties["REAL_TOPIC"], message.properties["REAL_QID"]) == (
                "orders",
                "2",
            )
            assert int(message.properties["TIMER_OUT_MS"]) == (due - 1) // 1000 * 1000
            assert int(message.properties["TIMER_DEQUEUE_MS"]) >= due
            assert broker.parts.timers.service.timers.pending_count == 0


@pytest.mark.parametrize(("name", "value"), [("TIMER_DELAY_SEC", 5), ("TIMER_DELAY_MS", 5000)])
async def test_delays_count_from_the_moment_of_the_send(
    name: str, value: int, autojump_clock: MockClock
) -> None:
    with trio.fail_after(60):
        async with open_watched() as (broker, peer, deliveries):
            sent = broker.core.clock.now_ms()
            await peer.send(
                "orders", b"x", properties=f"{name}\x01{value}\x02TIMER_DELIVER_MS\x011\x02"
            )
            await trio.sleep(10)
            [came] = deliveries.times
            assert sent + 5000 <= came <= sent + 6010


async def test_a_level_goes_before_a_moment(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_watched() as (broker, peer, deliveries):
            sent = broker.core.clock.now_ms()
            await peer.send("orders", b"x", properties="DELAY\x012\x02TIMER_DELAY_SEC\x0130\x02")
            await trio.sleep(6)
            assert len(deliveries.times) == 1
            assert deliveries.times[0] - sent <= 5002
            assert broker.store.max_offset(TIMER_TOPIC, 0) == 0


async def test_a_timer_of_more_than_a_window_turns_twice(autojump_clock: MockClock) -> None:
    """Two windows of 10 s: half a window first when little is left over, a whole one
    when there is more.
    """
    with trio.fail_after(600):
        async with open_watched(timer_roll_window_slot=10) as (broker, peer, deliveries):
            due = broker.core.clock.now_ms() + 45_000
            await peer.send("orders", b"x", properties=f"TIMER_DELIVER_MS\x01{due}\x02")
            await trio.sleep(50)
            [came] = deliveries.times
            assert due <= came <= due + 1001
            [message] = await peer.pull("orders")
            assert int(message.properties["TIMER_ROLL_TIMES"]) >= 3
            assert broker.store.max_offset(TIMER_TOPIC, 0) == 1 + int(
                message.properties["TIMER_ROLL_TIMES"]
            )


async def test_timers_of_one_slot_come_in_the_order_in_which_they_were_sent(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(600):
        async with open_watched() as (broker, peer, deliveries):
            due = broker.core.clock.now_ms() + 20_000
            for number in range(300):
                await peer.send(
                    "orders", b"%d" % number, properties=f"TIMER_DELIVER_MS\x01{due}\x02"
                )
            await trio.sleep(25)
            assert len(deliveries.times) == 300
            found = [
                message.body
                for offset in range(0, 300, 30)
                for message in (await peer.pull("orders", offset))[:30]
            ]
            assert found == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("TIMER_DELAY_SEC\x01259201\x02", "bigger than the max delay 259200000ms"),
        ("TIMER_DELAY_SEC\x01soon\x02", "timer message illegal"),
        ("TIMER_DELIVER_MS\x0199999999999999999999\x02", "timer message illegal"),
        ("TIMER_DELIVER_MS\x011000\x02TIMER_DEL_UNIQKEY\x01K\x02", "timer message illegal"),
    ],
)
async def test_what_cannot_wait_is_refused(
    properties: str, remark: str, autojump_clock: MockClock
) -> None:
    with trio.fail_after(60):
        async with open_watched() as (_broker, peer, deliveries):
            answer = await peer.ask(send_request("orders", b"x", properties=properties))
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert remark in (answer.remark or "")
            assert deliveries.times == []


async def test_the_longest_delay_is_a_setting(autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with open_watched(timer_max_delay_sec=60) as (_broker, peer, deliveries):
            answer = await peer.ask(
                send_request("orders", b"x", properties="TIMER_DELAY_SEC\x0161\x02")
            )
            assert (answer.code, "60000ms" in (answer.remark or "")) == (
                ResponseCode.MESSAGE_ILLEGAL,
                True,
            )
            await peer.send("orders", b"x", properties="TIMER_DELAY_SEC\x0160\x02")
            await trio.sleep(62)
            assert len(deliveries.times) == 1


async def test_without_the_wheel_timers_are_refused(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_watched(timer_wheel_enable=False) as (_broker, peer, _deliveries):
            answer = await peer.ask(
                send_request("orders", b"x", properties="TIMER_DELAY_SEC\x011\x02")
            )
            assert (answer.code, "timerWheelEnable" in (answer.remark or "")) == (
                ResponseCode.SYSTEM_ERROR,
                True,
            )


async def test_a_crowded_slot_refuses(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_watched(timer_congest_num_each_slot=3) as (broker, peer, _deliveries):
            due = broker.core.clock.now_ms() + 20_000
            codes = [
                (
                    await peer.ask(
                        send_request("orders", b"x", properties=f"TIMER_DELIVER_MS\x01{due}\x02")
                    )
                ).code
                for _ in range(100)
            ]
            assert codes[:4] == [0, 0, 0, 0]
            assert codes.count(0) <= 6
            assert codes[-1] == ResponseCode.SYSTEM_ERROR


async def test_a_put_that_fails_is_tried_until_it_succeeds(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache gives up after three tries."""
    with trio.fail_after(120):
        async with open_watched() as (broker, peer, deliveries):
            store, put, fails = broker.store, broker.store.put, [True]

            def failing(message: MessageToStore) -> PutResult:
                return PutResult(PutStatus.SERVICE_NOT_AVAILABLE) if fails[0] else put(message)

            await peer.send("orders", b"one", properties="TIMER_DELAY_SEC\x011\x02")
            await peer.send("orders", b"two", properties="TIMER_DELAY_SEC\x011\x02")
            monkeypatch.setattr(store, "put", failing)
            await trio.sleep(30)
            assert deliveries.times == []
            fails[0] = False
            await trio.sleep(1)
            assert [message.body for message in await peer.pull("orders")] == [b"one", b"two"]


async def test_nothing_is_made_before_the_first_timer(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem(write_through=True)
    with trio.fail_after(60):
        async with open_watched(files) as (_broker, peer, _deliveries):
            await peer.send("orders", b"x")
            await trio.sleep(5)
        for name in ("timerwheel", "timerlog", "config/timercheck", "config/timermetrics"):
            assert not files.exists(name)


async def test_pending_timers_outlive_a_restart(autojump_clock: MockClock) -> None:
    files, clock = MemoryFileSystem(write_through=True), TrioClock()
    with trio.fail_after(600):
        async with open_watched(files, clock=clock) as (broker, peer, deliveries):
            due = broker.core.clock.now_ms() + 20_000
            await peer.send("orders", b"soon", properties="TIMER_DELAY_SEC\x011\x02")
            await peer.send("orders", b"later", properties=f"TIMER_DELIVER_MS\x01{due}\x02")
            await trio.sleep(5)
            assert len(deliveries.times) == 1
        async with open_watched(files, clock=clock) as (broker, peer, deliveries):
            assert broker.parts.timers.service.timers.pending_count == 1
            await trio.sleep(25)
            [came] = deliveries.times
            assert due <= came <= due + 1001
            assert [message.body for message in await peer.pull("orders")] == [b"soon", b"later"]


@pytest.mark.parametrize("delay", ["DELAY\x011\x02", "TIMER_DELAY_MS\x012000\x02"])
async def test_deliveries_are_counted(delay: str, autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with open_broker() as (broker, peer):
            await peer.send("orders", b"x", properties=delay)
            await trio.sleep(30)
            broker.core.stats.advance(1)
            found = broker.core.stats.find("TOPIC_PUT_NUMS", "orders")
            assert found is not None
            assert found[0].messages == 1
