"""Which queue a message goes to: by the route, by the caller, by a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.errors import BrokerError, ConfigurationError, RouteError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.producer.queue_selector import RoundRobin, select_by_key
from support.peers import open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_an_unknown_topic_takes_the_default_topics_queues(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1, topics=("TBW102",), queues=8) as cluster,
        Running(cluster) as producer,
    ):
        with trio.fail_after(60):
            for _ in range(8):
                await producer.send(message())
            assert sorted(set(cluster.brokers[0].queues)) == [0, 1, 2, 3]
            cluster.route("t", queues=1)
            await trio.sleep(5)
            await producer.send(message())
            assert await producer.publish_queues("t") == [MessageQueue("t", "b0", 0)]


@pytest.mark.parametrize("how", ["queue", "selector", "key"])
async def test_a_chosen_queue_has_one_attempt(how: str, autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [14] * 3
        arguments: dict[str, Any] = {
            "queue": {"queue": MessageQueue("t", "b1", 1)},
            "selector": {"selector": lambda queues, _message, _key: queues[-1]},
            "key": {"key": "some key"},
        }[how]
        with trio.fail_after(10), pytest.raises(BrokerError):
            await producer.send(message(), **arguments)
        assert sum(len(broker.sends) for broker in cluster.brokers) == 1
        if how != "key":
            assert cluster.brokers[1].queues == [1]


async def test_equal_keys_go_to_one_queue(autojump_clock: MockClock) -> None:
    async with open_cluster(queues=4) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            by_argument = {(await producer.send(message(), key="TagA")).queue for _ in range(5)}
            by_message = {
                (await producer.send(message(sharding_key="TagA"), selector=select_by_key)).queue
                for _ in range(5)
            }
        queues = await producer.publish_queues("t")
    assert by_argument == by_message == {queues[2598919 % 8]}


async def test_round_robin_uses_all_queues(autojump_clock: MockClock) -> None:
    selector = RoundRobin()
    async with open_cluster(queues=3) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            assert len({(await producer.send(message())).queue for _ in range(6)}) == 6
            assert (
                len({(await producer.send(message(), selector=selector)).queue for _ in range(6)})
                == 6
            )


@pytest.mark.parametrize(
    "arguments",
    [
        {"queue": MessageQueue("other", "b0", 0)},
        {"queue": MessageQueue("t", "b0", 0), "key": "k"},
        {"selector": lambda _queues, _message, _key: MessageQueue("t", "b9", 0)},
        {"selector": lambda _queues, _message, _key: None},
        {"key": 1.5},
    ],
)
async def test_bad_choices_are_refused(
    arguments: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        with trio.fail_after(10), pytest.raises(ConfigurationError):
            await producer.send(message(), **arguments)
        assert producer.in_flight == 0


async def test_a_queue_of_an_unknown_broker(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        with trio.fail_after(10), pytest.raises(RouteError):
            await producer.send(message(), queue=MessageQueue("t", "b9", 0))


async def test_an_error_of_the_callers_selector_is_the_outcome(autojump_clock: MockClock) -> None:
    def selector(_queues: Any, _message: Any, _key: Any) -> MessageQueue:
        raise KeyError("mine")

    async with open_cluster() as cluster, Running(cluster) as producer:
        with trio.fail_after(10), pytest.raises(KeyError, match="mine"):
            await producer.send(message(), selector=selector)
        assert producer.in_flight == 0
