"""The route cache: sharing, refreshing, polling, forgetting."""

from __future__ import annotations

import gc
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from rocketmq_sdk.client.brokers import BrokerAddresses
from rocketmq_sdk.client.routes import DefaultTopic, RouteCache
from rocketmq_sdk.errors import ClosedError, ConnectError, TopicNotFoundError, broker_error
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.route import BrokerData, QueueData, TopicRoute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock


def route(*brokers: str, queues: int = 2, port: int = 1) -> TopicRoute:
    return TopicRoute(
        tuple(QueueData(name, queues, queues, 6) for name in brokers),
        tuple(BrokerData("c", name, {0: f"{name}:{port}"}) for name in brokers),
    )


class Fixture:
    def __init__(self) -> None:
        self.known: dict[str, TopicRoute] = {}
        self.asked: list[tuple[float, str]] = []
        self.changed: list[str] = []
        self.down = False
        self.delay = 0.0
        self.brokers = BrokerAddresses()
        self.cache = RouteCache(
            self.ask, self.brokers, interval=30.0, on_changed=self.changed.append
        )

    async def ask(self, topic: str) -> TopicRoute:
        self.asked.append((trio.current_time(), topic))
        await trio.sleep(self.delay)
        if self.down:
            raise ConnectError("down")
        if topic not in self.known:
            raise broker_error(17, topic=topic)
        return self.known[topic]

    def times(self, topic: str) -> list[float]:
        return [round(time, 3) for time, asked in self.asked if asked == topic]


@asynccontextmanager
async def running() -> AsyncIterator[Fixture]:
    fixture = Fixture()
    async with trio.open_nursery() as nursery:
        await nursery.start(fixture.cache.run, nursery)
        with trio.fail_after(1000):
            yield fixture
        nursery.cancel_scope.cancel()


async def test_callers_share_one_query(autojump_clock: MockClock) -> None:
    async with running() as fixture:
        fixture.known["t"] = route("b")
        fixture.delay = 1.0
        with trio.move_on_after(0.5):
            await fixture.cache.fetch("t")
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(fixture.cache.fetch, "t")
        assert len(fixture.asked) == 1
        assert fixture.cache.get("t") == route("b")
        assert fixture.brokers.address("b") == "b:1"


async def test_routes_in_use_are_refreshed(autojump_clock: MockClock) -> None:
    async with running() as fixture:
        fixture.known["t"] = fixture.known["unused"] = route("b")
        await fixture.cache.fetch("unused")
        fixture.cache.use("t")
        start = trio.current_time()
        await trio.sleep(65)
        assert [time - start for time in fixture.times("t")] == pytest.approx([0, 30, 60], abs=0.01)
        assert len(fixture.times("unused")) == 1
        fixture.cache.release("t")
        await trio.sleep(65)
        assert len(fixture.times("t")) == 3


async def test_a_missing_route_is_polled_with_growing_pauses(autojump_clock: MockClock) -> None:
    async with running() as fixture:
        start = trio.current_time()
        fixture.cache.use("t")
        await trio.sleep(20)
        assert [time - start for time in fixture.times("t")] == pytest.approx(
            [0, 1, 3, 7, 15], abs=0.01
        )
        fixture.known["t"] = route("b")
        await trio.sleep(20)
        assert fixture.cache.subscribe_queues("t") == [
            MessageQueue("t", "b", 0),
            MessageQueue("t", "b", 1),
        ]
        assert fixture.changed == ["t"]


async def test_changes_are_told_once(autojump_clock: MockClock) -> None:
    async with running() as fixture:
        fixture.known["t"] = route("a", "b")
        fixture.cache.use("t")
        await trio.sleep(1)
        version = fixture.cache.version
        fixture.known["t"] = attrs.evolve(route("b", "a"))  # only the order differs
        await trio.sleep(31)
        assert fixture.changed == ["t"]
        assert fixture.cache.version == version
        fixture.known["t"] = route("a", port=2)
        await trio.sleep(31)
        assert fixture.changed == ["t", "t"]
        assert fixture.cache.version > version
        assert fixture.brokers.address("a") == "a:2"
        assert fixture.brokers.address("b") is None


async def test_a_refresh_can_be_asked_for_but_not_too_often(autojump_clock: MockClock) -> None:
    async with running() as fixture:
        fixture.known["t"] = route("b")
        fixture.cache.use("t")
        await trio.sleep(5)
        start = trio.current_time()
        for _ in range(10):
            fixture.cache.request_refresh("t")
            await trio.sleep(0.1)
        await trio.sleep(3)
        assert [time - start for time in fixture.times("t")[1:]] == pytest.approx([0, 1], abs=0.01)


async def test_a_topic_that_vanishes_keeps_its_route(autojump_clock: MockClock) -> None:
    async with running() as fixture:
        fixture.known["t"] = route("b")
        fixture.cache.use("t")
        await trio.sleep(1)
        del fixture.known["t"]
        await trio.sleep(40)
        assert fixture.cache.get("t") == route("b")
        assert len(fixture.asked) >= 4


async def test_when_no_name_server_answers_all_topics_wait(autojump_clock: MockClock) -> None:
    async with running() as fixture:
        fixture.down = True
        for number in range(5):
            fixture.cache.use(f"t{number}")
        await trio.sleep(10)
        assert len(fixture.asked) < 20
        fixture.down = False
        for number in range(5):
            fixture.known[f"t{number}"] = route("b")
        await trio.sleep(60)
        assert all(fixture.cache.get(f"t{number}") for number in range(5))


async def test_the_default_topic(autojump_clock: MockClock) -> None:
    async with running() as fixture:
        fixture.known["TBW102"] = route("b", queues=8)
        fixture.cache.use("t")
        with pytest.raises(TopicNotFoundError):
            await fixture.cache.fetch("t")
        await fixture.cache.fetch("t", DefaultTopic("TBW102", 4))
        info = fixture.cache.publish_info("t")
        assert info is not None
        assert info.provisional
        assert len(info.queues) == 4
        assert fixture.cache.get("t") is None
        assert fixture.cache.subscribe_queues("t") == []
        fixture.known["t"] = route("b", queues=3)
        await trio.sleep(5)
        info = fixture.cache.publish_info("t")
        assert info is not None
        assert not info.provisional
        assert len(info.queues) == 3


async def test_the_default_topic_does_not_replace_a_known_route(autojump_clock: MockClock) -> None:
    async with running() as fixture:
        fixture.known["TBW102"] = route("b", queues=8)
        fixture.known["t"] = route("b", queues=3)
        await fixture.cache.fetch("t", DefaultTopic("TBW102", 4))
        del fixture.known["t"]
        with pytest.raises(TopicNotFoundError):
            await fixture.cache.fetch("t", DefaultTopic("TBW102", 4))
        assert len(fixture.cache.subscribe_queues("t")) == 3


async def test_the_error_of_a_query_goes_with_its_last_user() -> None:
    async def ask(fixture: Fixture) -> weakref.ref[Exception]:
        try:
            await fixture.cache.fetch("nobody")
        except TopicNotFoundError as error:
            return weakref.ref(error)
        raise AssertionError("somebody knew the topic")

    async with running() as fixture:
        gc.collect()
        gc.disable()
        try:
            error = await ask(fixture)
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            assert error() is None  # in no circle with the frames that it passed
        finally:
            gc.enable()


async def test_closing_ends_queries(autojump_clock: MockClock) -> None:
    fixture = Fixture()
    fixture.delay = 100
    async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
        await nursery.start(fixture.cache.run, nursery)

        async def ask() -> None:
            with pytest.raises(ClosedError):
                await fixture.cache.fetch("t")

        outer.start_soon(ask)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    with pytest.raises(ClosedError):
        await Fixture().cache.fetch("t")
