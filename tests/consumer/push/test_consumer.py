"""What a push consumer delivers, against the embedded broker in virtual time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import ClosedError, ConfigurationError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.names import java_hash, retry_topic
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing.interception import intercept
from support.consuming import Collector, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler


async def test_everything_is_consumed_once(autojump_clock: MockClock, collector: Collector) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", *(f"early {n}" for n in range(50)))
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        ) as consumer:
            assert {
                queue.queue_id for queue in consumer.statistics().queues if queue.topic == "orders"
            } == {0, 1, 2, 3}
            await sender.send("orders", *(f"late {n}" for n in range(50)))
            await until(lambda: len(collector.bodies) >= 100)
            await trio.sleep(60)
            statistics = consumer.statistics()
            assert (
                statistics.consumed,
                statistics.failed,
                statistics.cached_messages,
                statistics.cached_bytes,
                statistics.in_flight,
            ) == (
                100,
                0,
                0,
                0,
                0,
            )
            assert statistics.last_rebalance is not None
            assert trio.current_time() - statistics.last_rebalance <= 20
            assert statistics.since_rebalance == trio.current_time() - statistics.last_rebalance
            for of_queue in statistics.by_queue.values():
                assert of_queue.last_pull is not None
                assert of_queue.since_pull == trio.current_time() - of_queue.last_pull
        assert sum(committed(broker, "billing", "orders")) == 100
    assert sorted(collector.bodies) == sorted(
        [f"early {n}" for n in range(50)] + [f"late {n}" for n in range(50)]
    )


async def test_received_messages_tell_where_they_come_from(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", "a", "b", queue=2, tags="paid")
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        ):
            await until(lambda: len(collector.bodies) == 2)
    message = collector.messages[0]
    assert (
        message.topic,
        message.queue_id,
        message.broker_name,
        message.tags,
        message.reconsume_times,
    ) == ("orders", 2, "broker-a", "paid", 0)
    assert [found.offset for found in collector.messages] == [0, 1]
    assert message.properties["MIN_OFFSET"] == "0"
    assert message.properties["MAX_OFFSET"] == "2"
    assert message.message_id == f"{1:032X}"


async def test_tags_are_checked_by_text_and_not_by_hash_alone(
    autojump_clock: MockClock, collector: Collector
) -> None:
    assert java_hash("Aa") == java_hash("BB")
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "Aa || paid"}, listener=collector
        ):
            for number, tag in enumerate(("Aa", "BB", "paid", "other", None, "BB")):
                await sender.send("orders", f"{number} {tag}", tags=tag, queue=0)
            await until(lambda: committed(broker, "billing", "orders")[0] == 6)
    assert collector.bodies == ["0 Aa", "2 paid"]


async def test_a_batch_listener_gets_lists(autojump_clock: MockClock) -> None:
    batches: list[list[ReceivedMessage]] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        batches.append(messages)
        await trio.sleep(0.1)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(100)), queue=0)
        options = {"batch": 8, "consume_from": ConsumeFrom.FIRST_OFFSET, "concurrency": 3}
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener, **options
        ):  # type: ignore[arg-type]
            await until(lambda: sum(map(len, batches)) >= 100)
    assert max(map(len, batches)) == 8
    assert sorted(int(message.body) for batch in batches for message in batch) == list(range(100))


async def test_the_listener_runs_at_most_so_many_times_at_once(autojump_clock: MockClock) -> None:
    running = most = done = 0

    async def listener(_message: ReceivedMessage) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        done += 1

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", *map(str, range(60)))
        began = trio.current_time()
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            concurrency=6,
        ):
            await until(lambda: done == 60)
        assert most == 6
        assert trio.current_time() - began < 12


async def test_one_slow_message_does_not_hold_back_the_others_of_its_queue(
    autojump_clock: MockClock,
) -> None:
    done: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"0":
            await trio.sleep(100)
        done.append(message.body.decode())

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(50)), queue=0)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ):
            await until(lambda: len(done) == 49, 5)
            await trio.sleep(10)
            assert committed(broker, "billing", "orders", 1) == [0]
            await until(lambda: len(done) == 50, 200)
            await trio.sleep(10)
            assert committed(broker, "billing", "orders", 1) == [50]


@pytest.mark.real_time
async def test_a_plain_function_around_an_async_one_is_awaited() -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", queue=0)
        listener: Any = lambda message: collector(message)  # noqa: E731 - what users write
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ) as consumer:
            await until(lambda: consumer.statistics().consumed == 2, 60)
            assert consumer.statistics().failed == 0
        assert sorted(collector.bodies) == ["a", "b"]  # two threads
        assert committed(broker, "billing", "orders", 1) == [2]


@pytest.mark.real_time
async def test_a_plain_function_runs_in_a_thread() -> None:
    threads: set[bool] = set()
    bodies: list[bytes] = []

    def listener(message: ReceivedMessage) -> None:
        try:
            trio.lowlevel.current_task()
            threads.add(False)
        except RuntimeError:
            threads.add(True)
        bodies.append(message.body)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", *map(str, range(30)))
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ):
            await until(lambda: len(bodies) == 30, 20)
    assert threads == {True}


def forget_young_queues(broker: EmbeddedBroker) -> None:
    """A broker answers 0 for a queue whose beginning is in memory; as if it were
    not.
    """

    def strict(channel: Channel, request: Command, query: Handler) -> Command | Continuation | None:
        return query(
            channel,
            Command(request.code, ext_fields={**request.ext_fields, "setZeroIfNotFound": "false"}),
        )

    intercept(broker, RequestCode.QUERY_CONSUMER_OFFSET, by=strict)


@pytest.mark.parametrize(
    ("consume_from", "expected"),
    [
        (ConsumeFrom.FIRST_OFFSET, ["old", "newer", "new"]),
        (ConsumeFrom.LAST_OFFSET, ["new"]),
        (ConsumeFrom.TIMESTAMP, ["newer", "new"]),
    ],
)
async def test_where_a_group_without_offsets_begins(
    autojump_clock: MockClock, collector: Collector, consume_from: ConsumeFrom, expected: list[str]
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "old", queue=0)
        await trio.sleep(3600)
        timestamp = sender.client.clock.now_ms()
        await trio.sleep(1)
        await sender.send("orders", "newer", queue=0)
        await trio.sleep(1)
        forget_young_queues(broker)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=collector,
            consume_from=consume_from,
            consume_timestamp=timestamp if consume_from is ConsumeFrom.TIMESTAMP else None,
        ):
            await sender.send("orders", "new", queue=0)
            await until(lambda: "new" in collector.bodies)
    assert collector.bodies == expected


async def test_a_group_goes_on_where_it_ended(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        for part in ("a", "b", "c"):
            await sender.send("orders", *(f"{part}{n}" for n in range(40)))
            collector = Collector()
            async with PushConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=collector,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ):
                # Awaited in the same turn.
                await until(lambda: len(collector.bodies) >= 40)  # noqa: B023
            assert sorted(collector.bodies) == sorted(f"{part}{n}" for n in range(40))


async def test_a_topic_that_is_created_after_the_start(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        consumer = PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        )
        async with consumer:
            assert not [queue for queue in consumer.statistics().queues if queue.topic == "orders"]
            await trio.sleep(2)
            await sender.send("orders", *map(str, range(20)))
            await until(lambda: len(collector.bodies) == 20, 40)
    assert sorted(map(int, collector.bodies)) == list(range(20))


async def test_several_topics_with_one_listener(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.create_topic("bills")
        await sender.send("orders", "order")
        await sender.send("bills", "bill 1", tags="a")
        await sender.send("bills", "bill 2", tags="b")
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": None, "bills": ("b", "TAG")},
            listener=collector,
        ):
            await until(lambda: len(collector.bodies) == 2)
    assert sorted((message.topic, message.body) for message in collector.messages) == [
        ("bills", b"bill 2"),
        ("orders", b"order"),
    ]


async def test_pulling_stops_above_the_threshold_and_goes_on_below(
    autojump_clock: MockClock,
) -> None:
    gate = trio.Event()
    done = 0

    async def listener(_message: ReceivedMessage) -> None:
        nonlocal done
        await gate.wait()
        done += 1

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(500)), queue=0)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            pull_threshold_for_queue=100,
            concurrency=2,
        ) as consumer:
            await trio.sleep(30)
            assert 100 < consumer.statistics().cached_messages <= 132
            assert consumer.statistics().in_flight == 2
            assert consumer.statistics().cached_bytes > 0
            gate.set()
            await until(lambda: done == 500)


async def test_totals_for_topics_are_shared_among_the_owned_queues(
    autojump_clock: MockClock,
) -> None:
    async def listener(_message: ReceivedMessage) -> None:
        await trio.sleep_forever()

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)
        consumer = PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            pull_threshold_for_topic=50,
            pull_batch_size=1,
        )
        with trio.CancelScope() as scope:
            async with consumer:
                await until(lambda: len(consumer.statistics().queues) == 5)
                await sender.send("orders", *map(str, range(800)))
                await trio.sleep(10)
                assert consumer.statistics().cached_messages == 4 * (50 // 5 + 1)
                scope.cancel()


async def test_an_offset_that_the_broker_refuses_is_corrected_at_once(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", queue=0)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        ):
            await until(lambda: len(collector.bodies) == 2)
        broker.core.offsets.commit("billing", "orders", 0, 1000)
        began = trio.current_time()
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        ):
            await until(lambda: committed(broker, "billing", "orders", 1) == [2], 1)
            await sender.send("orders", "c", queue=0)
            await until(lambda: collector.bodies == ["a", "b", "c"], 1)
        assert trio.current_time() - began < 2


async def test_the_retry_topic_is_owned_too(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        ) as consumer:
            await until(
                lambda: (
                    [queue.topic for queue in consumer.statistics().queues]
                    == [retry_topic("billing"), "orders"]
                ),
                5,
            )


async def test_consumers_share_a_client(autojump_clock: MockClock) -> None:
    first, second = Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with Client(broker) as client:
            async with (
                PushConsumer(
                    "billing", client=client, subscriptions={"orders": "*"}, listener=first
                ),
                PushConsumer(
                    "audit", client=client, subscriptions={"orders": "*"}, listener=second
                ),
            ):
                await sender.send("orders", *map(str, range(20)))
                await until(lambda: len(first.bodies) == len(second.bodies) == 20)
                with pytest.raises(ConfigurationError, match="billing"):
                    async with PushConsumer(
                        "billing", client=client, subscriptions={"orders": "*"}, listener=first
                    ):
                        pass
            assert client.routes.topics() == []
            assert client.heartbeat_data().consumer_data_set == ()


async def test_a_consumer_runs_once_and_not_with_two_clients(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with EmbeddedBroker() as broker:
        consumer = PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        )
        assert consumer.statistics().queues == ()
        async with consumer:
            pass
        with pytest.raises(ClosedError):
            await consumer.__aenter__()
        with pytest.raises(ConfigurationError):
            PushConsumer(
                "billing",
                namesrv=broker,
                client=Client(broker),
                subscriptions={"orders": "*"},
                listener=collector,
            )


async def test_nothing_is_logged_above_info_in_a_quiet_life(
    autojump_clock: MockClock, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="rocketmq_sdk"):
        async with EmbeddedBroker() as broker, open_sender(broker) as sender:
            await sender.create_topic("orders")
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
            ):
                await sender.send("orders", "a")
                await trio.sleep(300)
    assert caplog.records == []
    assert collector.bodies == ["a"]


@pytest.mark.parametrize("answer", [False, True, 0, "CONSUME_SUCCESS"])
@pytest.mark.parametrize("options", [{}, {"orderly": True}, {"batch": 4}], ids=str)
async def test_a_listener_that_returns_something_is_refused_and_its_message_not_done(
    autojump_clock: MockClock, answer: object, options: dict[str, Any]
) -> None:
    async def listener(_message: object) -> object:
        return answer

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", "a", "b", queues=2)  # two workers refuse it at once
        with pytest.raises(ConfigurationError, match=r"must return None.*ConsumeLater"):
            async with PushConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=listener,  # type: ignore[arg-type]  # what a type checker finds, too
                consume_from=ConsumeFrom.FIRST_OFFSET,
                **options,
            ):
                await trio.sleep(60)
        assert committed(broker, "billing", "orders", 1)[0] < 1


async def test_a_plain_listener_under_a_clock_that_jumps_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker:
        with pytest.raises(ConfigurationError, match="make the listener an async function"):
            async with PushConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=lambda message: None,
            ):
                raise AssertionError("it has begun")
