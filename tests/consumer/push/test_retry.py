"""What becomes of messages that a listener does not take, in virtual time."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.outcome import ConsumeLater, RejectMessage
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.names import dead_letter_topic
from rocketmq_sdk.protocol.bodies.members import MessageRequestMode
from rocketmq_sdk.testing.interception import intercept, refused
from support.consuming import Collector, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage

LADDER = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
"""Seconds before delivery 2, 3, ... of a failing message."""


class Failing(Collector):
    """A listener that fails for some bodies."""

    def __init__(self, *bad: str, error: Exception | None = None) -> None:
        super().__init__()
        self.bad = bad
        self.error = error or ValueError("as the test wants it")

    async def __call__(self, message: ReceivedMessage) -> None:
        await super().__call__(message)
        if message.body.decode() in self.bad:
            raise self.error


async def dead_letters(
    broker: EmbeddedBroker, group: str, count: int, seconds: float = 60
) -> list[ReceivedMessage]:
    collector = Collector()
    async with PushConsumer(
        "undertaker",
        namesrv=broker,
        subscriptions={dead_letter_topic(group): "*"},
        listener=collector,
    ):
        await until(lambda: len(collector.messages) >= count, seconds)
    return collector.messages


async def test_the_whole_ladder_to_the_dead_letter_topic(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Failing("bad")
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        with caplog.at_level(logging.WARNING, logger="rocketmq_sdk.consumer"):
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
            ):
                await sender.send("orders", "bad", "good")
                await until(lambda: listener.bodies.count("bad") == 17, 6 * 3600, step=60)
                await trio.sleep(7500)  # longer than the longest delay
        letters = await dead_letters(broker, "billing", 1)
        assert sum(committed(broker, "billing", "orders")) == 2
    deliveries = [index for index, body in enumerate(listener.bodies) if body == "bad"]
    assert [listener.messages[index].reconsume_times for index in deliveries] == list(range(17))
    times = [listener.times[index] for index in deliveries]
    waited = [after - before for before, after in itertools.pairwise(times)]
    for seconds, expected in zip(waited, LADDER, strict=True):
        assert expected <= seconds < expected + 2
    assert {message.topic for message in listener.messages} == {"orders"}
    assert listener.bodies.count("good") == 1
    assert [letter.body for letter in letters] == [b"bad"]
    failures = [record for record in caplog.records if "the listener failed" in record.getMessage()]
    assert len(failures) == 17
    assert not any(record.exc_info for record in failures)
    assert all(isinstance(getattr(record, "error", None), ValueError) for record in failures)
    line = failures[0].getMessage()
    assert "\n" not in line
    assert "ValueError" in line
    assert "test_retry.py:" in line


async def test_the_place_of_a_failure_is_in_the_code_of_the_listener(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def parses(message: ReceivedMessage) -> None:
        json.loads(message.body)  # raises in the standard library

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=parses
        ):
            await sender.send("orders", "no JSON")
            await until(lambda: "the listener failed" in caplog.text, 60)
        async with PushConsumer(
            "audit",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=trio.sleep,  # type: ignore[arg-type]
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await until(lambda: "group audit: the listener failed" in caplog.text, 60)
    billing, audit = (
        next(text for text in caplog.messages if f"group {group}: the listener failed" in text)
        for group in ("billing", "audit")
    )
    assert "test_retry.py:" in billing
    assert "in parses; " in billing
    assert " in sleep; " in audit  # where nothing of the user's own was called


async def test_the_traceback_of_a_failure_is_for_those_who_debug(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def listener(message: ReceivedMessage) -> None:
        raise ValueError("two\nlines " * 100)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        for topic, level, orderly in (
            ("a", "DEBUG", False),
            ("b", "DEBUG", True),
            ("c", "INFO", True),
        ):
            caplog.clear()
            with caplog.at_level(level, "rocketmq_sdk.consumer"):
                await sender.create_topic(topic, 1)
                async with PushConsumer(
                    f"group-{topic}",
                    namesrv=broker,
                    subscriptions={topic: "*"},
                    listener=listener,
                    orderly=orderly,
                    consume_from=ConsumeFrom.FIRST_OFFSET,
                ):
                    await sender.send(topic, "x", queue=0)
                    await trio.sleep(3)
            failures = [each for each in caplog.records if "listener failed" in each.getMessage()]
            assert failures
            assert all(bool(each.exc_info) == (level == "DEBUG") for each in failures)
            assert all(len(each.getMessage().splitlines()) == 1 for each in failures)
            assert all(len(each.getMessage()) < 600 for each in failures)


async def test_attempts_are_limited_by_the_consumer(autojump_clock: MockClock) -> None:
    listener = Failing("bad")
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            max_reconsume_times=2,
        ):
            await sender.send("orders", "bad")
            letters = await dead_letters(broker, "billing", 1, 300)
    assert [message.reconsume_times for message in listener.messages] == [0, 1, 2]
    assert letters[0].message_id == listener.messages[0].message_id


async def test_a_listener_may_choose_the_delay_or_give_up(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Choosing(Collector):
        async def __call__(self, message: ReceivedMessage) -> None:
            await super().__call__(message)
            if message.body == b"reject":
                raise RejectMessage("poison")
            if message.reconsume_times == 0:
                raise ConsumeLater("not now", delay_level=5)

    listener = Choosing()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        with caplog.at_level(logging.DEBUG, logger="rocketmq_sdk.consumer"):
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
            ):
                await sender.send("orders", "later", "reject")
                letters = await dead_letters(broker, "billing", 1, 5)
                await until(lambda: listener.bodies.count("later") == 2, 100)
    later = [
        time for time, body in zip(listener.times, listener.bodies, strict=True) if body == "later"
    ]
    assert 60 <= later[1] - later[0] < 62
    assert [letter.body for letter in letters] == [b"reject"]
    assert "the listener failed" not in caplog.text
    answers = [each for each in caplog.records if "the listener answered" in each.getMessage()]
    assert sorted(each.levelname for each in answers) == ["DEBUG", "WARNING"]
    (rejected,) = [each for each in answers if each.levelno == logging.WARNING]
    assert "RejectMessage('poison'); it goes to the dead letter topic" in rejected.getMessage()
    assert (
        rejected.__dict__.items()
        >= {
            "topic": "orders",
            "group": "billing",
            "message_id": letters[0].message_id,
        }.items()
    )


@pytest.mark.parametrize(("orderly", "mode"), [(False, "PULL"), (True, "PULL"), (False, "POP")])
@pytest.mark.parametrize("answer", [RejectMessage, ConsumeLater])
async def test_what_is_given_up_is_one_warning_with_the_reason(
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    orderly: bool,
    mode: str,
    answer: type[RejectMessage | ConsumeLater],
) -> None:
    """However the listener says so, and in whatever way the group consumes."""
    calls: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        calls.append(message.message_id)
        raise answer("no such order")

    caplog.set_level(logging.INFO, logger="rocketmq_sdk.consumer")
    settings = {"default_message_request_mode": MessageRequestMode[mode]}
    async with EmbeddedBroker(**settings) as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            max_reconsume_times=2,
            orderly=orderly,
            client_rebalance=mode == "PULL",
        ):
            await trio.sleep(2)
            await sender.send("orders", "bad")
            (letter,) = await dead_letters(broker, "billing", 1, 300)
    rejected = answer is RejectMessage
    assert calls == [letter.message_id] * (1 if rejected else 3)
    (only,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    why = (
        "RejectMessage('no such order'); it goes"
        if rejected
        else "ConsumeLater('no such order'); its attempts are exhausted, so it goes"
    )
    assert f"answered {why} to the dead letter topic" in only.getMessage()
    assert letter.message_id in only.getMessage()


async def test_a_failure_for_the_last_time_in_order_says_where_the_message_goes(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=Failing("bad"),
            max_reconsume_times=1,
            orderly=True,
        ):
            await sender.send("orders", "bad")
            await dead_letters(broker, "billing", 1, 300)
    told = [each.getMessage() for each in caplog.records if "failed with" in each.getMessage()]
    assert ["its queue rests" in text for text in told] == [True, False]
    assert "exhausted, so it goes to the dead letter topic" in told[1]


async def test_the_reason_of_a_rejected_batch_is_bounded_and_on_one_line(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def listener(messages: list[ReceivedMessage]) -> None:
        raise RejectMessage("no\nsuch order " * 1000, messages=messages)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(50)), queue=0)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            batch=50,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            pull_batch_size=50,
        ):
            await dead_letters(broker, "billing", 50, 300)
    told = [each.getMessage() for each in caplog.records if "answered" in each.getMessage()]
    assert len(told) <= 5
    assert all(len(text) < 600 and "\n" not in text for text in told)


@pytest.mark.parametrize("named", [True, False])
async def test_part_of_a_batch_may_be_refused(autojump_clock: MockClock, named: bool) -> None:
    deliveries: list[tuple[str, int]] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        deliveries.extend((message.body.decode(), message.reconsume_times) for message in messages)
        bad = [
            message
            for message in messages
            if message.body == b"bad" and not message.reconsume_times
        ]
        if bad:
            raise ConsumeLater(messages=bad if named else None)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "bad", "c", queue=0)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener, batch=10
        ):
            await until(lambda: ("bad", 1) in deliveries, 60)
            await trio.sleep(30)
    again = sorted(body for body, times in deliveries if times == 1)
    assert again == (["bad"] if named else ["a", "bad", "c"])


async def test_a_listener_that_takes_too_long_is_cancelled_and_its_message_comes_back(
    autojump_clock: MockClock,
) -> None:
    cancelled: list[str] = []
    collector = Collector()

    async def listener(message: ReceivedMessage) -> None:
        await collector(message)
        if message.body == b"slow" and not message.reconsume_times:
            try:
                await trio.sleep(1000)
            except trio.Cancelled:
                cancelled.append(message.body.decode())
                raise

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            consume_timeout=60,
        ) as consumer:
            await sender.send("orders", "slow", "fast")
            await until(lambda: collector.bodies.count("slow") == 2, 200)
            assert consumer.statistics().timed_out == 1
            await sender.send("orders", *map(str, range(50)))
            await until(lambda: len(collector.bodies) == 53)
        assert sum(committed(broker, "billing", "orders")) == 52
    slow = [
        time for time, body in zip(collector.times, collector.bodies, strict=True) if body == "slow"
    ]
    assert cancelled == ["slow"]
    assert 70 <= slow[1] - slow[0] < 73


@pytest.mark.parametrize("answer", ["swallow", "error", "group"])
async def test_what_a_cancelled_listener_says_does_not_count(
    autojump_clock: MockClock, answer: str
) -> None:
    collector = Collector()

    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("on the way out")

    async def listener(message: ReceivedMessage) -> None:
        await collector(message)
        if message.reconsume_times:
            return
        if answer == "group":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail_when_cancelled)
                nursery.start_soon(trio.sleep_forever)
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            if answer == "error":
                raise ValueError("on the way out") from None

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            consume_timeout=5,
        ) as consumer:
            await sender.send("orders", "slow")
            await until(
                lambda: [message.reconsume_times for message in collector.messages] == [0, 1], 60
            )
            assert (consumer.statistics().timed_out, consumer.statistics().consumed) == (1, 1)


@pytest.mark.real_time
async def test_the_late_result_of_a_thread_is_ignored() -> None:
    release = threading.Event()
    times: list[int] = []

    def listener(message: ReceivedMessage) -> None:
        times.append(message.reconsume_times)
        if not message.reconsume_times:
            release.wait(60)

    async with (
        EmbeddedBroker(message_delay_level="1s 1s 1s 1s") as broker,
        open_sender(broker) as sender,
    ):
        await sender.create_topic("orders")
        options = {"consume_timeout": 1, "concurrency": 1}
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener, **options
        ) as consumer:  # type: ignore[arg-type]
            await sender.send("orders", "slow")
            await until(lambda: times == [0, 1], 60)
            release.set()
            await until(lambda: consumer.statistics().consumed == 1, 60)
            assert consumer.statistics().timed_out == 1


async def test_a_copy_goes_to_the_retry_topic_when_the_broker_does_not_take_a_message_back(
    autojump_clock: MockClock,
) -> None:
    listener = Failing("bad")
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        sends = intercept(broker, RequestCode.CONSUMER_SEND_MSG_BACK, by=refused())
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            max_reconsume_times=2,
        ):
            await sender.send("orders", "bad", queue=0, tags="a")
            await until(lambda: len(listener.bodies) == 3, 100)
            letters = await dead_letters(broker, "billing", 1, 200)
        assert committed(broker, "billing", "orders", 1) == [1]
    assert sends.counts[RequestCode.CONSUMER_SEND_MSG_BACK] == 3
    assert [message.reconsume_times for message in listener.messages] == [0, 1, 2]
    assert {message.topic for message in listener.messages} == {"orders"}
    assert {message.tags for message in listener.messages} == {"a"}
    assert 10 <= listener.times[1] - listener.times[0] < 12
    assert 30 <= listener.times[2] - listener.times[1] < 32
    assert len({message.message_id for message in listener.messages}) == 1
    assert letters[0].properties["ORIGIN_MESSAGE_ID"] == listener.messages[0].offset_message_id


async def test_a_rejected_message_goes_to_the_dead_letter_topic_by_the_detour_too(
    autojump_clock: MockClock,
) -> None:
    listener = Failing("bad", error=RejectMessage())
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        intercept(broker, RequestCode.CONSUMER_SEND_MSG_BACK, by=refused())
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ):
            await sender.send("orders", "bad", queue=0)
            letters = await dead_letters(broker, "billing", 1, 30)
    assert [letter.body for letter in letters] == [b"bad"]
    assert len(listener.bodies) == 1


async def test_a_message_that_no_broker_takes_back_is_consumed_again_here_and_holds_the_offset(
    autojump_clock: MockClock,
) -> None:
    class Recovering(Collector):
        async def __call__(self, message: ReceivedMessage) -> None:
            await super().__call__(message)
            if message.body == b"bad" and message.reconsume_times < 3:
                raise ValueError("as the test wants it")

    listener = Recovering()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "bad", "c", "d", queue=0)
        sends = intercept(
            broker, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2, by=refused()
        )
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ) as consumer:
            await until(lambda: listener.bodies.count("bad") == 3)
            await trio.sleep(4)
            assert committed(broker, "billing", "orders", 1) == [1]
            assert (
                consumer.statistics().waiting_for_retry,
                consumer.statistics().cached_messages,
            ) == (1, 1)
            await until(lambda: committed(broker, "billing", "orders", 1) == [4], 30)
    bad = [
        time for time, body in zip(listener.times, listener.bodies, strict=True) if body == "bad"
    ]
    assert [round(after - before) for before, after in itertools.pairwise(bad)] == [5, 5, 5]
    assert sends.counts == {RequestCode.CONSUMER_SEND_MSG_BACK: 3, RequestCode.SEND_MESSAGE_V2: 3}
    assert (
        listener.bodies.count("a") == listener.bodies.count("c") == listener.bodies.count("d") == 1
    )


async def test_a_message_that_could_not_be_sent_back_is_delivered_again_after_a_restart(
    autojump_clock: MockClock,
) -> None:
    listener = Failing("bad")
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "bad", "c", queue=0)
        intercept(
            broker, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2, by=refused()
        )
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ):
            await until(lambda: len(listener.bodies) == 3)
        assert committed(broker, "billing", "orders", 1) == [1]
        collector = Collector()
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
        ):
            await until(lambda: len(collector.bodies) == 2)
    assert collector.bodies == ["bad", "c"]
