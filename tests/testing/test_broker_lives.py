"""Brokers under test that stop, die and start again: data and address stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import ConsumeFrom, EmbeddedBroker, Message, Producer, PushConsumer
from rocketmq_sdk.errors import ClosedError, ConfigurationError, ConnectError
from rocketmq_sdk.testing import FaultyFileSystem, TestBroker
from support.consuming import Collector, texts
from support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


@pytest.fixture(params=["memory", "faulty files", "directory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, object]:
    return {
        "memory": {},
        "faulty files": {"files": FaultyFileSystem()},
        "directory": {"path": tmp_path / "store"},
    }[request.param]


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_what_was_acknowledged_is_there_after_a_stop_and_after_a_kill(
    place: dict[str, object], end: str, autojump_clock: MockClock
) -> None:
    async with TestBroker(**place) as broker, Producer("shop", namesrv=broker) as producer:
        for number in range(20):
            await producer.send(Message("orders", b"%d" % number))
        before = broker.own_address
        await getattr(broker, end)()
        assert not broker.running
        with pytest.raises(ClosedError):
            broker.sent("orders")
        await broker.start()
        assert broker.own_address == before
        assert sorted(texts(broker.sent("orders")), key=int) == [str(n) for n in range(20)]
        await producer.send(Message("orders", b"20"))
        assert len(await broker.wait.stored("orders", 21)) == 21


async def test_clients_find_their_broker_again(autojump_clock: MockClock) -> None:
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
        await producer.send(Message("orders", b"before"))
        await broker.wait.lag("billing", "orders")
        await broker.restart()
        await producer.send(Message("orders", b"after"))
        with trio.fail_after(100):
            while "after" not in got.bodies:
                await trio.sleep(0.1)
    assert got.bodies == ["before", "after"]


async def test_a_stopped_broker_refuses_connections_until_it_starts(
    autojump_clock: MockClock,
) -> None:
    async with TestBroker() as broker, trio.open_nursery() as nursery:
        await broker.stop()
        await broker.stop()
        for address in (None, broker.own_address):
            with pytest.raises(ConnectError):
                await broker.open_channel(address, lambda *_: None, nursery)
        assert broker.knows(broker.own_address)
        await broker.start()
        await broker.start()
        await broker.open_channel(None, lambda *_: None, nursery)
        nursery.cancel_scope.cancel()
    with pytest.raises(ClosedError):
        await broker.start()


async def test_a_kill_breaks_connections_and_forgets_what_was_not_written(
    autojump_clock: MockClock,
) -> None:
    async with TestBroker() as broker, Producer("shop", namesrv=broker) as producer:
        await producer.send(Message("orders", b"1"))
        broker.embedded.core.offsets.commit("billing", "orders", 0, 1)
        await broker.kill()
        await broker.start()
        assert broker.wait.seen.committed("billing", "orders")[0] == -1
        broker.embedded.core.offsets.commit("billing", "orders", 0, 1)
        await broker.restart()
        assert broker.wait.seen.committed("billing", "orders")[0] == 1


async def test_a_power_cut_forgets_what_was_not_synced(autojump_clock: MockClock) -> None:
    async with TestBroker(files=FaultyFileSystem(), flush_disk_type="SYNC_FLUSH") as broker:
        async with Producer("shop", namesrv=broker) as producer:
            for number in range(5):
                await producer.send(Message("orders", b"%d" % number))
        await broker.power_cut(seed=3)
        await broker.start()
        assert len(broker.sent("orders")) == 5
    async with TestBroker() as broker:
        with pytest.raises(ConfigurationError, match="FaultyFileSystem"):
            await broker.power_cut(seed=3)


@pytest.mark.real_time
async def test_ports_stay_over_lives() -> None:
    async with TestBroker(listen=free_port(-2), namesrv_listen=free_port()) as broker:
        addresses = broker.address, broker.namesrv_address
        async with Producer("shop", namesrv=broker.namesrv_address) as producer:
            await producer.send(Message("orders", b"1"))
            await broker.kill()
            assert (broker.address, broker.namesrv_address) == addresses
            await broker.start()
            assert (broker.address, broker.namesrv_address) == addresses
            await producer.send(Message("orders", b"2"), timeout=20)
        assert len(broker.sent("orders")) == 2


async def test_a_broker_whose_files_are_corrupt_says_so_at_the_start(
    autojump_clock: MockClock,
) -> None:
    async with TestBroker() as broker:
        await broker.stop()
        broker._kept.write("config/topics.json", b"{")  # type: ignore[union-attr]
        broker._kept.write("config/topics.json.bak", b"{")  # type: ignore[union-attr]
        with pytest.raises(Exception, match=r"topics\.json"):
            await broker.start()
        assert not broker.running


async def test_changes_at_the_same_time_wait_for_each_other(autojump_clock: MockClock) -> None:
    """Each is one step: none meets the broker while another one has it stopped."""
    async with TestBroker() as broker:
        await broker.seed(topics={"orders": 1}, messages={"orders": ["1"]})
        async with trio.open_nursery() as nursery:
            for change in (broker.restart, broker.snapshot, broker.restart):
                nursery.start_soon(change)
            nursery.start_soon(broker.emulate, "5.1.4")
            nursery.start_soon(broker.emulate, "4.9.7")
        assert broker.health()
        assert broker.emulates in ("4.9.7", "5.1.4")
        assert len(broker.sent("orders")) == 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.reset)
            nursery.start_soon(broker.restart)
        assert (broker.running, broker.sent("orders")) == (True, [])


async def test_an_option_that_is_misspelt_is_told() -> None:
    for wrong, right in (("strikt", "strict"), ("emulates", "emulate"), ("listn", "listen")):
        with pytest.raises(ConfigurationError, match=f"no setting {wrong}; did you mean {right}"):
            TestBroker(**{wrong: True})
    with pytest.raises(ConfigurationError, match="no setting namesrv_listn; did you mean namesrv"):
        EmbeddedBroker(namesrv_listn=0)  # type: ignore[call-arg]
