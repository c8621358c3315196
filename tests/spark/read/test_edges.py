"""What a batch reads, by the state of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.read.edges import batch_ranges
from support.spark_histories import BROKERS, QUEUES, TOPIC, Cluster, Queue, served

if TYPE_CHECKING:
    from rocketmq_sdk.spark.options.settings import SparkOptions


def cluster() -> Cluster:
    keys = [QueueKey(TOPIC, broker, number) for broker in BROKERS for number in range(QUEUES)]
    return Cluster({key: Queue(list(range(20))) for key in keys})


def settings(**options: str) -> SparkOptions:
    return parse({"namesrvAddr": "unused:1", **options}, Use.BATCH)


@pytest.mark.parametrize("away", [False, True])
async def test_a_slave_that_says_where_a_batch_ends_is_told(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: object,
    away: bool,
) -> None:
    state = cluster()
    state.lag, state.away = 5, {"a"} if away else set()
    async with served(monkeypatch, state):
        ranges = await batch_ranges(settings(subscribe=TOPIC))
    ends = {(item.queue.broker, item.end) for item in ranges}
    assert ends == {("a", 15 if away else 20), ("b", 20)}
    assert ("no master of a is there: slaves say where" in caplog.text) is away


async def test_a_batch_that_names_its_queues_is_not_read_without_them(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    """A broker that has left the name server takes its queues along."""
    state = cluster()
    named = '{"T":{"a":[0],"b":[1]}}'
    state.away = {"b"}
    async with served(monkeypatch, state):
        assert {item.queue.broker for item in await batch_ranges(settings(subscribe=TOPIC))} == {
            "a"
        }
        for options in (
            {"assign": named},
            {"subscribe": TOPIC, "startingOffsets": '{"T":{"b":{"1":0}}}'},
        ):
            with pytest.raises(ConfigurationError, match=r"T/b/1, .*does not exist"):
                await batch_ranges(settings(**options))
