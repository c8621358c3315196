"""Which queues a lite pull consumer reads and from where: shared or assigned, paused,
and moved by a seek.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.errors import ConfigurationError, RouteError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pull import PullMessageResponseHeader
from rocketmq_sdk.testing.interception import intercept, refused
from support.consuming import committed, drain, open_sender, texts
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.consumer.lite_pull.member import AssignmentChange
    from rocketmq_sdk.remoting.channel import Channel, Handler

FIRST = ConsumeFrom.FIRST_OFFSET
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


async def test_seeking_drops_what_was_prefetched(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(20)), queue=0)
        moment = broker.core.clock.now_ms() + 5_000
        await trio.sleep(10)
        await sender.send("orders", *map(str, range(20, 40)), queue=0)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, consume_from=FIRST
        ) as consumer:
            queue = QUEUES[0]
            assert (await drain(consumer, 10))[0] == "0"
            assert consumer.position(queue) == 10
            await consumer.seek(queue, 33)
            assert (await drain(consumer, 1))[0] == "33"
            await consumer.seek_to_begin(queue)
            assert consumer.position(queue) == 0
            assert (await drain(consumer, 1))[0] == "0"
            await consumer.seek_to_timestamp(queue, moment)
            assert (await drain(consumer, 1))[0] == "20"
            await consumer.seek_to_end(queue)
            assert await consumer.poll(1) == []
            await sender.send("orders", "new", queue=0)
            assert await drain(consumer, 1) == ["new"]
            with pytest.raises(ConfigurationError, match="reaches from 0 to 41"):
                await consumer.seek(queue, 42)
            with pytest.raises(ConfigurationError, match="does not belong"):
                await consumer.seek(MessageQueue("orders", "broker-a", 3), 0)


async def test_the_answer_to_a_pull_from_before_a_seek_is_thrown_away(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(5)), queue=0)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, consume_from=FIRST
        ) as consumer:
            await drain(consumer, 5)
            for _ in range(
                20
            ):  # a pull is held at the broker; the message and the seek come together
                await consumer.seek_to_end(QUEUES[0])
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(partial(sender.send, "orders", "new", queue=0))
                    await consumer.seek(QUEUES[0], 3)
                found = await drain(consumer, 2)
                assert found[:2] == ["3", "4"]


async def test_a_paused_queue_gives_nothing_and_is_not_pulled(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", *(f"a{number}" for number in range(30)), queue=0)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, consume_from=FIRST
        ) as consumer:
            await trio.sleep(1)
            consumer.pause(QUEUES[0])
            await sender.send("orders", *(f"a{number}" for number in range(30, 60)), queue=0)
            await sender.send("orders", "b", queue=1)
            assert await drain(consumer, 1) == ["b"]
            assert await consumer.poll(30) == []
            consumer.resume(QUEUES[0])
            assert await drain(consumer, 60) == [f"a{number}" for number in range(60)]
            with pytest.raises(ConfigurationError, match="does not belong"):
                consumer.pause(QUEUES[3])


async def test_two_members_share_the_queues_and_take_over(autojump_clock: MockClock) -> None:
    changes: list[AssignmentChange] = []
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with LitePullConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            consume_from=FIRST,
            on_assignment_change=changes.append,
            polled_is_done=True,
        ) as first:
            assert first.assignment() == set(QUEUES)
            async with LitePullConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": "*"},
                consume_from=FIRST,
                polled_is_done=True,
            ) as second:
                await until(lambda: len(first.assignment()) == 2)
                await sender.send("orders", *map(str, range(100)))
                counts: Counter[str] = Counter()
                with trio.fail_after(60):
                    while counts.total() < 100:
                        counts.update(texts(await first.poll(0.1)))
                        counts.update(texts(await second.poll(0.1)))
                assert first.assignment() | second.assignment() == set(QUEUES)
                assert not first.assignment() & second.assignment()
            await until(lambda: first.assignment() == set(QUEUES))
            assert await first.poll(5) == []
            await trio.sleep(1)
        assert set(counts.values()) == {1}
    assert [
        (len(change.added), len(change.revoked), len(change.assigned)) for change in changes
    ] == [(4, 0, 4), (0, 2, 2), (2, 0, 4)]


async def test_a_listener_of_changes_may_wait_and_fail(autojump_clock: MockClock) -> None:
    seen: list[int] = []

    async def listener(change: AssignmentChange) -> None:
        await trio.sleep(1)
        seen.append(len(change.assigned))
        raise ValueError("not good")

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        options = {"subscriptions": {"orders": "*"}, "on_assignment_change": listener}
        async with LitePullConsumer("billing", namesrv=broker, **options):  # type: ignore[arg-type]
            async with LitePullConsumer("billing", namesrv=broker, subscriptions={"orders": "*"}):
                await until(lambda: seen == [4, 2])
            await until(lambda: seen == [4, 2, 4])


async def test_what_is_done_after_a_queue_went_to_another_member_is_not_committed(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", *map(str, range(8)), queue=1)
        options = {
            "subscriptions": {"orders": "*"},
            "consume_from": FIRST,
            "auto_commit_interval": 1000,
            "polled_is_done": True,
        }
        async with LitePullConsumer("billing", namesrv=broker, **options) as first:  # type: ignore[arg-type]
            assert len(await drain(first, 8)) == 8
            async with LitePullConsumer("billing", namesrv=broker, **options) as second:  # type: ignore[arg-type]
                await until(lambda: len(first.assignment()) == 1)
                assert committed(broker, "billing", "orders", 2)[1] == -1
                assert await first.poll(0) == []
                assert second.assignment() == {QUEUES[1]}
                assert len(await drain(second, 8)) == 8
                await second.commit()
                await first.commit()
                await trio.sleep(20)
                assert committed(broker, "billing", "orders", 2)[1] == 8
            assert committed(broker, "billing", "orders", 2)[1] == 8


async def test_assigned_queues_are_read_whatever_other_members_do(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", *(f"paid {number}" for number in range(8)), tags="paid")
        await sender.send("orders", *(f"open {number}" for number in range(8)), tags="open")
        async with (
            LitePullConsumer(
                "billing", namesrv=broker, consume_from=FIRST, expressions={"orders": "paid"}
            ) as one,
            LitePullConsumer(
                "billing", namesrv=broker, consume_from=FIRST, auto_commit=False
            ) as other,
        ):
            queues = await one.message_queues("orders")
            assert queues == QUEUES
            assert await one.poll(1) == []
            await one.assign(queues[:2])
            await other.assign(queues)
            assert one.assignment() == set(queues[:2])
            assert len(await drain(one, 4)) == 4
            assert len(await drain(other, 16)) == 16
            await one.assign(queues[1:3])
            assert one.assignment() == set(queues[1:3])
            assert len(await drain(one, 2)) == 2
            assert await one.poll(1) == []
            with pytest.raises(RouteError):
                await one.assign([MessageQueue("unknown", "broker-a", 0)])
        assert committed(broker, "billing", "orders") == [4, 4, 4, -1]


async def test_a_chosen_queue_can_be_sought_before_its_broker_answers(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(8)), queue=0)
        queries = intercept(broker, RequestCode.QUERY_CONSUMER_OFFSET, by=refused())
        async with LitePullConsumer("billing", namesrv=broker) as consumer:
            await consumer.assign(QUEUES[:1])
            assert consumer.assignment() == set()
            assert len(queries.requests) == 1
            await consumer.seek(QUEUES[0], 5)
            assert await drain(consumer, 3) == ["5", "6", "7"]
            queries.restore()


async def test_shared_queues_cannot_be_assigned(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}
        ) as consumer:
            with pytest.raises(ConfigurationError, match="shares the queues"):
                await consumer.assign(QUEUES)
            with pytest.raises(ConfigurationError, match="at least 1"):
                await consumer.poll(max_messages=0)


async def test_a_seek_while_the_offset_is_corrected_leaves_later_subscriptions_their_effect(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", queue=0, tags="red")
        pulls = commits = 0

        def moved_once(channel: Channel, request: Command, pull: Handler) -> Any:
            nonlocal pulls
            pulls += 1
            header = PullMessageResponseHeader(
                suggest_which_broker_id=0, next_begin_offset=1, min_offset=0, max_offset=2
            )
            return (
                Command.response(ResponseCode.PULL_OFFSET_MOVED, header)
                if pulls == 1
                else pull(channel, request)
            )

        def slow(channel: Channel, request: Command, commit: Handler) -> Any:
            nonlocal commits
            commits += 1

            async def later() -> Any:
                await trio.sleep(2)
                return commit(channel, request)

            return later

        intercept(broker, RequestCode.LITE_PULL_MESSAGE, by=moved_once)
        intercept(broker, RequestCode.UPDATE_CONSUMER_OFFSET, by=slow)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "red"}, consume_from=FIRST
        ) as consumer:
            await until(
                lambda: commits
            )  # the correction waits for the broker to confirm its offset
            await consumer.seek(QUEUES[0], 2)
            await until(lambda: pulls == 2)
            await consumer.subscribe("orders", "blue")
            await until(lambda: pulls == 3, 5)  # the held pull by the old expression was given up
            await sender.send("orders", "c", queue=0, tags="blue")
            assert texts(await consumer.poll(1)) == ["c"]
