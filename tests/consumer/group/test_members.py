"""Members of a group come, go and vanish; nothing is lost, and nothing is delivered
twice that need not be.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.offsets import ResetOffsetBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.offsets import ResetOffsetRequestHeader
from rocketmq_sdk.testing.interception import intercept, refused
from support.consuming import Collector, Switch, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage


def owned(consumer: PushConsumer, topic: str = "orders") -> set[int]:
    return {queue.queue_id for queue in consumer.statistics().queues if queue.topic == topic}


def tell_to_reset(broker: EmbeddedBroker, offset: int) -> None:
    """Have the broker tell its clients to begin queue 0 at another offset (220)."""
    request = Command.request(
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        ResetOffsetRequestHeader(group="billing", topic="orders", timestamp=0),
        body=ResetOffsetBody({MessageQueue("orders", "broker-a", 0): offset}).encode(),
        oneway=True,
    )
    for channel in list(broker.server.channels.values()):
        channel.send_oneway(request)


async def test_two_members_share_the_queues_and_one_takes_over_when_the_other_leaves(
    autojump_clock: MockClock,
) -> None:
    first, second = Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 5)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=first
        ) as one:
            assert owned(one) == {0, 1, 2, 3, 4}
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=second
            ) as two:
                await until(lambda: len(owned(one)) + len(owned(two)) == 5, 2)
                assert sorted(map(len, (owned(one), owned(two)))) == [2, 3]
                assert not owned(one) & owned(two)
                await sender.send("orders", *map(str, range(100)), queues=5)
                await until(lambda: len(first.bodies) + len(second.bodies) == 100)
                assert first.bodies
                assert second.bodies
            began = trio.current_time()
            await until(lambda: owned(one) == {0, 1, 2, 3, 4}, 2)
            assert trio.current_time() - began < 1
            await sender.send("orders", *map(str, range(100, 200)), queues=5)
            await until(lambda: len(first.bodies) + len(second.bodies) >= 200)
            await trio.sleep(30)
        assert sum(committed(broker, "billing", "orders", 5)) == 200
    assert Counter(first.bodies + second.bodies) == Counter(map(str, range(200)))


async def test_members_come_and_go_under_load_and_nothing_is_lost(
    autojump_clock: MockClock,
) -> None:
    counts: Counter[str] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        await trio.sleep(0.05)
        counts[message.body.decode()] += 1

    async def visit(broker: EmbeddedBroker, after: float, stay: float) -> None:
        await trio.sleep(after)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ):
            await trio.sleep(stay)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 8)
        async with (
            PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
            ),
            trio.open_nursery() as nursery,
        ):
            for after, stay in ((0.5, 3), (1, 1), (2, 4), (3.3, 0.2)):
                nursery.start_soon(visit, broker, after, stay)
            for start in range(0, 2000, 100):
                await sender.send("orders", *map(str, range(start, start + 100)), queues=8)
                await trio.sleep(0.3)
            await until(lambda: len(counts) == 2000, 120)
        assert sum(committed(broker, "billing", "orders", 8)) == 2000
    repeated = sum(count - 1 for count in counts.values())
    assert repeated < 200


async def test_a_member_whose_connection_ends_is_replaced(autojump_clock: MockClock) -> None:
    first, second = Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)
        switch = Switch(broker)
        async with (
            PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=first
            ) as one,
            trio.open_nursery() as nursery,
        ):

            async def victim() -> None:
                async with PushConsumer(
                    "billing", namesrv=switch, subscriptions={"orders": "*"}, listener=second
                ):
                    await trio.sleep_forever()

            nursery.start_soon(victim)
            await until(lambda: len(owned(one)) == 2)
            await sender.send("orders", *map(str, range(40)))
            await until(lambda: len(first.bodies) + len(second.bodies) == 40)
            switch.cut()
            await until(lambda: owned(one) == {0, 1, 2, 3}, 5)
            nursery.cancel_scope.cancel()
        collector = Collector()
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        ):
            await sender.send("orders", *map(str, range(40, 80)))
            await until(
                lambda: (
                    set(map(str, range(80))) <= set(first.bodies + second.bodies + collector.bodies)
                )
            )


@pytest.mark.parametrize("returns", [True, False])
async def test_who_has_not_come_back_to_a_broker_yet_is_a_member_for_a_heartbeat(
    autojump_clock: MockClock, returns: bool
) -> None:
    ways: list[Switch] = []
    owners: list[set[int]] = [set(), set()]
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)

        async def member(number: int) -> None:
            async with PushConsumer(
                "billing",
                namesrv=ways[number],
                subscriptions={"orders": "*"},
                listener=Collector(),
            ) as consumer:
                while True:
                    owners[number] = owned(consumer)
                    await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            for number in range(2):
                ways.append(Switch(broker))
                nursery.start_soon(member, number)
            await until(lambda: list(map(len, owners)) == [2, 2])
            await trio.sleep(60)
            before = owners[0].copy()
            for way in ways:
                way.cut()  # as at a restart: the broker has forgotten both
            await trio.sleep(1)
            ways[0].connect(broker)
            if returns:
                await trio.sleep(20)
                assert owners[0] == before
                ways[1].connect(broker)
            for _ in range(250):
                await trio.sleep(0.1)
                assert owners[0] == before
            if returns:
                await trio.sleep(60)
                assert list(map(len, owners)) == [2, 2]
            else:
                await until(lambda: owners[0] == {0, 1, 2, 3}, 15)
            nursery.cancel_scope.cancel()


async def test_running_listeners_finish_before_a_queue_goes(autojump_clock: MockClock) -> None:
    done: Counter[str] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        await trio.sleep(4)
        done[message.body.decode()] += 1

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", "a", "b", queues=2)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ) as one:
            await trio.sleep(1)
            second = Collector()
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=second
            ):
                await until(lambda: len(owned(one)) == 1)
                assert not done
                assert one.statistics().in_flight == 2
                await trio.sleep(10)
                assert done == {"a": 1, "b": 1}
                assert one.statistics().in_flight == 0
                assert committed(broker, "billing", "orders", 2) == [1, 1]


async def test_listeners_that_outlast_the_grace_are_cancelled_and_the_next_owner_delivers(
    autojump_clock: MockClock,
) -> None:
    cancelled: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.append(message.body.decode())
            raise

    second = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", "a", "b", queues=2)
        with trio.CancelScope() as scope:
            async with PushConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=listener,
                revoke_grace=3,
            ) as one:
                await trio.sleep(1)
                async with PushConsumer(
                    "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=second
                ) as two:
                    await until(lambda: len(owned(one)) == 1)
                    began = trio.current_time()
                    await until(lambda: len(cancelled) == 1)
                    assert 2.5 < trio.current_time() - began < 3.5
                    await until(lambda: second.bodies == cancelled)
                    await until(lambda: sum(committed(broker, "billing", "orders", 2)) == 1)
                    assert one.statistics().in_flight == 1
                    assert not owned(one) & owned(two)
                    scope.cancel()


async def test_a_message_that_fails_while_its_queue_goes_belongs_to_the_next_owner(
    autojump_clock: MockClock,
) -> None:
    first, second = Collector(), Collector()

    async def listener(message: ReceivedMessage) -> None:
        await first(message)
        await trio.sleep(3)
        raise ValueError("as the test wants it")

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", "a", "b", queues=2)
        intercept(
            broker, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2, by=refused()
        )
        with trio.CancelScope() as scope:
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
            ) as one:
                await trio.sleep(1)
                async with PushConsumer(
                    "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=second
                ):
                    await until(lambda: len(owned(one)) == 1)
                    await until(lambda: len(second.bodies) == 1)
                    await trio.sleep(30)
                    scope.cancel()
    assert first.bodies.count(second.bodies[0]) == 1


async def test_queues_that_are_added_to_a_topic_are_owned_without_a_restart(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        ) as consumer:
            await sender.create_topic("orders", 6)
            await until(lambda: owned(consumer) == set(range(6)), 35)
            await sender.send("orders", *map(str, range(12)), queues=6)
            await until(lambda: len(collector.bodies) == 12)


async def test_offsets_that_an_administrator_resets(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        ) as consumer:
            await sender.send("orders", "a", "b", "c", queue=0)
            await until(lambda: len(collector.bodies) == 3)
            # The broker's own way: it answers the next pull with another offset.
            broker.core.offsets.assign_reset("billing", "orders", 0, 1)
            await sender.send("orders", "d", queue=0)
            await until(
                lambda: (
                    collector.bodies == ["a", "b", "c", "b", "c", "d"] or len(collector.bodies) > 6
                ),
                40,
            )
            tell_to_reset(broker, 3)  # the older way: it tells the clients
            await until(
                lambda: collector.bodies[-1] == "d" and collector.bodies.count("d") == 2, 40
            )
            assert owned(consumer) == {0}
    assert collector.bodies.count("a") == 1


async def test_a_connection_that_is_cut_for_a_while(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)
        switch = Switch(broker)
        async with PushConsumer(
            "billing", namesrv=switch, subscriptions={"orders": "*"}, listener=collector
        ):
            await sender.send("orders", *map(str, range(20)))
            await until(lambda: len(collector.bodies) == 20)
            switch.cut()
            await sender.send("orders", *map(str, range(20, 40)))
            await trio.sleep(50)
            assert len(collector.bodies) == 20
            switch.connect(broker)
            await until(lambda: len(collector.bodies) >= 40, 10)
    assert Counter(collector.bodies) == Counter(map(str, range(40)))


async def test_a_broker_that_is_restarted(
    autojump_clock: MockClock, tmp_path: Path, collector: Collector
) -> None:
    switch = Switch(None)
    async with PushConsumer(
        "billing", namesrv=switch, subscriptions={"orders": "*"}, listener=collector
    ) as consumer:
        for start in (0, 20, 40):
            async with EmbeddedBroker(tmp_path) as broker, open_sender(broker) as sender:
                switch.connect(broker)
                if not start:
                    await sender.create_topic("orders", 4)
                await until(lambda: owned(consumer) == {0, 1, 2, 3}, 40)
                await sender.send("orders", *map(str, range(start, start + 20)))
                # Awaited in the same turn.
                await until(lambda: set(collector.bodies) == set(map(str, range(start + 20))), 40)  # noqa: B023
                await trio.sleep(10)
                assert sum(committed(broker, "billing", "orders")) == start + 20
                switch.cut()
            await trio.sleep(20)
    assert Counter(collector.bodies) == Counter(map(str, range(60)))


async def test_the_offset_never_goes_back_when_a_slow_owner_loses_its_queue(
    autojump_clock: MockClock,
) -> None:
    async def slow(message: ReceivedMessage) -> None:
        if message.offset == 3:
            await trio.sleep(9)  # within the grace

    seen = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        for queue in (0, 1):
            await sender.send("orders", *map(str, range(40)), queue=queue, queues=2)
        first = {"consume_from": ConsumeFrom.FIRST_OFFSET, "subscriptions": {"orders": "*"}}
        async with PushConsumer("billing", namesrv=broker, listener=slow, concurrency=2, **first):  # type: ignore[arg-type]
            await trio.sleep(0.5)
            async with PushConsumer("billing", namesrv=broker, listener=seen, **first) as two:  # type: ignore[arg-type]
                await until(lambda: len(owned(two)) == 1, 5)
                [moved] = owned(two)
                highest = -1
                for _ in range(300):
                    await trio.sleep(0.1)
                    now = committed(broker, "billing", "orders", 2)[moved]
                    assert now >= highest
                    highest = now
                assert highest == 40


async def test_a_suspended_member_gives_up_what_its_group_gives_to_others(
    autojump_clock: MockClock,
) -> None:
    first, second = Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)
        options = {"consume_from": ConsumeFrom.FIRST_OFFSET, "subscriptions": {"orders": "*"}}
        async with PushConsumer("billing", namesrv=broker, listener=first, **options) as one:  # type: ignore[arg-type]
            assert owned(one) == {0, 1, 2, 3}
            one.suspend()
            async with PushConsumer("billing", namesrv=broker, listener=second, **options) as two:  # type: ignore[arg-type]
                await until(lambda: len(owned(two)) == 2, 5)
                await until(lambda: not owned(one) & owned(two), 5)
                await trio.sleep(20)  # pulls that were under way are answered
                await sender.send("orders", *map(str, range(40)), queues=4)
                await until(lambda: len(second.messages) == 20, 5)
                offsets = [-1] * 4
                for _ in range(300):
                    await trio.sleep(0.1)
                    now = committed(broker, "billing", "orders", 4)
                    assert all(new >= old for new, old in zip(now, offsets, strict=True))
                    offsets = now
                assert sum(offsets[queue] for queue in owned(two)) == 20
                assert not first.messages
            await trio.sleep(30)
            assert len(owned(one)) == 2  # what it left comes back with `resume`
            one.resume()
            await until(lambda: owned(one) == {0, 1, 2, 3}, 5)
            await until(lambda: len(first.messages) == 20, 5)


async def test_a_reset_holds_for_a_queue_that_is_being_given_up(
    autojump_clock: MockClock,
) -> None:
    release, waiting = trio.Event(), 0

    async def listener(_message: ReceivedMessage) -> None:
        nonlocal waiting
        waiting += 1
        await release.wait()

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(10)), queue=0, queues=1)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            concurrency=10,
        ) as consumer:
            await until(lambda: waiting == 10, 5)
            await consumer.unsubscribe("orders")
            await trio.sleep(1)
            tell_to_reset(broker, 5)
            await trio.sleep(1)
            release.set()
            await trio.sleep(15)
        assert committed(broker, "billing", "orders", 1) == [5]
