"""Bugs that users of RocketMQ and Kafka clients have reported, in push consumers, where
no other file of tests is about what went wrong; `tests/consumer/test_known_bugs.py` has
the table.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.push.member import PushMember
from rocketmq_sdk.protocol.bodies.members import UnlockBatchRequestBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing.interception import intercept, refused
from support.consuming import Collector, Switch, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Handler


def billing(broker: EmbeddedBroker | Switch, listener: object, **options: object) -> PushConsumer:
    return PushConsumer(
        "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener, **options
    )  # type: ignore[arg-type]  # any


def tasks() -> int:
    """How many tasks of this run there are."""
    todo, count = [trio.lowlevel.current_root_task()], 0
    while todo:
        task = todo.pop()
        if task is not None:
            count += 1
            todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return count


async def test_hours_of_a_full_cache_end_without_recursion(autojump_clock: MockClock) -> None:
    done = 0

    async def listener(_message: ReceivedMessage) -> None:
        nonlocal done
        await trio.sleep(20)
        done += 1

    limit = sys.getrecursionlimit()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(500)), queue=0)
        async with billing(
            broker, listener, concurrency=2, pull_threshold_for_queue=4, pull_batch_size=2
        ):
            await until(lambda: done >= 450, 5 * 3600, step=60)
    assert sys.getrecursionlimit() == limit


async def test_consumers_add_no_threads(autojump_clock: MockClock) -> None:
    before = threading.active_count()
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        trio.open_nursery() as nursery,
    ):
        await sender.create_topic("orders", 1)
        stop = trio.Event()

        async def consume(number: int) -> None:
            async with PushConsumer(
                f"group{number}",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=Collector(),
            ):
                await stop.wait()

        for number in range(50):
            nursery.start_soon(consume, number)
        await until(lambda: len(broker.parts.members.consumers.client_ids("group49")) == 1)
        await trio.sleep(60)
        assert threading.active_count() <= before + 2
        stop.set()


async def test_starting_and_closing_periodically_leaves_nothing_behind(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)

        async def once() -> None:
            collector = Collector()
            await sender.send("orders", "a", queues=2)
            async with billing(broker, collector, orderly=True):
                await until(lambda: collector.messages)

        for _ in range(3):
            await once()
        await trio.sleep(10)
        before = tasks()
        for _ in range(20):
            await once()
        await trio.sleep(10)
        assert tasks() <= before
        gc.collect()
        assert sum(isinstance(each, PushMember) for each in gc.get_objects()) <= 2
        assert not broker.parts.members.consumers.client_ids("billing")


async def test_a_long_time_without_a_broker_leaves_nothing_behind(
    autojump_clock: MockClock,
) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        switch = Switch(broker)
        async with billing(switch, collector):
            switch.cut()
            await trio.sleep(120)
            before = tasks()
            await trio.sleep(1200)
            assert tasks() <= before + 10  # some jobs may be under way
            switch.connect(broker)
            await sender.send("orders", "a", queues=2)
            await until(lambda: collector.bodies == ["a"], 60)


async def test_batches_smaller_than_pulls_lose_and_double_nothing(
    autojump_clock: MockClock,
) -> None:
    counts: Counter[str] = Counter()

    async def listener(messages: list[ReceivedMessage]) -> None:
        await trio.sleep(0.1)
        for message in messages:
            counts[message.body.decode()] += 1

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(200)), queue=0)
        for _ in range(4):
            async with billing(broker, listener, batch=3, pull_batch_size=10, concurrency=2):
                await trio.sleep(2)
        async with billing(broker, listener, batch=3, pull_batch_size=10):
            await until(lambda: len(counts) == 200)
        assert committed(broker, "billing", "orders", 1) == [200]
    assert set(counts.values()) == {1}


async def test_ctrl_c_in_a_listener_commits_what_is_done_and_sends_no_copies(
    autojump_clock: MockClock,
) -> None:
    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"5":
            raise KeyboardInterrupt

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        sent_back = intercept(broker, RequestCode.CONSUMER_SEND_MSG_BACK)
        await sender.send("orders", *map(str, range(10)), queue=0)
        ended = False
        try:
            async with billing(broker, listener, concurrency=1):
                await trio.sleep_forever()
        except* KeyboardInterrupt:
            ended = True
        assert ended
        await trio.sleep(1)
        assert committed(broker, "billing", "orders", 1) == [5]
        assert not sent_back.requests


async def test_what_ends_the_program_in_several_listeners_at_once_leaves_the_block(
    autojump_clock: MockClock,
) -> None:
    """In a group; their messages come again, the one that is done does not."""

    again, all_wait, waiting = Collector(), trio.Event(), list[bytes]()

    async def listener(message: ReceivedMessage) -> None:
        if message.body != b"0":
            waiting.append(message.body)
            if len(waiting) == 4:
                all_wait.set()
            else:
                await all_wait.wait()
            raise SystemExit(3)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(5)), queue=0)
        with pytest.raises(BaseExceptionGroup) as raised:
            async with billing(broker, listener, concurrency=5):
                await trio.sleep_forever()
        assert committed(broker, "billing", "orders", 1) == [1]
        async with billing(broker, again):
            await until(lambda: len(again.messages) == 4)
            await trio.sleep(60)
    ended, others = raised.value.split(SystemExit)
    assert others is None
    assert ended is not None
    assert len(ended.exceptions) > 1
    assert sorted(again.bodies) == ["1", "2", "3", "4"]


async def test_a_queue_whose_offset_is_not_known_is_not_taken(autojump_clock: MockClock) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(10)), queue=0)
        async with billing(broker, collector):
            await until(lambda: len(collector.messages) == 10)
        queries = intercept(broker, RequestCode.QUERY_CONSUMER_OFFSET, by=refused())
        async with billing(broker, collector) as consumer:
            await trio.sleep(60)
            assert not [queue for queue in consumer.statistics().queues if queue.topic == "orders"]
            queries.restore()
            await sender.send("orders", "new", queue=0)
            await until(lambda: len(collector.messages) == 11)
    assert collector.bodies[10:] == ["new"]


async def test_a_lock_is_given_back_only_when_the_offset_is_committed(
    autojump_clock: MockClock,
) -> None:
    order: list[str] = []
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)

        def watch(channel: Channel, command: Command, serve: Handler) -> Any:
            if command.code == RequestCode.UNLOCK_BATCH_MQ:
                order.extend(
                    f"unlock {queue.topic}"
                    for queue in UnlockBatchRequestBody.decode(command.body).mq_set
                )
            else:
                order.append(f"{command.ext_fields['topic']} {command.ext_fields['commitOffset']}")
            return serve(channel, command)

        intercept(broker, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNLOCK_BATCH_MQ, by=watch)
        await sender.send("orders", "a", "b", queue=0)
        async with billing(broker, collector, orderly=True):
            await until(lambda: len(collector.messages) == 2)
            order.clear()
    assert [step for step in order if "RETRY" not in step][-2:] == ["orders 2", "unlock orders"]


async def test_an_idle_group_asks_little(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)
        requests = intercept(broker)
        async with billing(broker, Collector()), billing(broker, Collector(), orderly=False):
            await trio.sleep(120)
            requests.requests.clear()
            await trio.sleep(3600)
            asked = requests.counts
    assert asked[RequestCode.GET_CONSUMER_LIST_BY_GROUP] <= 2 * 3 * 3600 / 20
    assert asked[RequestCode.HEART_BEAT] <= 2 * (3600 / 30 + 1)
    assert asked[RequestCode.PULL_MESSAGE] <= 5 * (3600 / 15 + 2)
    assert sum(asked.values()) < 6000


async def test_commits_that_are_not_answered_hold_up_no_rebalance(
    autojump_clock: MockClock,
) -> None:
    first, second = Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)

        def silent(_channel: Channel, _command: Command, _serve: Handler) -> Any:
            async def never() -> Command:
                await trio.sleep(4)
                return Command.response()

            return never

        intercept(broker, RequestCode.UPDATE_CONSUMER_OFFSET, by=silent)
        async with billing(broker, first) as one, billing(broker, second) as two:
            await until(
                lambda: len(one.statistics().queues) + len(two.statistics().queues) == 5, 30
            )
            await sender.send("orders", *map(str, range(100)))
            await until(lambda: {*first.bodies, *second.bodies} == set(map(str, range(100))))
            assert first.bodies
            assert second.bodies
