"""What a lite pull consumer gives, commits and lets choose, against the embedded broker
in virtual time.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.errors import ClosedError, ConfigurationError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.received import ReceivedMessage
from support.consuming import Switch, committed, drain, open_sender, texts
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.consumer.config import LitePullOptions

FIRST = ConsumeFrom.FIRST_OFFSET
POLLED: LitePullOptions = {"polled_is_done": True}
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


async def test_everything_is_polled_once_and_committed(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", *map(str, range(100)))
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, consume_from=FIRST
        ) as consumer:
            assert consumer.assignment() == set(QUEUES)
            assert sorted(map(int, await drain(consumer, 100))) == list(range(100))
            assert await consumer.poll(1) == []
        assert sum(committed(broker, "billing", "orders")) == 100


async def test_a_poll_waits_no_longer_than_it_is_told(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with (
            LitePullConsumer("billing", namesrv=broker, subscriptions={"orders": "*"}) as consumer,
            trio.open_nursery() as nursery,
        ):
            for timeout, waited in ((None, 5), (2.5, 2.5), (0, 0)):
                began = trio.current_time()
                assert await consumer.poll(timeout) == []
                assert trio.current_time() - began == pytest.approx(waited)

            async def send_later() -> None:
                await trio.sleep(3)
                await sender.send("orders", "late")

            nursery.start_soon(send_later)
            began = trio.current_time()
            assert texts(await consumer.poll(100)) == ["late"]
            assert trio.current_time() - began == pytest.approx(3, abs=0.1)


async def test_what_a_poll_gave_is_committed_when_the_next_one_has_begun(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(30)), queue=0)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, consume_from=FIRST, **POLLED
        ) as consumer:
            assert len(await consumer.poll(max_messages=10)) == 10
            await trio.sleep(12)
            assert committed(broker, "billing", "orders", 1) == [0]
            assert len(await consumer.poll(max_messages=7)) == 7
            await trio.sleep(12)
            assert committed(broker, "billing", "orders", 1) == [10]


async def test_a_block_that_fails_commits_only_what_was_finished(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(30)), queue=0)

        async def consume() -> None:
            async with LitePullConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": "*"},
                consume_from=FIRST,
                **POLLED,
            ) as consumer:
                async for message in consumer:
                    if message.body == b"7":
                        raise ValueError("the program fails")

        with pytest.raises(ValueError, match="the program fails"):
            await consume()
        assert committed(broker, "billing", "orders", 1) == [7]
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, **POLLED
        ) as consumer:
            async for message in consumer:
                assert message.body == b"7"
                break
        assert committed(broker, "billing", "orders", 1) == [8]


async def test_without_automatic_commits_only_the_program_commits(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(40)), queue=0)
        options = {"subscriptions": {"orders": "*"}, "consume_from": FIRST, "auto_commit": False}
        options |= POLLED
        async with LitePullConsumer("billing", namesrv=broker, **options) as consumer:  # type: ignore[arg-type]
            await drain(consumer, 10)
            await trio.sleep(60)
            assert committed(broker, "billing", "orders", 1) == [-1]
            await consumer.commit()
            assert committed(broker, "billing", "orders", 1) == [10]
            assert await consumer.committed(QUEUES[0]) == 10
            await drain(consumer, 10)
            await consumer.commit({QUEUES[0]: 15})
            await drain(consumer, 10)
        assert committed(broker, "billing", "orders", 1) == [15]
        async with LitePullConsumer("billing", namesrv=broker, **options) as consumer:  # type: ignore[arg-type]
            assert (await drain(consumer, 25))[0] == "15"


async def test_a_program_that_never_commits_is_not_held_up_by_the_thresholds(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(300)), queue=0)
        options = {
            "consume_from": FIRST,
            "auto_commit": False,
            **POLLED,
            "pull_threshold_for_queue": 20,
            "consume_concurrently_max_span": 50,
        }
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, **options
        ) as consumer:  # type: ignore[arg-type]
            await trio.sleep(1)
            assert 20 < consumer.statistics().cached_messages <= 30
            assert await drain(consumer, 300) == [str(number) for number in range(300)]


async def test_tags_are_checked_by_text(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        for tag in ("Aa", "BB", "paid"):
            await sender.send("orders", tag, tags=tag, queue=0)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "Aa"}, consume_from=FIRST
        ) as consumer:
            assert await drain(consumer, 1) == ["Aa"]
            assert await consumer.poll(1) == []
            assert consumer.position(QUEUES[0]) == 3
        assert committed(broker, "billing", "orders", 1) == [3]


async def test_consumption_goes_on_behind_a_broken_connection(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        switch = Switch(broker)
        async with (
            Client(switch) as client,
            LitePullConsumer(
                "billing", client=client, subscriptions={"orders": "*"}, consume_from=FIRST
            ) as consumer,
        ):
            for round_number in range(3):
                await sender.send("orders", *(f"{round_number} {number}" for number in range(20)))
                assert len(set(await drain(consumer, 20))) == 20
                switch.cut()
                await trio.sleep(3)
                switch.connect(broker)
            assert await consumer.poll(5) == []


async def test_an_offset_that_the_queue_does_not_reach_is_corrected(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "only", queue=0)
        broker.core.offsets.commit("billing", "orders", 0, 500)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, auto_commit=False
        ) as consumer:
            await until(lambda: consumer.position(QUEUES[0]) <= 1)
            await sender.send("orders", "next", queue=0)
            assert "next" in await drain(consumer, 1)
        assert committed(broker, "billing", "orders", 1) == [500]


async def test_an_administrator_moves_the_group(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(10)), queue=0)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, consume_from=FIRST
        ) as consumer:
            await drain(consumer, 10)
            consumer._member.on_reset_offsets("orders", {QUEUES[0]: 4})
            assert await drain(consumer, 6) == ["4", "5", "6", "7", "8", "9"]


async def test_a_cancelled_poll_loses_nothing(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with (
            LitePullConsumer("billing", namesrv=broker, subscriptions={"orders": "*"}) as consumer,
            trio.open_nursery() as nursery,
        ):

            async def send_slowly() -> None:
                for number in range(100):
                    await sender.send("orders", str(number), queue=0)
                    await trio.sleep(0.01)

            nursery.start_soon(send_slowly)
            found: list[str] = []
            with trio.fail_after(60):
                while len(found) < 100:
                    with trio.move_on_after(0.007):
                        found += texts(await consumer.poll(max_messages=3))
            assert found == [str(number) for number in range(100)]


async def test_messages_of_a_task_are_done_when_that_task_polls_again(
    autojump_clock: MockClock,
) -> None:
    seen: Counter[str] = Counter()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(40)), queue=0)
        options = {"subscriptions": {"orders": "*"}, "consume_from": FIRST, **POLLED}
        async with LitePullConsumer("billing", namesrv=broker, **options) as consumer:  # type: ignore[arg-type]

            async def work(seconds: float) -> None:
                async for message in consumer:
                    await trio.sleep(seconds)
                    seen[message.body.decode()] += 1

            async with trio.open_nursery() as nursery:
                nursery.start_soon(work, 100)  # it has the first message
                await trio.sleep(0.1)
                nursery.start_soon(work, 0.1)
                await trio.sleep(50)
                assert len(seen) == 39
                assert committed(broker, "billing", "orders", 1)[0] <= 0
                await until(lambda: committed(broker, "billing", "orders", 1) == [40], 70)
                nursery.cancel_scope.cancel()
    assert seen == Counter(map(str, range(40)))


async def test_messages_that_were_handed_on_and_are_not_done_come_again(
    autojump_clock: MockClock,
) -> None:
    done: list[str] = []
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", *map(str, range(50)), queues=2)
        options: LitePullOptions = {"consume_from": FIRST}

        async def consume(seconds: float) -> None:
            """Hand on all that comes, and fail after a while."""
            async with (
                LitePullConsumer(
                    "billing", namesrv=broker, subscriptions={"orders": "*"}, **options
                ) as consumer,
                trio.open_nursery() as nursery,
            ):
                to_work, to_do = trio.open_memory_channel[ReceivedMessage](1000)

                async def work() -> None:
                    async for message in to_do:
                        await trio.sleep(1)
                        done.append(message.body.decode())
                        consumer.done(message)

                nursery.start_soon(work)
                with trio.move_on_after(seconds):
                    async for message in consumer:
                        to_work.send_nowait(message)
                raise ValueError("the program fails")

        for rounds in range(1, 4):
            with pytest.raises(ExceptionGroup) as caught:
                await consume(12.5)
            assert [str(error) for error in caught.value.exceptions] == ["the program fails"]
            assert sum(committed(broker, "billing", "orders", 2)) == len(set(done)) == 12 * rounds
    assert len(done) == 36


async def test_handed_on_messages_are_done_when_the_program_says_so(
    autojump_clock: MockClock,
) -> None:
    order = list(range(50))
    random.Random(1).shuffle(order)
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(50)), queue=0)
        options = {"subscriptions": {"orders": "*"}, "consume_from": FIRST}
        async with LitePullConsumer("billing", namesrv=broker, **options) as consumer:  # type: ignore[arg-type]
            messages = [await anext(consumer) for _ in range(50)]
            finished: set[int] = set()
            for number in order:
                consumer.done(messages[number])
                consumer.done(messages[number])
                finished.add(number)
                await consumer.commit()
                gap = next(each for each in range(51) if each not in finished)
                assert committed(broker, "billing", "orders", 1) == [gap]
        async with LitePullConsumer("other", namesrv=broker, **options) as consumer:  # type: ignore[arg-type]
            first = (await consumer.poll(max_messages=10))[0]
            await consumer.poll()
            for wrong in ([first], "x", 3, None):
                with pytest.raises(ConfigurationError, match=r"done\(\*messages\)"):
                    consumer.done(wrong)  # type: ignore[arg-type]
            consumer.done(first)
        # Only what the program named is committed at the end of the block.
        assert committed(broker, "other", "orders", 1) == [1]
        with pytest.raises(ConfigurationError, match="polled_is_done"):
            LitePullConsumer("third", namesrv=broker, polled_is_done=True, **options).done()  # type: ignore[arg-type]


async def test_a_program_that_never_says_done_is_warned_and_stands_still(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(200)), queue=0)
        options = {
            "subscriptions": {"orders": "*"},
            "consume_from": FIRST,
            "pull_threshold_for_queue": 100,
        }
        async with LitePullConsumer("billing", namesrv=broker, **options) as consumer:  # type: ignore[arg-type]
            polled: list[ReceivedMessage] = []
            while more := await consumer.poll(20):
                polled += more
            assert 100 <= len(polled) < 200
            assert str(consumer.health()) == (
                f"consuming: queue 0 of orders at broker-a holds {len(polled)} messages that are "
                "not polled, or polled and not done, so it is not pulled"
            )
            await consumer.poll(50)
            assert f"{len(polled)} messages were polled, and none was said to be done" in (
                warning := caplog.text
            )
            assert "done(message)" in str(consumer.health())
            consumer.done(*polled)
            assert len(await drain(consumer, 200 - len(polled))) == 200 - len(polled)
            assert str(consumer.health()) == "consuming"
            assert caplog.text == warning  # it is said once
        assert committed(broker, "billing", "orders", 1) == [200]
        caplog.clear()
        async with LitePullConsumer("other", namesrv=broker, **options) as consumer:  # type: ignore[arg-type]
            await consumer.poll()
        assert "10 messages were polled, and none was said to be done" in caplog.text
        assert committed(broker, "other", "orders", 1)[0] <= 0


async def test_what_was_polled_before_a_seek_does_not_count(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(20)), queue=0)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, consume_from=FIRST
        ) as consumer:
            for _ in range(3):  # a program that fails to process a message, and tries again
                before = await consumer.poll()
                assert texts(before)[0] == "0"
                await consumer.seek(QUEUES[0], 0)
                assert consumer.statistics().in_flight == 0
            consumer.done(*before)
            await consumer.commit()
            assert committed(broker, "billing", "orders", 1) == [0]
            assert len(await drain(consumer, 20)) == 20
            began = trio.current_time()
        assert trio.current_time() - began < 1  # nobody waits for what was polled before
        assert committed(broker, "billing", "orders", 1) == [20]


async def test_what_an_ended_task_has_polled_is_not_committed_and_that_is_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(20)), queue=0)
        options = {"subscriptions": {"orders": "*"}, "consume_from": FIRST, **POLLED}
        async with LitePullConsumer("billing", namesrv=broker, **options) as consumer:  # type: ignore[arg-type]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.poll)
            await drain(consumer, 10)
            await consumer.poll(10)
            assert committed(broker, "billing", "orders", 1)[0] <= 0
        assert committed(broker, "billing", "orders", 1) == [20]
    assert "ended without another poll" in caplog.text


async def test_all_tasks_that_wait_are_woken(autojump_clock: MockClock) -> None:
    got: list[int] = []
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}
        ) as consumer:

            async def once() -> None:
                got.append(len(await consumer.poll(60, max_messages=1)))

            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    for _ in range(5):
                        nursery.start_soon(once)
                    await trio.sleep(1)
                    await sender.send("orders", *map(str, range(5)))
    assert got == [1] * 5


async def test_outside_of_its_block_a_consumer_polls_nothing() -> None:
    consumer = LitePullConsumer("billing", namesrv="127.0.0.1:9", subscriptions={"orders": "*"})
    with pytest.raises(ClosedError):
        await consumer.poll()
    with pytest.raises(ClosedError):
        await consumer.commit()
    assert consumer.assignment() == frozenset()
    assert [message async for message in consumer] == []


async def test_a_poll_that_waits_ends_when_the_block_does(autojump_clock: MockClock) -> None:
    ended: list[float] = []
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        trio.open_nursery() as nursery,
    ):
        await sender.create_topic("orders")

        async def poll_for_long() -> None:
            with pytest.raises(ClosedError):
                await consumer.poll(1000)
            ended.append(trio.current_time())

        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}
        ) as consumer:
            nursery.start_soon(poll_for_long)
            await trio.sleep(1)
            began = trio.current_time()
    assert ended[0] - began < 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscriptions": {}}, "at least one topic"),
        (
            {"subscriptions": {"orders": "*"}, "expressions": {"orders": "a"}},
            "expressions= is for queues",
        ),
        ({"subscriptions": {"orders": "||"}}, "names no tag"),
        ({"on_assignment_change": 5}, "cannot be called"),
        ({"pull_batch_size": 0}, "pull_batch_size"),
        ({"auto_comit": False}, "no setting auto_comit"),
        ({"pull_suspend": 30}, "pull_timeout"),
        ({"post_subscription_when_pull": False}, "no setting post_subscription_when_pull"),
    ],
)
def test_unacceptable_settings_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        LitePullConsumer("billing", namesrv="127.0.0.1:9876", **options)  # type: ignore[arg-type]


async def test_statistics_tell_what_was_polled_and_what_is_left(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(100)), queue=0)
        options = {"consume_from": FIRST, **POLLED, "pull_threshold_for_queue": 30}
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, **options
        ) as consumer:  # type: ignore[arg-type]
            await drain(consumer, 20)
            await trio.sleep(1)
            statistics = consumer.statistics()
            assert (statistics.consumed, statistics.in_flight, statistics.queues) == (
                20,
                10,
                (QUEUES[0],),
            )
            assert (statistics.lag, statistics.by_queue[QUEUES[0]].offset) == (90, 10)
            assert "messages that nobody has polled, so it is not pulled" in str(consumer.health())
            assert consumer.health()
            await drain(consumer, 80)
            await trio.sleep(30)
            assert consumer.statistics().consumed_per_second > 0
            assert str(consumer.health()) == "consuming"
            consumer.pause(QUEUES[0])
            assert not consumer.health()
            assert "is paused" in str(consumer.health())
            info = consumer._member.running_info(stacks=False)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
            assert set(info.mq_table) == {QUEUES[0]}
        assert not consumer.health()


async def test_topics_come_and_go(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        for topic in ("orders", "returns"):
            await sender.create_topic(topic, 1)
            for tag in ("paid", "open"):
                await sender.send(topic, f"{topic} {tag}", tags=tag, queue=0)
        async with LitePullConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "paid"}, consume_from=FIRST
        ) as consumer:
            assert await drain(consumer, 1) == ["orders paid"]
            await consumer.subscribe("returns", "open")
            assert await drain(consumer, 1) == ["returns open"]
            await consumer.subscribe("orders", "open")
            await sender.send("orders", "new paid", tags="paid", queue=0)
            await sender.send("orders", "new open", tags="open", queue=0)
            assert await drain(consumer, 1) == ["new open"]
            await consumer.unsubscribe("orders")
            await until(lambda: {queue.topic for queue in consumer.assignment()} == {"returns"})
            assert await consumer.poll(1) == []
            await until(lambda: committed(broker, "billing", "orders", 1) == [4])
        async with LitePullConsumer("chosen", namesrv=broker) as consumer:
            with pytest.raises(ConfigurationError, match="chooses its queues"):
                await consumer.subscribe("orders")
            assert "owns no queue" in str(consumer.health())
