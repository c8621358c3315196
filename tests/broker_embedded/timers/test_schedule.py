"""Delay levels: exactly on time, in order, through restarts and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutResult, PutStatus
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.names import SCHEDULE_TOPIC
from rocketmq_sdk.protocol.message_codec import decode_messages
from support.broker import Peer, open_broker, pull_request, send_request

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

SECONDS = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


async def arrival_time(peer: Peer, topic: str, offset: int, queue_id: int = 0) -> float:
    """Pull until there is a message; when it came."""
    while True:
        answer = await peer.ask(pull_request(topic, offset, queue_id=queue_id, hold=30))
        if answer.code == 0:
            return trio.current_time()


async def test_level_18_arrives_exactly_on_time(autojump_clock: MockClock) -> None:
    with trio.fail_after(8000):
        async with open_broker() as (_broker, peer):
            await peer.send("orders", b"now")
            sent = trio.current_time()
            await peer.send("orders", b"in two hours", properties="DELAY\x0118\x02", tag="A")
            waited = await arrival_time(peer, "orders", 1) - sent
            assert 7200 <= waited <= 7200.002
            [message] = await peer.pull("orders", 1)
            assert message.body == b"in two hours"
            assert message.properties["REAL_TOPIC"] == "orders"
            assert message.properties["REAL_QID"] == "0"
            assert message.properties["DELAY"] == "18"
            assert message.tags == "A"


async def test_all_levels_in_order_of_their_time(autojump_clock: MockClock) -> None:
    with trio.fail_after(8000):
        async with open_broker() as (broker, peer):
            arrivals: list[tuple[str, float]] = []
            begin = trio.current_time()
            broker.store.arrivals.append(
                lambda arrival: arrivals.append((arrival.topic, trio.current_time() - begin))
            )
            for level in reversed(range(1, 19)):
                await peer.send("orders", str(level).encode(), properties=f"DELAY\x01{level}\x02")
            await trio.sleep(7201)
            delivered = [when for topic, when in arrivals if topic == "orders"]
            assert delivered == [pytest.approx(second, abs=0.003) for second in SECONDS]
            assert all(when >= second for when, second in zip(delivered, SECONDS, strict=True))
            bodies = [message.body for message in await peer.pull("orders")]
            assert bodies == [str(level).encode() for level in range(1, 19)]


async def test_a_level_above_the_last_is_lowered(autojump_clock: MockClock) -> None:
    with trio.fail_after(8000):
        async with open_broker() as (broker, peer):
            answer = await peer.send("orders", b"x", properties="DELAY\x0199\x02", queue_id=3)
            assert answer.ext_fields["queueId"] == "3"
            assert answer.ext_fields["queueOffset"] == "0"
            assert broker.store.max_offset(SCHEDULE_TOPIC, 17) == 1
            await trio.sleep(7201)
            [message] = await peer.pull("orders", queue_id=3)
            assert message.properties["DELAY"] == "18"


async def test_level_zero_is_no_delay(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            await peer.send("orders", b"x", properties="DELAY\x010\x02")
            assert len(await peer.pull("orders")) == 1


async def test_own_levels(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(message_delay_level="2s 3s") as (broker, peer):
            begin = trio.current_time()
            await peer.send("orders", b"x", properties="DELAY\x015\x02")
            assert broker.parts.timers.schedule.next_due_ms() is not None
            assert await arrival_time(peer, "orders", 0) - begin == pytest.approx(3, abs=0.002)
            assert broker.parts.timers.schedule.next_due_ms() is None


async def test_a_put_that_fails_is_tried_until_it_succeeds(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            store, put, fails = broker.store, broker.store.put, [True]

            def failing(message: MessageToStore) -> PutResult:
                return PutResult(PutStatus.UNKNOWN_ERROR) if fails[0] else put(message)

            await peer.send("orders", b"one", properties="DELAY\x011\x02")
            await peer.send("orders", b"two", properties="DELAY\x011\x02")
            begin = trio.current_time()
            monkeypatch.setattr(store, "put", failing)
            await trio.sleep(5)
            assert store.max_offset("orders", 0) == 0
            [reason] = broker.health().reasons
            assert "message 0 cannot be put (UNKNOWN_ERROR)" in reason
            # Tried fifty times, and said once.
            assert len([each for each in caplog.records if "UNKNOWN_ERROR" in each.message]) == 1
            await trio.sleep(15)
            assert any("messages come 19 s late" in each for each in broker.health().reasons)
            assert 19_000 <= broker.parts.timers.schedule.behind_ms <= 19_100
            fails[0] = False
            assert 20 <= await arrival_time(peer, "orders", 0) - begin <= 20.2
            assert [message.body for message in await peer.pull("orders")] == [b"one", b"two"]
            assert (broker.health().reasons, broker.parts.timers.schedule.behind_ms) == ((), 0)


@pytest.mark.real_time
async def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with open_broker(tmp_path, message_delay_level="0s 1d") as (broker, peer):
            await peer.send("orders", b"soon", properties="DELAY\x011\x02")
            await peer.send("orders", b"tomorrow", properties="DELAY\x012\x02")
            while broker.parts.timers.schedule.offset(1) == 0:
                await trio.sleep(0.01)
        async with open_broker(tmp_path, message_delay_level="0s 1d") as (broker, peer):
            assert broker.parts.timers.schedule.offset(1) == 1
            assert broker.parts.timers.schedule.offset(2) == 0
            due = broker.parts.timers.schedule.next_due_ms()
            assert due is not None
            assert due > broker.core.clock.now_ms() + 86_000_000
            assert len(await peer.pull("orders")) == 1


@pytest.mark.real_time
async def test_without_its_file_everything_that_is_due_comes_again(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with open_broker(tmp_path, message_delay_level="0s") as (broker, peer):
            await peer.send("orders", b"twice", properties="DELAY\x011\x02")
            while broker.parts.timers.schedule.offset(1) == 0:
                await trio.sleep(0.01)
        for name in ("delayOffset.json", "delayOffset.json.bak"):
            (tmp_path / "config" / name).unlink(missing_ok=True)
        async with open_broker(tmp_path, message_delay_level="0s") as (broker, peer):
            while broker.store.max_offset("orders", 0) < 2:
                await trio.sleep(0.01)
            assert [(await peer.pull("orders", offset))[0].body for offset in range(2)] == [
                b"twice",
                b"twice",
            ]


async def test_many_messages_of_one_moment(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            for number in range(300):
                await peer.send("orders", str(number).encode(), properties="DELAY\x012\x02")
            await trio.sleep(5.01)
            bodies: list[bytes] = []
            while len(bodies) < 300:
                answer = await peer.ask(pull_request("orders", len(bodies)))
                bodies += [message.body for message in decode_messages(answer.body)]
            assert bodies == [str(number).encode() for number in range(300)]


async def test_a_broker_with_nothing_delayed_sleeps(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker:
        assert broker.parts.timers.schedule.next_due_ms() is None
        assert broker.parts.timers.schedule.wrapper().offset_table == {}


@pytest.mark.real_time
async def test_a_limit_of_sizes_that_was_lowered_keeps_nothing_back(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with open_broker(tmp_path, message_delay_level="1d") as (_broker, peer):
            await peer.send("orders", b"x" * 5000, properties="DELAY\x011\x02")
            await peer.send("orders", b"small", properties="DELAY\x011\x02")
        # With a shorter level they are due at once.
        async with open_broker(tmp_path, message_delay_level="0s", max_message_size=1000) as (
            broker,
            peer,
        ):
            while broker.store.max_offset("orders", 0) < 2:
                await trio.sleep(0.01)
            assert [(await peer.pull("orders", offset))[0].body for offset in range(2)] == [
                b"x" * 5000,
                b"small",
            ]
            assert (
                await peer.ask(send_request("orders", b"x" * 5000))
            ).code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("status", [PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED])
async def test_what_can_never_be_put_is_named_and_skipped(
    status: PutStatus,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            store, put = broker.store, broker.store.put
            await peer.send("orders", b"impossible", properties="DELAY\x011\x02")
            await peer.send("orders", b"behind", properties="DELAY\x011\x02")
            monkeypatch.setattr(
                store,
                "put",
                lambda message: (
                    PutResult(status) if message.body == b"impossible" else put(message)
                ),
            )
            await trio.sleep(1.1)
            assert [message.body for message in await peer.pull("orders")] == [b"behind"]
            assert broker.parts.timers.schedule.offset(1) == 2
            assert status.name in caplog.text
            assert "orders" in caplog.text
