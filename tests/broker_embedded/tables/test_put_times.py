"""How long puts and gets take, as the broker's runtime information tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.tables.put_times import PutTimes
from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.remoting.source import TcpChannelSource
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import Peer, open_broker, open_on, send_request

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock


class SetClock:
    """A clock that a test sets; milliseconds."""

    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


class SlowTurn:
    """A turn whose end takes some milliseconds, as a write to a slow disk."""

    def __init__(self, clock: SetClock, milliseconds: int) -> None:
        self._clock = clock
        self._milliseconds = milliseconds

    def begin(self) -> None:
        pass

    def end(self) -> None:
        self._clock.now += self._milliseconds


def measured() -> tuple[SetClock, BrokerStats, PutTimes]:
    clock, stats = SetClock(), BrokerStats()
    return clock, stats, PutTimes(clock, stats)


def distribution(times: PutTimes) -> dict[str, int]:
    """What is not 0 of it."""
    text = str(times.figures()["putMessageDistributeTime"])
    pairs = (part.rsplit(":", 1) for part in text.split())
    return {name: int(count) for name, count in pairs if count != "0"}


def test_puts_of_a_turn_take_as_long_as_the_turn() -> None:
    clock, stats, times = measured()
    turn = times.around(SlowTurn(clock, 60))
    turn.begin()
    for _ in range(3):
        stats.put("T", 0, 1, 10)
    stats.got("T", "g", 0, 1, 10)
    turn.end()
    turn.begin()
    turn.end()
    assert distribution(times) == {"[50~100ms]": 3}
    figures = times.figures()
    assert (figures["putMessageEntireTimeMax"], figures["getMessageEntireTimeMax"]) == (60, 60)
    assert figures["putLatency99"] == "60.00"


def test_a_put_that_waits_for_a_sync_is_over_later() -> None:
    clock, stats, times = measured()
    times.begin()
    stats.put("T", 0, 1, 10)
    began = times.start()
    stats.put("T", 0, 1, 10)
    times.end()
    assert distribution(times) == {"[<=0ms]": 1}
    clock.now += 7
    times.put_over(began)
    assert distribution(times) == {"[<=0ms]": 1, "[0~10ms]": 1}
    assert times.figures()["putMessageEntireTimeMax"] == 7


def test_the_distribution_is_that_of_the_last_whole_minute() -> None:
    clock, stats, times = measured()

    def put_for(milliseconds: int) -> None:
        turn = times.around(SlowTurn(clock, milliseconds))
        turn.begin()
        stats.put("T", 0, 1, 10)
        turn.end()

    def minute() -> None:
        for _ in range(6):
            stats.advance(1)

    put_for(5)
    minute()
    put_for(15_000)
    assert distribution(times) == {"[0~10ms]": 1}
    minute()
    assert distribution(times) == {"[10s~]": 1}
    assert times.figures()["putLatency999"] == "10000.00"
    minute()
    assert distribution(times) == {}
    assert times.figures()["putMessageEntireTimeMax"] == 15_000


async def runtime(peer: Peer) -> dict[str, str]:
    answer = await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    return KVTable.decode(answer.body).table


def sum_of(text: str) -> int:
    return sum(int(part.rsplit(":", 1)[1]) for part in text.split())


async def test_puts_in_the_same_process_are_sampled(autojump_clock: MockClock) -> None:
    async with open_broker() as (_, peer):
        assert sum_of((await runtime(peer))["putMessageDistributeTime"]) == 0
        for number in range(40):
            await peer.send("T", bytes([number]))
        assert sum_of((await runtime(peer))["putMessageDistributeTime"]) == 3


async def test_all_puts_over_a_port_are_measured() -> None:
    async with open_broker(listen=0) as (broker, _), trio.open_nursery() as nursery:
        peer = Peer()
        assert broker.address is not None
        peer.channel = await TcpChannelSource().open_channel(broker.address, peer.handle, nursery)
        for number in range(10):
            await peer.send("T", bytes([number]))
        table = await runtime(peer)
        assert sum_of(table["putMessageDistributeTime"]) == 10
        assert float(table["putLatency99"]) >= 0
        nursery.cancel_scope.cancel()


async def test_a_slow_sync_is_seen(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFileSystem()
    original = FaultyFileSystem.run

    async def slowly(self: FaultyFileSystem, work: object) -> object:
        await trio.sleep(0.3)
        return await original(self, work)  # type: ignore[arg-type]

    async with open_on(files, flush_disk_type="SYNC_FLUSH") as (_, peer):
        await peer.send("T", b"makes the topic")
        monkeypatch.setattr(FaultyFileSystem, "run", slowly)
        assert (await peer.ask(send_request("T", b"x"))).code == 0
        monkeypatch.undo()
        assert 300 <= int((await runtime(peer))["putMessageEntireTimeMax"]) < 2000
