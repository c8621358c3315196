"""Namespaces against names that Apache RocketMQ 5.4.0 has made; what reaches brokers,
and what users see.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.namespace import Namespace
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.consumer.lite_pull.pull_consumer import PullConsumer
from rocketmq_sdk.consumer.outcome import RejectMessage
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.connections import ConsumeMessageDirectlyResultRequestHeader
from rocketmq_sdk.testing.interception import intercept
from support.consuming import Collector
from support.paths import CODEC_VECTORS
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage


ALL: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "names_and_rules.json").read_text())
NAMES = [entry for entry in ALL if entry["kind"] == "namespace" and entry["resource"] is not None]


@pytest.mark.parametrize("entry", NAMES, ids=lambda entry: f"{entry['ns']}-{entry['resource']}")
def test_the_recorded_names(entry: dict[str, Any]) -> None:
    namespace = Namespace(entry["ns"] or "")
    assert namespace.wrap(entry["resource"]) == entry["wrap"]
    # Apache's client cuts at the first "%", which is wrong in a namespace that holds
    # one; such a namespace is refused here.
    if "%" not in namespace.name:
        assert namespace.unwrap(entry["resource"]) == entry["without_ns"]
        assert namespace.unwrap(namespace.wrap(entry["resource"])) == entry["without_ns"]


async def test_a_tenant_has_names_of_its_own(autojump_clock: MockClock) -> None:
    inside, outside, dead = Collector(), Collector(), Collector()

    async def failing(message: ReceivedMessage) -> None:
        await inside(message)
        raise ValueError("as the test wants it")

    async with EmbeddedBroker() as broker, Client(broker, namespace="shop") as shop:
        async with (
            Producer("sellers", client=shop) as producer,
            PushConsumer(
                "billing",
                client=shop,
                subscriptions={"orders": "*"},
                listener=failing,
                max_reconsume_times=1,
            ),
            PushConsumer(
                "billing", namesrv=broker, subscriptions={"shop%orders": "*"}, listener=outside
            ),
        ):
            result = await producer.send(Message("orders", b"one"))
            assert result.queue.topic == "orders"
            await until(lambda: len(inside.messages) == 2 and outside.messages, 100)
            assert set(broker.parts.members.consumers.client_ids("shop%billing")) == {
                shop.client_id
            }
            assert broker.core.topics.get("orders") is None
        async with PushConsumer(
            "undertaker", client=shop, subscriptions={"%DLQ%billing": "*"}, listener=dead
        ):
            await until(lambda: dead.messages)
        assert broker.core.topics.get("%DLQ%shop%billing") is not None
    assert {message.topic for message in inside.messages} == {"orders"}
    assert [message.reconsume_times for message in inside.messages] == [0, 1]
    assert inside.messages[1].properties["RETRY_TOPIC"] == "shop%orders"
    assert inside.messages[0].properties["INSTANCE_ID"] == "shop"
    assert [message.topic for message in outside.messages] == ["shop%orders"]
    assert [message.topic for message in dead.messages] == ["%DLQ%billing"]


async def test_a_message_that_an_administrator_has_consumed_has_the_tenants_names(
    autojump_clock: MockClock,
) -> None:
    collector, dead = Collector(), Collector()

    async def listener(message: ReceivedMessage) -> None:
        await collector(message)
        raise RejectMessage

    async with (
        EmbeddedBroker() as broker,
        Client(broker, namespace="shop") as shop,
        Producer("sellers", client=shop) as producer,
    ):
        await producer.send(Message("orders", b"one"))
        subscribed = {"orders": "*"}
        async with PushConsumer(
            "billing",
            client=shop,
            subscriptions=subscribed,
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await until(lambda: collector.messages)
            async with PushConsumer(
                "undertaker", client=shop, subscriptions={"%DLQ%billing": "*"}, listener=dead
            ):
                await until(lambda: dead.messages)
            for number, message in enumerate([collector.messages[0], dead.messages[0]]):
                header = ConsumeMessageDirectlyResultRequestHeader(
                    consumer_group="shop%billing",
                    client_id=shop.client_id,
                    msg_id=message.offset_message_id,
                    topic="shop%orders",
                )
                await shop.call_broker(
                    "broker-a", Command.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
                )
                assert len(collector.messages) == number + 2
    assert [message.topic for message in collector.messages] == ["orders", "orders", "%DLQ%billing"]


async def test_other_consumers_are_in_the_namespace_too(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        Client(broker, namespace="shop") as shop,
        Producer("sellers", client=shop) as producer,
    ):
        await producer.send(Message("orders", b"one"))
        async with LitePullConsumer(
            "audit",
            client=shop,
            subscriptions={"orders": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            with trio.fail_after(30):
                messages: list[ReceivedMessage] = []
                while not messages:
                    messages = await consumer.poll(1)
        assert [message.topic for message in messages] == ["orders"]
        assert broker.core.offsets.topics_of("shop%audit") == {"shop%orders"}


async def test_users_see_their_own_names_everywhere(autojump_clock: MockClock) -> None:
    seen: list[object] = []

    def selector(queues: list[MessageQueue], _message: Message, _key: object) -> MessageQueue:
        seen.extend(queues)
        return queues[0]

    async with (
        EmbeddedBroker() as broker,
        Client(broker, namespace="shop") as shop,
        Producer("sellers", client=shop) as producer,
    ):
        first = await producer.send(Message("orders", b"0"))
        seen += [first, await producer.send(Message("orders", b"1"), selector=selector)]
        seen += [await producer.send(Message("orders", b"2"), queue=first.queue)]
        full = MessageQueue("shop%orders", first.queue.broker_name, first.queue.queue_id)
        seen += [await producer.send(Message("orders", b"3"), queue=full)]
        seen += [await producer.publish_queues("orders"), await producer.messages.queues("orders")]
        changes: list[object] = []
        more: dict[str, Any] = {"client": shop, "subscriptions": {"orders": "*"}}
        async with (
            PushConsumer("push", listener=Collector(), **more) as push,
            SimpleConsumer("simple", **more) as simple,
            LitePullConsumer("lite", on_assignment_change=changes.append, **more) as lite,
            LitePullConsumer("chosen", client=shop) as chosen,
            PullConsumer("pull", client=shop) as pull,
        ):
            queues = await pull.message_queues("orders")
            await chosen.assign(queues)
            await chosen.seek(queues[0], 0)
            chosen.pause(queues[0])
            chosen.resume(queues[0])
            assert chosen.position(queues[0]) == 0
            assert chosen.assignment() == set(queues)
            await chosen.commit({queues[0]: 0})
            await until(lambda: lite.assignment() == set(queues))
            await pull.commit(queues[0], 1)
            await lite.unsubscribe("orders")
            await until(lambda: not lite.assignment())
            await push.subscribe("other")
            seen += [changes, queues, chosen.assignment(), await push.group_lag()]
            seen += [each.statistics() for each in (push, simple, lite, chosen)]
            seen += [each.health() for each in (push, simple, lite, chosen, producer)]
            seen += [await pull.pull(queues[0], 0)]
    assert "orders" in repr(seen)
    assert "shop%" not in repr(seen)


async def test_a_namespace_of_the_second_kind_is_named_in_each_request(
    autojump_clock: MockClock,
) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker:
        requests = intercept(
            broker,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.PULL_MESSAGE,
            RequestCode.HEART_BEAT,
            RequestCode.UPDATE_CONSUMER_OFFSET,
        )
        async with (
            Client(broker, namespace_v2="tenant") as client,
            Producer("sellers", client=client) as producer,
            PushConsumer(
                "billing", client=client, subscriptions={"orders": "*"}, listener=collector
            ),
        ):
            await producer.send(Message("orders", b"one"))
            await until(lambda: collector.messages)
            await trio.sleep(6)
    assert set(requests.counts) == {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.PULL_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    }
    assert {
        (request.ext_fields.get("nsd"), request.ext_fields.get("ns"))
        for request in requests.requests
    } == {("true", "tenant")}
    assert collector.messages[0].topic == "orders"


def test_a_namespace_that_no_name_can_hold_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="namespace"):
        Client("127.0.0.1:1", namespace="no good")
    with pytest.raises(ConfigurationError, match="namespace"):
        Client("127.0.0.1:1", namespace="a%b")
