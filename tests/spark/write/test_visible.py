"""A write returns when a batch that is read next sees its rows; what a broker does not
tell is logged and is no error.

That Apache's broker lags behind what it acknowledges is shown by
tests/interop/test_spark.py, which failed without this.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.errors import ConnectError, NotPermittedError
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.view import Bounds
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.write import visible
from rocketmq_sdk.spark.write.visible import merged, until_visible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

CONNECTION = ClusterAccess("127.0.0.1:9876")
FIRST, SECOND, ELSEWHERE = QueueKey("T", "a", 0), QueueKey("T", "a", 1), QueueKey("U", "b", 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, str]]]:
    """Let brokers answer by a function of broker, topic and time; gives the list of
    what was asked.
    """

    def use(answer: Callable[[str, str, float], dict[int, Bounds]]) -> list[tuple[str, str]]:
        calls: list[tuple[str, str]] = []

        @asynccontextmanager
        async def client(_connection: ClusterAccess) -> AsyncIterator[Any]:
            yield SimpleNamespace(namespace=SimpleNamespace(wrap="N%{}".format))

        async def bounds_at(_client: Any, broker: str, topic: str) -> dict[int, Bounds]:
            calls.append((broker, topic))
            await trio.sleep(0.001)
            return answer(broker, topic, trio.current_time())

        monkeypatch.setattr(bridge, "client", client)
        monkeypatch.setattr(visible, "bounds_at", bounds_at)
        return calls

    return use


def test_the_greatest_end_of_each_queue_counts() -> None:
    assert merged([{FIRST: 3, SECOND: 9}, {}, {FIRST: 7, ELSEWHERE: 1}]) == {
        FIRST: 7,
        SECOND: 9,
        ELSEWHERE: 1,
    }


async def test_one_call_for_each_broker_and_topic_where_queues_are_up_to_date(
    autojump_clock: trio.abc.Clock, asked: Any
) -> None:
    calls = asked(lambda _broker, _topic, _now: {0: Bounds(0, 7), 1: Bounds(2, 12)})
    await until_visible(CONNECTION, {FIRST: 7, SECOND: 9, ELSEWHERE: 1})
    assert sorted(calls) == [("a", "N%T"), ("b", "N%U")]


async def test_it_waits_for_queues_that_follow_late(
    autojump_clock: trio.abc.Clock, asked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    began = trio.current_time()

    def answer(_broker: str, _topic: str, now: float) -> dict[int, Bounds]:
        if now < began + 1:
            raise ConnectError("the broker starts again", address="127.0.0.1:10911")
        if now < began + 2:
            return {0: Bounds(0, 7)}
        return {0: Bounds(0, 7), 1: Bounds(0, 8 if now < began + 3 else 9)}

    calls = asked(answer)
    with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
        await until_visible(CONNECTION, {FIRST: 7, SECOND: 9})
    assert 3 <= trio.current_time() - began < 3.6
    assert len(calls) < 15
    assert not caplog.records


async def test_what_never_comes_is_a_warning(
    autojump_clock: trio.abc.Clock, asked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked(lambda _broker, _topic, _now: {0: Bounds(0, 6)})
    began = trio.current_time()
    with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
        await until_visible(CONNECTION, {FIRST: 7})
    assert 29 <= trio.current_time() - began <= 30.1
    assert [record.getMessage() for record in caplog.records] == [
        (
            "all rows are acknowledged, but a batch that is read now may miss the newest at "
            "broker a: "
            "queue T/a/0 does not yet reach offset 7"
        )
    ]


async def test_a_refusal_is_not_waited_for(
    autojump_clock: trio.abc.Clock, asked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(_broker: str, _topic: str, _now: float) -> dict[int, Bounds]:
        raise NotPermittedError(16, "no statistics for you")

    calls = asked(answer)
    with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
        await until_visible(CONNECTION, {FIRST: 7})
    assert len(calls) == 1
    assert "no statistics for you" in caplog.text
