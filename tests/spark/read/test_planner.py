"""Where batches begin and end when brokers go away, topics come late, and runs are
frozen: the planner over a cluster that is told what to answer.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from rocketmq_sdk import Admin, Client, EmbeddedBroker
from rocketmq_sdk.client.api.progress import topic_stats
from rocketmq_sdk.errors import RouteError
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.retry import UnreachableError, persistently
from rocketmq_sdk.spark.cluster.view import ClusterView
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.plan.loss import DataLossError, GoneError
from rocketmq_sdk.spark.plan.offsets import BatchEnd, QueueKey
from rocketmq_sdk.spark.plan.queue_state import Bounds
from rocketmq_sdk.spark.plan.ranges import ranges_between
from rocketmq_sdk.spark.read.availability import ASK_SECONDS, PROBE_EVERY
from rocketmq_sdk.spark.read.planner import DISCOVERY_SECONDS, StreamPlanner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from trio.testing import MockClock


@attrs.define
class Told:
    """The state of the cluster."""

    places: dict[QueueKey, Bounds]
    away: set[str] = attrs.field(factory=set)
    silent: set[str] = attrs.field(factory=set)
    hidden: set[QueueKey] = attrs.field(factory=set)
    slave: dict[str, dict[QueueKey, Bounds]] = attrs.field(factory=dict)
    """What slaves say instead of masters that are away."""
    unnoticed: set[str] = attrs.field(factory=set)
    """Brokers whose masters are away, but the name server does not know it yet."""
    asks: int = 0
    discoveries: int = 0
    looks: int = 0
    checked: list[QueueKey] = attrs.field(factory=list)


class ToldCluster:
    """`ClusterView` with answers out of `Told`.

    A broker that is away takes its queues along, as out of a route. One that is silent
    does not answer. Hidden queues are not in the route.
    """

    told: Told

    def __init__(self, client: None, settings: Any) -> None:
        self._settings = settings

    async def queues(self, *, must_exist: bool = True) -> list[QueueKey]:
        self.told.discoveries += 1
        return sorted(
            queue
            for queue in self.told.places
            if queue.broker not in self.told.away and queue not in self.told.hidden
        )

    async def check_expression(self, queues: Iterable[QueueKey]) -> None:
        self.told.checked += queues

    async def bounds(self, queues: Iterable[QueueKey]) -> dict[QueueKey, Bounds]:
        return {
            queue: self.told.slave.get(queue.broker, self.told.places)[queue]
            for queue in queues
            if queue in self.told.places and queue.broker not in self.told.away
        }

    async def bounds_in_time(
        self, queues: Iterable[QueueKey], patience: Mapping[str, float]
    ) -> tuple[dict[QueueKey, Bounds], set[str]]:
        self.told.asks += 1
        silent = self.told.silent & patience.keys()
        await trio.sleep(max((patience[broker] for broker in silent), default=0))
        return await self.bounds(queue for queue in queues if queue.broker not in silent), silent

    async def without_master(self, brokers: Iterable[str]) -> set[str]:
        self.told.looks += 1
        return set(brokers) & (self.told.away | self.told.slave.keys()) - self.told.unnoticed

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


async def after(plans: StreamPlanner, start: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
    """Where the next batch ends; where it begins, if there is none."""
    end = await plans.next_end(start)
    assert end is None or end.offsets != start
    return dict(start if end is None else end.offsets)


def read(
    plans: StreamPlanner, start: Mapping[QueueKey, int], end: Mapping[QueueKey, int] | BatchEnd
) -> dict[QueueKey, tuple[int, int]]:
    """What a batch reads; a bare end is one of an old checkpoint."""
    stop = end if isinstance(end, BatchEnd) else BatchEnd(end)
    return {
        item.queue: (item.begin, item.end)
        for item in ranges_between(plans.begins(start, stop), stop.offsets)
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
    assert await after(plans, start) == start == {key(0): 0}
    end = await after(plans, start)
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
    assert await after(plans, start) == {key(0): 100, key(0, "b"): 50}


async def test_an_old_topic_enters_where_its_messages_begin(
    told: Told, autojump_clock: object
) -> None:
    """Nothing before that place is read: those messages expired long before the query
    knew the topic.
    """
    plans = planner()
    start = {key(0): 100, key(0, "b"): 50}
    told.places[key(3, "c")] = Bounds(1000, 1010)
    entered = await after(plans, start)
    assert entered == {**start, key(3, "c"): 1000}
    assert read(plans, start, entered) == {}
    end = await after(plans, entered)
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
    assert await after(plans, start) == start
    assert await after(plans, start) == start


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
        end = await after(plans, start)
    assert end == {key(0): 100, key(0, "b"): 50}
    assert trio.current_time() > 30


async def test_a_broker_that_restarts_in_a_frozen_run(told: Told, autojump_clock: object) -> None:
    told.away = {"b"}
    plans = planner(maxOffsetsPerTrigger="4")
    await plans.freeze()
    told.away = set()
    start = {key(0): 100, key(0, "b"): 40}
    for _ in range(3):
        start = await after(plans, start)
    assert start == {key(0): 100, key(0, "b"): 50}
    told.places[key(0, "b")] = Bounds(0, 90)
    await later()
    assert await after(plans, start) == start, (
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
        await after(planner(retryTimeout="20s"), {key(0): 100, key(0, "b"): 40})


async def test_skipped_queues_of_a_broker_stand_still_until_it_is_back(
    told: Told, autojump_clock: object
) -> None:
    """Were they forgotten, the broker would enter anew with its first message, and all
    of its messages be read twice.
    """
    plans = planner(onBrokerAway="skip")
    start = {key(0): 90, key(0, "b"): 40}
    told.away = {"b"}
    begin = trio.current_time()
    for _ in range(500):
        assert await after(plans, start) == {key(0): 100, key(0, "b"): 40}
        await trio.sleep(0.01)
    assert trio.current_time() - begin < 6
    assert told.looks <= 6
    told.away = set()
    await later()
    assert await after(plans, start) == {key(0): 100, key(0, "b"): 50}


async def test_a_broker_that_does_not_answer_costs_the_others_a_tenth_of_the_time(
    told: Told, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays in all routes, as one that hangs does."""
    plans = planner(onBrokerAway="skip")
    start = {key(0): 90, key(0, "b"): 40}
    told.silent = {"b"}
    begin = trio.current_time()
    assert await after(plans, start) == {key(0): 100, key(0, "b"): 40}
    assert trio.current_time() - begin == pytest.approx(ASK_SECONDS)
    begin, waited, looks = trio.current_time(), 0.0, told.looks
    while trio.current_time() < begin + 100:
        asked = trio.current_time()
        assert await after(plans, start) == {key(0): 100, key(0, "b"): 40}
        waited += trio.current_time() - asked
        await trio.sleep(0.1)
    assert waited <= 12
    assert told.looks == looks
    assert told.discoveries <= 25
    told.silent = set()
    await trio.sleep(PROBE_EVERY)
    assert await after(plans, start) == {key(0): 100, key(0, "b"): 50}
    assert caplog.text.count("is away") == caplog.text.count("is back") == 1


@pytest.mark.parametrize("how", ["away", "silent"])
async def test_a_broker_is_borne_to_be_away_for_a_limited_time(
    told: Told, autojump_clock: object, how: str
) -> None:
    plans = planner(onBrokerAway="skip", maxBrokerAway="60s")
    start = {key(0): 90, key(0, "b"): 40}
    setattr(told, how, {"b"})
    begin = trio.current_time()

    async def follow() -> None:
        while True:
            await after(plans, start)
            await trio.sleep(1)

    with pytest.raises(UnreachableError, match="brokers b are away for more than maxBrokerAway"):
        await follow()
    assert 60 < trio.current_time() - begin < 80


async def test_a_slave_that_lags_behind_its_master_is_no_loss(
    told: Told, autojump_clock: object
) -> None:
    """While the master is away the slave answers, which may not have the newest
    messages yet.
    """
    plans = planner(onBrokerAway="skip")
    start = {key(0): 100, key(0, "b"): 50}
    slave = {key(0): Bounds(0, 100), key(0, "b"): Bounds(0, 45)}

    async def answered(_: object, queues: Iterable[QueueKey]) -> dict[QueueKey, Bounds]:
        return {queue: slave[queue] for queue in queues}

    async def without_master(_: object, brokers: Iterable[str]) -> set[str]:
        return {"b"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToldCluster, "bounds", answered)
        patch.setattr(ToldCluster, "without_master", without_master)
        assert await after(plans, start) == start
    await later()
    assert await after(plans, start) == start


async def test_a_topic_that_is_gone_is_a_loss(
    told: Told, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    del told.places[key(0, "b")]
    start = {key(0): 100, key(0, "b"): 50}
    gone = r"queue T/b/0 should be read up to offset 50, but ends at 0: .*failOnDataLoss=false"
    with pytest.raises(GoneError, match=gone):
        await after(planner(), start)
    plans = planner(failOnDataLoss="false")
    end = await plans.next_end(start)
    assert end == BatchEnd({key(0): 100}, 1, True)
    assert read(plans, start, end) == {}
    assert "failOnDataLoss is false" in caplog.text
    told.places[key(0, "b")] = Bounds(0, 3)
    await later()
    entered = await plans.next_end(end.offsets)
    assert entered == BatchEnd({key(0): 100, key(0, "b"): 0}, 1, True)
    assert await after(plans, entered.offsets) == {key(0): 100, key(0, "b"): 3}


async def test_a_topic_that_was_made_again_is_read_from_its_start(
    told: Told, autojump_clock: object
) -> None:
    told.places[key(0, "b")] = Bounds(0, 7)
    start = {key(0): 100, key(0, "b"): 50}
    with pytest.raises(GoneError, match="T/b/0 should be read up to offset 50, but ends at 7"):
        await after(planner(), start)
    plans = planner(failOnDataLoss="false")
    end = await plans.next_end(start)
    assert end == BatchEnd({key(0): 100, key(0, "b"): 0}, 1)
    assert read(plans, start, end) == {}
    assert read(plans, end.offsets, await plans.next_end(end.offsets) or end) == {
        key(0, "b"): (0, 7)
    }


async def test_expired_messages_are_a_loss(
    told: Told, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    told.places[key(0)] = Bounds(60, 100)
    start = {key(0): 50, key(0, "b"): 50}
    with pytest.raises(DataLossError, match="queue T/a/0 should be read from offset 50 on"):
        await after(planner(), start)
    assert await after(planner(failOnDataLoss="false"), start) == {key(0): 100, key(0, "b"): 50}
    assert "begin at 60" in caplog.text


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fail", ["true", "false"])
async def test_a_queue_that_may_no_longer_be_read_keeps_its_offset(
    told: Told,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
    known: bool,
    fail: str,
) -> None:
    """With fewer read queues the broker may still tell its end; with fewer queues in
    all it tells nothing.
    """
    retired = told.places[key(1)] = Bounds(0, 20)
    plans = planner(failOnDataLoss=fail)
    start = {key(0): 100, key(1): 15, key(0, "b"): 50}
    if known:
        told.hidden = {key(1)}
    else:
        del told.places[key(1)]
    told.places[key(0)] = Bounds(0, 110)
    for _ in range(3):
        assert await after(plans, start) == {**start, key(0): 110}
        await later()
    told_so = "5 messages wait in it" if known else "it was read to its end"
    assert caplog.text.count(f"T/a/1 may no longer be read ({told_so})") == 1
    told.hidden, told.places[key(1)] = set(), retired
    await later()
    assert await after(plans, start) == {key(0): 110, key(1): 20, key(0, "b"): 50}


async def test_a_batch_planned_again_has_as_many_tasks(told: Told, autojump_clock: object) -> None:
    told.places = {key(0): Bounds(0, 10_000)}
    start = {key(0): 0}

    async def tasks(default_tasks: int, **options: str) -> int | None:
        options = {"namesrvAddr": "127.0.0.1:9876", "subscribe": "T", **options}
        end = await StreamPlanner(parse(options, Use.STREAM), default_tasks).next_end(start)
        assert end is not None
        return end.tasks

    assert await tasks(2) == 2
    assert await tasks(64) == 5, "a task for 2,000 offsets is enough"
    assert await tasks(64, numPartitions="7") == 7


async def test_a_pattern_that_matched_nothing_at_first(told: Told, autojump_clock: object) -> None:
    """What expired before the topic was found is not planned."""
    told.places = {}
    plans = StreamPlanner(
        parse({"namesrvAddr": "127.0.0.1:9876", "subscribePattern": "T.*"}, Use.STREAM)
    )
    start = await plans.initial()
    assert start == {}
    told.places = {key(0): Bounds(700, 900)}
    await later()
    entered = await plans.next_end(start)
    assert entered == BatchEnd({key(0): 700}, 1, True)
    assert read(plans, start, entered) == {}
    end = await plans.next_end(entered.offsets)
    assert end == BatchEnd({key(0): 900}, 1)
    assert read(plans, entered.offsets, end) == {key(0): (700, 900)}


async def test_everything_is_planned_at_once_when_spark_asks_for_it(
    told: Told, autojump_clock: object
) -> None:
    plans = planner(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    start = {key(0): 0, key(0, "b"): 0}
    limited = await plans.next_end(start)
    assert limited is not None
    assert sum(limited.offsets.values()) == 10
    end = await plans.next_end(start, everything=True)
    assert end is not None
    assert end.offsets == {key(0): 100, key(0, "b"): 50}
    assert read(plans, start, end) == {key(0): (0, 100), key(0, "b"): (0, 50)}


async def test_the_only_batch_of_a_run_reads_whatever_came_or_went(
    told: Told, autojump_clock: object
) -> None:
    """No other batch follows it, so nothing is written down by an empty one."""
    plans = planner(startingOffsets='{"T":{"a":{"0":30}}}', failOnDataLoss="false")
    start = await plans.initial()
    first = await plans.next_end(start, everything=True)
    assert first is not None
    expected = {key(0): (30, 100), key(0, "b"): (0, 50)}
    assert read(plans, start, first) == expected
    again = BatchEnd.from_json(first.to_json(), source="a checkpoint")
    told.away.add("b")
    assert read(planner(startingOffsets="latest"), {}, again) == expected
    told.away.clear()
    told.places[key(1)] = Bounds(7, 9)  # new
    told.places[key(0)] = Bounds(3, 20)  # made again
    del told.places[key(0, "b")]  # gone
    await later()
    second = await plans.next_end(first.offsets, everything=True)
    assert second is not None
    assert read(plans, first.offsets, second) == {key(0): (3, 20), key(1): (7, 9)}
    assert await plans.next_end(second.offsets, everything=True) is None


async def test_enough_is_not_waited_for_in_a_frozen_run(told: Told, autojump_clock: object) -> None:
    options = {
        "startingOffsets": "earliest",
        "minOffsetsPerTrigger": "1000",
        "maxTriggerDelay": "1h",
    }
    start = {key(0): 0, key(0, "b"): 0}
    waits, frozen = planner(**options), planner(**options)
    assert await after(waits, start) == start
    await frozen.freeze()
    assert await after(frozen, start) == {key(0): 100, key(0, "b"): 50}
    await trio.sleep(3601)
    assert await after(waits, start) == {key(0): 100, key(0, "b"): 50}


async def test_an_expression_is_checked_at_brokers_that_come_later_and_after_a_restart(
    told: Told, autojump_clock: object
) -> None:
    plans = planner(subExpression="a > 1", filterType="SQL92")
    start = {key(0): 100, key(0, "b"): 50}
    await after(plans, start)
    assert told.checked == [key(0), key(0, "b")]
    told.places[key(0, "c")] = Bounds(0, 1)
    await later()
    await after(plans, start)
    assert told.checked == [key(0), key(0, "b"), key(0, "c")]


async def test_ends_are_as_old_as_the_interval_allows(told: Told, autojump_clock: object) -> None:
    plans = planner(offsetRefreshInterval="1s")
    start = {key(0): 0, key(0, "b"): 0}
    await after(plans, start)
    told.places[key(0)] = Bounds(0, 101)
    assert (await after(plans, start))[key(0)] == 100
    await trio.sleep(1.01)
    assert (await after(plans, start))[key(0)] == 101
    assert told.discoveries == 1


@pytest.mark.parametrize("fail", ["true", "false"])
async def test_a_topic_that_no_route_names_for_a_moment_keeps_its_offsets(
    told: Told, autojump_clock: object, fail: str
) -> None:
    """Its brokers still have it, whatever planner looks, and however often."""
    told.hidden = set(told.places)
    start = {key(0): 40, key(0, "b"): 50}
    plans = planner(failOnDataLoss=fail)
    for _ in range(4):
        assert await after(plans, start) == start
        await trio.sleep(0.2)
    assert await after(planner(failOnDataLoss=fail), start) == start
    told.hidden = set()
    await later()
    assert await after(plans, start) == {key(0): 100, key(0, "b"): 50}


@pytest.mark.parametrize("away", ["wait", "skip"])
async def test_a_queue_that_stands_still_is_not_gone_where_a_slave_lags(
    told: Told, autojump_clock: object, away: str
) -> None:
    """Its master may go away at any time; the slave that answers has fewer messages."""
    told.places[key(1)] = Bounds(0, 20)
    start = {key(0): 100, key(1): 15, key(0, "b"): 50}
    told.hidden = {key(1)}
    plans = planner(onBrokerAway=away, retryTimeout="5s")
    assert await after(plans, start) == start  # and looks for queues again 5 s later
    await trio.sleep(0.2)
    told.slave = {"a": {key(0): Bounds(0, 100), key(1): Bounds(0, 4)}}
    if away == "wait":
        with pytest.raises(UnreachableError, match="waiting for the brokers a"):
            await plans.next_end(start)
    else:
        for _ in range(3):
            assert await after(plans, start) == start
            await later()
    told.slave, told.hidden = {}, set()
    await later()
    assert await after(plans, start) == {**start, key(1): 20}


@pytest.mark.parametrize("marked", [False, True])
async def test_a_second_broker_that_goes_away_at_once_is_looked_for(
    told: Told, autojump_clock: object, marked: bool
) -> None:
    """Whether it is asked about again, or its slave says that it is one."""
    plans = planner(onBrokerAway="skip")
    start = {key(0): 100, key(0, "b"): 50}
    told.away = {"b"}
    assert await after(plans, start) == start
    await trio.sleep(0.1)
    told.slave = {"a": {key(0): Bounds(0, 90, lags=marked)}}
    told.unnoticed = {"a"} if marked else set()
    assert await after(plans, start) == start
    told.slave, told.away, told.unnoticed = {}, set(), set()
    told.places[key(0)] = Bounds(0, 101)
    await later()
    assert await after(plans, start) == {**start, key(0): 101}


async def test_new_queues_whose_first_messages_are_gone_are_told(
    told: Told, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    plans = planner()
    start = {key(0): 100, key(0, "b"): 50}
    told.places |= {key(1): Bounds(30, 40), key(2): Bounds(0, 5)}
    for _ in range(2):
        assert await after(plans, start) == {**start, key(1): 30, key(2): 0}
    assert caplog.text.count("1 new queues are read from their first messages") == 1
    assert "T/a/1 from offset 30" in caplog.text


async def test_metrics_of_what_stands_still_and_is_given_up(
    told: Told, autojump_clock: object
) -> None:
    plans = planner(failOnDataLoss="false", onBrokerAway="skip")
    start = {key(0): 40, key(0, "b"): 50}
    await after(plans, start)
    assert plans.metrics == {"away": [], "losses": 0, "lostOffsets": 0, "standing": 0}
    told.places[key(0)], told.away = Bounds(60, 100), {"b"}
    for _ in range(3):
        await later()
        await after(plans, start)
    assert plans.metrics == {"away": ["b"], "losses": 1, "lostOffsets": 20, "standing": 0}


async def test_idle_polling_asks_seldom(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark asks about 90 times a second; a broker is asked once in 50 ms for a topic,
    however many queues it has.
    """
    asked: list[float] = []

    async def counted(*arguments: Any) -> Any:
        asked.append(trio.current_time())
        return await topic_stats(*arguments)

    async with EmbeddedBroker() as broker, Client(broker) as client:

        @asynccontextmanager
        async def lent(_: object) -> AsyncIterator[Client]:
            yield client

        monkeypatch.setattr(bridge, "client", lent)
        monkeypatch.setattr("rocketmq_sdk.spark.cluster.view.topic_stats", counted)
        await Admin(client=client).topics.create("T", queues=256)
        plans = planner()
        start = await plans.initial()
        assert len(start) == 256
        asked.clear()
        for _ in range(180):
            assert await plans.next_end(start) is None
            await trio.sleep(1 / 90)
        assert 30 <= len(asked) <= 40
