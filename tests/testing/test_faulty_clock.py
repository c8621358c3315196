"""Wall clocks that jump: of a broker, of a client, in a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import Client, ConfigurationError, ConsumeFrom, Message, Producer, PushConsumer
from rocketmq_sdk.testing import FaultyClock, TestBroker, UnhitFaultError
from rocketmq_sdk.testing.simulation import Plan, simulate
from rocketmq_sdk.testing.simulation.troubles import WrongClock
from support.cluster_life import PARTIES, cluster_life, quiet
from support.consuming import Collector

if TYPE_CHECKING:
    from trio.testing import MockClock

HOUR_MS = 3_600_000


async def test_times_of_messages_follow_a_clock_that_jumps(autojump_clock: MockClock) -> None:
    clock = FaultyClock()
    async with (
        TestBroker() as broker,
        Client(broker, clock=clock) as client,
        Producer("shop", client=client) as producer,
    ):
        began = broker.clock.monotonic()
        await producer.send(Message("orders", b"right"))
        with broker.faults.wrong_clock(-7200), broker.faults.wrong_clock(3600):
            await producer.send(Message("orders", b"behind"))
            await broker.restart()  # it is the same clock
            await producer.send(Message("orders", b"still behind"))
        with broker.faults.wrong_clock(3600) as ahead, clock.wrong_by(-3600):
            await producer.send(Message("orders", b"ahead"))
        await producer.send(Message("orders", b"right again"))
        sent = broker.sent("orders")
        came = [each.time for each in broker.requests("send")]
        assert [round((time - came[0]) / HOUR_MS) for time in came] == [0, -1, -1, 1, 0]
        stored = {each.body: each.store_timestamp - came[0] for each in sent}
        born = {each.body: each.born_timestamp - came[0] for each in sent}
        assert round(born[b"ahead"] / HOUR_MS) == -1
        assert round(born[b"behind"] / HOUR_MS) == 0
        assert round(stored[b"ahead"] / HOUR_MS) == 1
        # The times in a store never go back.
        assert 0 <= stored[b"behind"] <= stored[b"still behind"] < HOUR_MS / 10
        assert stored[b"right again"] >= stored[b"ahead"]
        assert ahead.hits
        assert 0 <= broker.clock.monotonic() - began < 360


@pytest.mark.parametrize("seconds", [-7200.0, 7200.0])
async def test_messages_and_delays_arrive_though_the_clock_jumps(
    autojump_clock: MockClock, seconds: float
) -> None:
    got = Collector()
    async with (
        TestBroker() as broker,
        Producer("shop", namesrv=broker) as producer,
        PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=got,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ),
    ):
        await producer.send(Message("orders", b"before", delay_level=5))
        with broker.faults.wrong_clock(seconds):
            await producer.send(Message("orders", b"at once"))
            await producer.send(Message("orders", b"late", delay_level=5))
            # Where the clock is ahead, what waits is due at once.
            most = 1 if seconds < 0 else 3
            await broker.wait.until(lambda: len(got.messages) == most, "messages", within=600)
        await broker.wait.settled(within=3 * 3600)
    assert {each.body for each in got.messages} == {b"before", b"at once", b"late"}


async def test_a_clock_at_which_nobody_looks_and_one_that_cannot_be(
    autojump_clock: MockClock,
) -> None:
    broker = TestBroker()
    broker.faults.wrong_clock(-60)
    with pytest.raises(UnhitFaultError, match="wrong clock: -60 s, 0 hits"):
        broker.faults.check()
    broker.faults.wrong_clock(3e9)
    for seconds in (1e12, float("nan"), 3e9):
        with pytest.raises(ConfigurationError, match="cannot be wrong by"):
            broker.faults.wrong_clock(seconds)
    broker.faults.clear()
    assert broker.clock.faults == ()
    await trio.lowlevel.checkpoint()


def test_what_a_cluster_promises_holds_while_clocks_are_wrong() -> None:
    plan = Plan(
        seed=3,
        masters=2,
        duration=150,
        parties=PARTIES,
        troubles=(
            WrongClock(at=40, lasts=50, broker="broker-a", seconds=-3600),
            WrongClock(at=70, lasts=60, broker="broker-b", seconds=86_400),
        ),
    )
    with quiet():
        life = simulate(plan, cluster_life)
    assert life.value == []
    assert "WrongClock" in "\n".join(life.trace.notes)
