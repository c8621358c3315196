"""Hooks around sends and listeners, and interceptors of requests: they see everything,
and their failures end nothing but the one call.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import ConfigurationError, RocketMQError, WrongTypeError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.names import pop_retry_topic_v1
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.testing.interception import intercept
from support.consuming import Collector, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.client.hooks import ConsumeContext, SendContext
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.protocol.command import Command


class Noting:
    """All kinds of hooks in one."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, bytes, bool]] = []
        self.consumed: list[tuple[str, int, bool | None]] = []

    def before_send(self, context: SendContext) -> None:
        context.notes["seen"] = True
        self.sends.append(("before", context.message.body, False))

    def after_send(self, context: SendContext) -> None:
        assert context.notes["seen"]
        self.sends.append(
            ("after", context.message.body, context.result is not None and context.error is None)
        )

    def check_forbidden(self, context: SendContext) -> None:
        if context.message.body == b"forbidden":
            raise PermissionError("not this one")

    def before_consume(self, context: ConsumeContext) -> None:
        self.consumed.append(("before", len(context.messages), context.success))

    def after_consume(self, context: ConsumeContext) -> None:
        self.consumed.append(("after", len(context.messages), context.success))

    def filter_messages(
        self, messages: list[ReceivedMessage], queue: MessageQueue
    ) -> list[ReceivedMessage]:
        assert queue.topic in ("orders", "%RETRY%billing")
        return [message for message in messages if message.body != b"filtered"]


class Broken:
    """Hooks that fail."""

    def fail(self, *_arguments: object) -> Any:
        raise ValueError("a broken hook")

    before_send = after_send = before_consume = after_consume = filter_messages = fail


async def test_send_hooks_see_each_message_once_and_forbidding_hooks_refuse(
    autojump_clock: MockClock,
) -> None:
    noting = Noting()
    async with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker, send_hooks=[noting], forbidden_hooks=[noting]) as producer,
    ):
        await producer.send(Message("orders", b"one"))
        with pytest.raises(PermissionError, match="not this one"):
            await producer.send(Message("orders", b"forbidden"))
        await producer.send_oneway(Message("orders", b"two"))
        await producer.send_batch([Message("orders", b"three"), Message("orders", b"four")])
        assert producer.in_flight == 0
    assert noting.sends[:2] == [("before", b"one", False), ("after", b"one", True)]
    assert [(when, body) for when, body, _stored in noting.sends] == [
        (when, body) for body in (b"one", b"two", b"three") for when in ("before", "after")
    ]


async def test_consume_hooks_see_each_call_and_filter_hooks_leave_messages_out(
    autojump_clock: MockClock,
) -> None:
    noting, collector = Noting(), Collector()

    async def listener(message: ReceivedMessage) -> None:
        await collector(message)
        if message.body == b"bad" and message.reconsume_times == 0:
            raise ValueError("as the test wants it")

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            consume_hooks=[noting],
            filter_hooks=[noting],
        ):
            await sender.send("orders", "good", "filtered", "bad", "filtered", queue=0)
            await until(lambda: len(collector.messages) == 3)
        assert broker.core.offsets.query("billing", "orders", 0) == 4
    assert collector.bodies == ["good", "bad", "bad"]
    assert [success for when, _count, success in noting.consumed if when == "after"] == [
        True,
        False,
        True,
    ]


async def test_filter_hooks_leave_popped_messages_out_for_good(autojump_clock: MockClock) -> None:
    noting, collector = Noting(), Collector()
    async with (
        EmbeddedBroker(default_message_request_mode="POP") as broker,
        open_sender(broker) as sender,
    ):
        await sender.create_topic("orders", 1)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=collector,
            filter_hooks=[noting],
            client_rebalance=False,
        ) as consumer:
            await until(lambda: consumer.statistics().popped)
            await sender.send("orders", "good", "filtered", "better", "filtered", queue=0)
            await trio.sleep(300)  # nothing of it comes again
            assert broker.core.topics.get(pop_retry_topic_v1("orders", "billing")) is None
    assert collector.bodies == ["good", "better"]


async def test_hooks_that_fail_are_logged_and_disturb_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    collector, broken = Collector(), Broken()
    with caplog.at_level(logging.ERROR):
        async with (
            EmbeddedBroker() as broker,
            Producer("shop", namesrv=broker, send_hooks=[broken]) as producer,
        ):
            await producer.send(Message("orders", b"one"))
            async with PushConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=collector,
                consume_hooks=[broken],
                filter_hooks=[broken],
            ):
                await until(lambda: collector.messages)
    assert caplog.text.count("a broken hook") >= 5


class Jumbling:
    """Filter hooks that return what they should not."""

    def __init__(self) -> None:
        self.calls = 0

    def filter_messages(
        self, messages: list[ReceivedMessage], queue: MessageQueue
    ) -> list[ReceivedMessage]:
        self.calls += 1
        if self.calls == 1:
            return [*reversed(messages), *messages]
        return [ReceivedMessage(topic="orders", body=b"made up")]


async def test_a_filter_hook_changes_neither_order_nor_number_of_messages(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    collector, jumbling = Collector(), Jumbling()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(10)), queue=0)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=collector,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            pull_batch_size=5,
            filter_hooks=[jumbling],
        ):
            await until(lambda: len(collector.messages) == 10)
        assert collector.bodies == [str(number) for number in range(10)]
        assert committed(broker, "billing", "orders", 1) == [10]
    assert "returned messages that it was not given" in caplog.text


class Everything:
    """An object that any hook or interceptor may be; its class is none."""

    def before(self, _command: Any, _address: Any) -> None: ...

    after = before_send = after_send = before_consume = after_consume = before
    check_forbidden = filter_messages = before


@pytest.mark.parametrize(
    "name", ["consume_hooks", "filter_hooks", "send_hooks", "forbidden_hooks", "interceptors"]
)
def test_a_class_in_place_of_an_object_is_refused_with_the_remedy(name: str) -> None:
    options: dict[str, Any] = {"namesrv": "a:1", name: [Everything]}
    text = rf"{name} is the class Everything; give .* Everything\(\)"
    if name in ("consume_hooks", "filter_hooks"):
        options |= {"subscriptions": {"orders": "*"}, "listener": print}
        with pytest.raises(WrongTypeError, match=text):
            PushConsumer("billing", **options)
    else:
        with pytest.raises(WrongTypeError, match=text):
            Producer("shop", **options)


def test_what_is_no_hook_is_refused() -> None:
    for name in ("consume_hooks", "filter_hooks"):
        with pytest.raises(ConfigurationError, match=f"{name}.*has no method"):
            PushConsumer(
                "billing",
                namesrv="a:1",
                subscriptions={"orders": "*"},
                listener=print,
                **{name: [object()]},
            )  # type: ignore[arg-type]  # so
    for name in ("send_hooks", "forbidden_hooks"):
        with pytest.raises(ConfigurationError, match=f"{name}.*has no method"):
            # What the test is about.
            Producer("shop", namesrv="a:1", **{name: [object()]})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="before and after"):
        Client("a:1", interceptors=[object()])  # type: ignore[list-item]  # what the test is about


class Intercepting:
    """Counts requests and answers; may fail."""

    def __init__(self) -> None:
        self.before_codes: list[int] = []
        self.after_codes: list[int] = []
        self.bad: int | None = None

    def before(self, command: Command, address: str | None) -> None:
        self.before_codes.append(command.code)
        if command.code == self.bad:
            raise ValueError("a broken interceptor")

    def after(self, command: Command, response: Command, address: str | None) -> None:
        assert response.is_response
        self.after_codes.append(command.code)


async def test_interceptors_see_all_requests_and_answers_sends_and_commits_too(
    autojump_clock: MockClock,
) -> None:
    watch, collector = Intercepting(), Collector()
    async with (
        EmbeddedBroker() as broker,
        Client(broker, interceptors=[watch]) as client,
        Producer("shop", client=client) as producer,
        PushConsumer("billing", client=client, subscriptions={"orders": "*"}, listener=collector),
    ):
        await producer.send(Message("orders", b"one"))
        await until(lambda: collector.messages)
        await trio.sleep(6)
    answered = {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.PULL_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
    }
    assert answered <= set(watch.after_codes) <= set(watch.before_codes)
    assert RequestCode.UPDATE_CONSUMER_OFFSET in watch.before_codes


async def test_an_interceptor_that_fails_ends_its_calls_and_the_consumer_goes_on_later(
    autojump_clock: MockClock,
) -> None:
    watch, collector = Intercepting(), Collector()
    async with (
        EmbeddedBroker() as broker,
        Client(broker, interceptors=[watch]) as client,
        Producer("shop", client=client) as producer,
    ):
        await producer.send(Message("orders", b"one"))
        watch.bad = RequestCode.PULL_MESSAGE
        async with PushConsumer(
            "billing", client=client, subscriptions={"orders": "*"}, listener=collector
        ) as consumer:
            await trio.sleep(10)
            assert not collector.messages
            assert "a broken interceptor" in str(consumer.health())
            watch.bad = None
            await until(lambda: collector.messages)
            watch.bad = RequestCode.GET_ROUTEINFO_BY_TOPIC
            with pytest.raises(RocketMQError, match="a broken interceptor"):
                await client.route("other", refresh=True)
            watch.bad = None


async def test_short_heartbeats_leave_out_subscriptions_that_the_broker_knows(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        heartbeats = intercept(broker, RequestCode.HEART_BEAT)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=Collector(),
            use_heartbeat_v2=True,
        ) as consumer:
            await trio.sleep(200)
            sizes = [len(request.body) for request in heartbeats.requests]
            assert min(sizes) < max(sizes) * 0.6
            assert sizes[-1] == min(sizes)
            assert broker.parts.members.consumers.subscription("billing", "orders") is not None
            await consumer.subscribe("refunds", "paid")
            assert broker.parts.members.consumers.subscription("billing", "refunds") is not None
            await trio.sleep(300)
            assert sizes[-1] == min(sizes)
            assert broker.parts.members.consumers.subscription("billing", "refunds") is not None
            assert broker.parts.members.consumers.subscription("billing", "orders") is not None


async def test_short_heartbeats_never_leave_out_what_a_broker_lacks(
    autojump_clock: MockClock,
) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=collector,
            use_heartbeat_v2=True,
        ) as consumer:
            await trio.sleep(100)
            await consumer.subscribe(
                "orders", "*"
            )  # the same once more: another version, but the same fingerprint
            await sender.send("orders", "a", queue=0)
            await until(lambda: collector.bodies == ["a"], 5)
            await consumer.unsubscribe("orders")
            await trio.sleep(100)
            await consumer.subscribe("orders")
            await sender.send("orders", "b", queue=0)
            await until(lambda: collector.bodies == ["a", "b"], 30)
            await trio.sleep(100)
            # A member that subscribes to less takes it out of what the broker knows of
            # the group.
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"refunds": "*"}, listener=Collector()
            ):
                await trio.sleep(1)
            await sender.send("orders", "c", queue=0)
            await until(lambda: collector.bodies == ["a", "b", "c"], 60)
