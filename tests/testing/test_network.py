"""Parties on a network in memory, and cuts between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import ConsumeFrom, Message, Producer, PushConsumer
from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from rocketmq_sdk.testing import TestBroker
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.consuming import Collector, texts

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_a_client_that_is_cut_off_comes_back(autojump_clock: MockClock) -> None:
    async with (
        TestBroker() as broker,
        Producer("one", namesrv=broker.party("shop"), send_timeout=3) as shop,
        Producer("two", namesrv=broker.party("office"), send_timeout=3) as office,
    ):
        await shop.send(Message("orders", b"1"))
        await office.send(Message("orders", b"2"))
        with broker.network.cut("shop", broker.host):
            with pytest.raises(RocketMQError):
                await shop.send(Message("orders", b"lost"))
            await office.send(Message("orders", b"3"))
        await shop.send(Message("orders", b"4"), timeout=30)
        found = texts(broker.sent("orders"))
        assert [body for body in found if body != "lost"] == ["1", "2", "3", "4"]


async def test_one_way_the_answers_are_lost_or_the_requests(autojump_clock: MockClock) -> None:
    async with (
        TestBroker() as broker,
        Producer("one", namesrv=broker.party("shop"), send_timeout=2, retry_times=0) as shop,
    ):
        await shop.send(Message("orders", b"1"))
        with broker.network.cut(broker.host, "shop", one_way=True):
            with pytest.raises(RocketMQError) as caught:
                await shop.send(Message("orders", b"2"))
            assert caught.value.outcome_unknown
            assert texts(broker.sent("orders")) == ["1", "2"]
        with broker.network.cut("shop", broker.host, one_way=True):
            with pytest.raises(RocketMQError):
                await shop.send(Message("orders", b"3"))
            assert texts(broker.sent("orders")) == ["1", "2"]


async def test_a_consumer_goes_on_after_a_cut_and_a_kill(autojump_clock: MockClock) -> None:
    got = Collector()
    async with (
        TestBroker() as broker,
        PushConsumer(
            "billing",
            namesrv=broker.party("billing"),
            subscriptions={"orders": "*"},
            listener=got,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ),
    ):
        await broker.seed(messages={"orders": ["1"]})
        await broker.wait.lag("billing", "orders")
        cut = broker.network.cut("billing", broker.host)
        await broker.kill()
        await broker.start()
        await trio.sleep(60)
        cut.heal()
        cut.heal()
        await broker.seed(messages={"orders": ["2"]})
        await broker.wait.until(lambda: "2" in got.bodies, "the second order", within=200)


async def test_a_cut_between_nobody_is_refused(autojump_clock: MockClock) -> None:
    async with TestBroker() as broker:
        broker.party("shop")
        with pytest.raises(ConfigurationError, match="nobody on the network is called 'shp'"):
            broker.network.cut("shp", broker.host)
        with pytest.raises(ConfigurationError, match="cannot be called"):
            broker.party("shop:1")


async def test_bytes_that_were_held_up_arrive_in_order(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    listener = network.listen("there:1")
    stream = await network.connect("there:1", source="here:0")
    far = await listener.accept()
    await stream.send_all(b"a")
    network.sever("here", "there")
    await stream.send_all(b"b")
    await far.send_all(b"back")
    assert await stream.receive_some() == b"back"
    with trio.move_on_after(5) as scope:
        await far.receive_some()
    assert scope.cancelled_caught
    with trio.move_on_after(5) as scope:
        await network.connect("there:1", source="here:0")
    assert scope.cancelled_caught
    await stream.send_eof()
    network.mend("here", "there")
    assert await far.receive_some() == b"ab"
    assert await far.receive_some() == b""
    await network.connect("there:1", source="here:0")
