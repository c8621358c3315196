"""Where batches begin and end when brokers go away, topics come late, and runs are
frozen: the planner over a cluster that is told what to answer.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from rocketmq_sdk.errors import RouteError
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.retry import UnreachableError, persistently
from rocketmq_sdk.spark.cluster.view import Bounds, ClusterView
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.plan.loss import GoneError
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.plan.ranges import ranges_between
from rocketmq_sdk.spark.read.planner import DISCOVERY_SECONDS, StreamPlanner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping


@attrs.define
class Told:
    """The state of the cluster."""

    places: dict[QueueKey, Bounds]
    away: set[str] = attrs.field(factory=set)
    discoveries: int = 0
    looks: int = 0
    checked: list[QueueKey] = attrs.field(factory=list)


class ToldCluster:
    """`ClusterView` with answers out of `Told`; a broker that is away takes its queues
    along, as out of a route.
    """

    told: Told

    def __init__(self, client: None, settings: Any) -> None:
        self._settings = settings

    async def queues(self, *, must_exist: bool = True) -> list[QueueKey]:
        self.told.discoveries += 1
        return sorted(queue for queue in self.told.places if queue.broker not in self.told.away)

    async def check_expression(self, queues: Iterable[QueueKey]) -> None:
        self.told.checked += queues

    async def bounds(self, queues: Iterable[QueueKey]) -> dict[QueueKey, Bounds]:
        return {
            queue: self.told.places[queue]
            for queue in queues
            if queue in self.told.places and queue.broker not in self.told.away
        }

    async def without_master(self, brokers: Iterable[str]) -> set[str]:
        self.told.looks += 1
        return set(brokers) & self.told.away

    async def wait_for_masters(self, queues: Iterable[QueueKey]) -> None:
        brokers = {queue.broker for queue in queues}

        async def look() -> None:
            away = await self.without_master(brokers)
            if away:
                raise RouteError(f"no master of {', '.join(sorted(away))} is registered")

        await persistently(
            f"waiting for the brokers {', '.join(sorted(brokers))}",
            self._settings.retry_timeout,
            look,
        )


def key(number: int, broker: str = "a", topic: str = "T") -> QueueKey:
    return QueueKey(topic, broker, number)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    @asynccontextmanager
    async def client(_: object) -> AsyncIterator[None]:
        yield None

    state = Told({key(0): Bounds(0, 100), key(0, "b"): Bounds(0, 50)})
    monkeypatch.setattr(ToldCluster, "told", state, raising=False)
    monkeypatch.setattr("rocketmq_sdk.spark.read.planner.ClusterView", ToldCluster)
    monkeypatch.setattr(bridge, "client", client)
    return state


def planner(**options: str) -> StreamPlanner:
    return StreamPlanner(
        parse({"namesrvAddr": "127.0.0.1:9876", "subscribe": "T", **options}, Use.STREAM)
    )


def read(
    plans: StreamPlanner, start: Mapping[QueueKey, int], end: Mapping[QueueKey, int]
) -> dict[QueueKey, tuple[int, int]]:
    return {
        item.queue: (item.begin, item.end) for item in ranges_between(plans.begins(start, end), end)
    }


async def later() -> None:
    """Nothing that was asked before counts any more."""
    await trio.sleep(DISCOVERY_SECONDS + 1)


async def test_told_cluster_has_what_the_planner_asks() -> None:
    names = [name for name in vars(ToldCluster) if not name.startswith("_") and name != "told"]
    assert all(callable(getattr(ClusterView, name)) for name in names)


async def test_a_topic_that_is_not_there_is_told_once(
    told: Told, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    plans = planner(subscribe="T, mistyped")
    for _ in range(2):
        await plans.latest()
        await later()
    assert caplog.text.count("the topic mistyped has no queues yet") == 1
    told.places[key(0, topic="mistyped")] = Bounds(0, 1)
    assert (await plans.latest())[key(0, topic="mistyped")] == 1


async def test_latest_of_an_empty_topic_is_written_down_first(
    told: Told, autojump_clock: object
) -> None:
    """Were the first batch planned again, what arrived meanwhile would be passed
    over.
    """
    told.places = {key(0): Bounds(0, 0)}
    plans = planner()
    start = await plans.initial()
    told.places = {key(0): Bounds(0, 5)}
    assert await plans.next_end(start) == start == {key(0): 0}
    end = await plans.next_end(start)
    assert end == {key(0): 5}
    again = planner()
    assert await again.initial() == {key(0): 5}
    assert read(again, await again.initial(), start) == {}, (
        "the first batch planned again has nothing"
    )
    assert read(again, start, end) == {key(0): (0, 5)}


async def test_earliest_needs_no_empty_batch(told: Told, autojump_clock: object) -> None:
    plans = planner(startingOffsets="earliest")
    start = await plans.initial()
    assert await plans.next_end(start) == {key(0): 100, key(0, "b"): 50}


async def test_an_old_topic_enters_where_its_messages_begin(
    told: Told, autojump_clock: object
) -> None:
    """Nothing before that place is read: those messages expired long before the query
    knew the topic.
    """
    plans = planner()
    start = {key(0): 100, key(0, "b"): 50}
    told.places[key(3, "c")] = Bounds(1000, 1010)
    entered = await plans.next_end(start)
    assert entered == {**start, key(3, "c"): 1000}
    assert read(plans, start, entered) == {}
    end = await plans.next_end(entered)
    assert read(plans, entered, end) == {key(3, "c"): (1000, 1010)}
    again = planner()
    assert read(again, start, entered) == {}, "a restart plans the same"


async def test_a_first_batch_from_earliest_planned_again_leaves_nothing_out(
    told: Told, autojump_clock: object
) -> None:
    end = {key(0): 100, key(0, "b"): 50}
    told.away = {"b"}
    again = planner(startingOffsets="earliest")
    start = await again.initial()
    assert start == {key(0): 0}
    assert read(again, start, end) == {key(0): (0, 100), key(0, "b"): (0, 50)}


async def test_messages_between_freezing_and_the_beginning_are_left_to_the_next_run(
    told: Told, autojump_clock: object
) -> None:
    plans = planner()
    await plans.freeze()
    told.places = {key(0): Bounds(0, 120), key(0, "b"): Bounds(0, 50), key(1): Bounds(0, 3)}
    await later()
    start = await plans.initial()
    assert start == {key(0): 100, key(0, "b"): 50}
    assert await plans.next_end(start) == start
    assert await plans.next_end(start) == start


async def test_a_broker_that_restarts_is_waited_for(
    told: Told, autojump_clock: trio.testing.MockClock
) -> None:
    plans = planner()
    start = {key(0): 100, key(0, "b"): 40}
    told.away = {"b"}

    async def restart() -> None:
        await trio.sleep(30)
        told.away = set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(restart)
        end = await plans.next_end(start)
    assert end == {key(0): 100, key(0, "b"): 50}
    assert trio.current_time() > 30


async def test_a_broker_that_restarts_in_a_frozen_run(told: Told, autojump_clock: object) -> None:
    told.away = {"b"}
    plans = planner(maxOffsetsPerTrigger="4")
    await plans.freeze()
    told.away = set()
    start = {key(0): 100, key(0, "b"): 40}
    for _ in range(3):
        start = await plans.next_end(start)
    assert start == {key(0): 100, key(0, "b"): 50}
    told.places[key(0, "b")] = Bounds(0, 90)
    await later()
    assert await plans.next_end(start) == start, (
        "the end stays the one that was found when the broker was back"
    )


async def test_a_broker_that_stays_away_ends_the_query_by_its_name(
    told: Told, autojump_clock: object
) -> None:
    told.away = {"b"}
    with pytest.raises(
        UnreachableError,
        match=r"waiting for the brokers b did not succeed within retryTimeout=20s .*no master of b "
        r"is registered",
    ):
        await planner(retryTimeout="20s").next_end({key(0): 100, key(0, "b"): 40})


async def test_without_failing_the_queues_of_a_broker_stand_still_until_it_is_back(
    told: Told, autojump_clock: object
) -> None:
    """Were they forgotten, the broker would enter anew with its first message, and all
    of its messages be read twice.
    """
    plans = planner(failOnDataLoss="false")
    start = {key(0): 90, key(0, "b"): 40}
    told.away = {"b"}
    begin = trio.current_time()
    for _ in range(500):
        assert await plans.next_end(start) == {key(0): 100, key(0, "b"): 40}
        await trio.sleep(0.01)
    assert trio.current_time() - begin < 6
    assert told.looks <= 6
    told.away = set()
    await later()
    assert await plans.next_end(start) == {key(0): 100, key(0, "b"): 50}


async def test_a_slave_that_lags_behind_its_master_is_no_loss(
    told: Told, autojump_clock: object
) -> None:
    """While the master is away the slave answers, which may not have the newest
    messages yet.
    """
    plans = planner(failOnDataLoss="false")
    start = {key(0): 100, key(0, "b"): 50}
    slave = {key(0): Bounds(0, 100), key(0, "b"): Bounds(0, 45)}

    async def answered(_: object, queues: Iterable[QueueKey]) -> dict[QueueKey, Bounds]:
        return {queue: slave[queue] for queue in queues}

    async def without_master(_: object, brokers: Iterable[str]) -> set[str]:
        return {"b"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToldCluster, "bounds", answered)
        patch.setattr(ToldCluster, "without_master", without_master)
        assert await plans.next_end(start) == start
    await later()
    assert await plans.next_end(start) == start


@pytest.mark.parametrize("found", [None, Bounds(0, 7)])
async def test_a_topic_that_is_gone_or_made_again_is_a_loss(
    told: Told, autojump_clock: object, found: Bounds | None
) -> None:
    del told.places[key(0, "b")]
    if found is not None:
        told.places[key(0, "b")] = found
    start = {key(0): 100, key(0, "b"): 50}
    with pytest.raises(
        GoneError,
        match=r"queue T/b/0 should be read up to offset 50, but ends at [07]: "
        r".*failOnDataLoss=false",
    ):
        await planner().next_end(start)
    end = await planner(failOnDataLoss="false").next_end(start)
    assert end == ({key(0): 100} if found is None else {key(0): 100, key(0, "b"): 7})
    assert read(planner(), start, end) == {}


async def test_enough_is_not_waited_for_in_a_frozen_run(told: Told, autojump_clock: object) -> None:
    options = {
        "startingOffsets": "earliest",
        "minOffsetsPerTrigger": "1000",
        "maxTriggerDelay": "1h",
    }
    start = {key(0): 0, key(0, "b"): 0}
    waits, frozen = planner(**options), planner(**options)
    assert await waits.next_end(start) == start
    await frozen.freeze()
    assert await frozen.next_end(start) == {key(0): 100, key(0, "b"): 50}
    await trio.sleep(3601)
    assert await waits.next_end(start) == {key(0): 100, key(0, "b"): 50}


async def test_an_expression_is_checked_at_brokers_that_come_later_and_after_a_restart(
    told: Told, autojump_clock: object
) -> None:
    plans = planner(subExpression="a > 1", filterType="SQL92")
    start = {key(0): 100, key(0, "b"): 50}
    await plans.next_end(start)
    assert told.checked == [key(0), key(0, "b")]
    told.places[key(0, "c")] = Bounds(0, 1)
    await later()
    await plans.next_end(start)
    assert told.checked == [key(0), key(0, "b"), key(0, "c")]


async def test_ends_are_as_old_as_the_interval_allows(told: Told, autojump_clock: object) -> None:
    plans = planner(offsetRefreshInterval="1s")
    start = {key(0): 0, key(0, "b"): 0}
    await plans.next_end(start)
    told.places[key(0)] = Bounds(0, 101)
    assert (await plans.next_end(start))[key(0)] == 100
    await trio.sleep(1.01)
    assert (await plans.next_end(start))[key(0)] == 101
    assert told.discoveries == 1
