"""Two brokers that were told different message request modes for one group: its members
agree, whichever answers first, and change over as one.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import ConsumeFrom, EmbeddedBroker, Message, Producer, PushConsumer
from rocketmq_sdk.client.api.groups import update_group
from rocketmq_sdk.client.api.members import set_message_request_mode
from rocketmq_sdk.client.api.topics import create_topic
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.names import java_hash
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.protocol.bodies.members import MessageRequestMode
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from support.consuming import Collector
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.real_time
ROUNDS = 12
Modes = dict[str, MessageRequestMode]


@asynccontextmanager
async def two_brokers(modes: Modes) -> AsyncIterator[tuple[str, dict[str, EmbeddedBroker]]]:
    """A name server and two brokers with a topic of two queues each; each has its own
    mode for the group.
    """
    async with EmbeddedBroker(listen=0, namesrv_listen=0) as first:
        namesrv = first.namesrv_address
        assert namesrv is not None
        async with (
            EmbeddedBroker(listen=0, namesrv_addr=namesrv, broker_name="broker-b") as second,
            Client(namesrv) as client,
        ):
            brokers = {"broker-a": first, "broker-b": second}
            for name, broker in brokers.items():
                address = broker.address
                assert address is not None
                await create_topic(
                    client, address, TopicConfig("orders", read_queue_nums=2, write_queue_nums=2)
                )
                await update_group(client, address, SubscriptionGroupConfig("billing"))
                await set_message_request_mode(client, address, "orders", "billing", modes[name])
            with trio.fail_after(60):
                while len((await client.route("orders")).broker_datas) < 2:
                    await trio.sleep(0.05)
            yield namesrv, brokers


def member(namesrv: str, collector: Collector) -> PushConsumer:
    return PushConsumer(
        "billing",
        namesrv=namesrv,
        subscriptions={"orders": "*"},
        listener=collector,
        client_rebalance=False,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        rebalance_interval=0.2,
        api_timeout=60,  # a slow moment of the machine is no reason to ask the other broker
        instance_name=f"member {id(collector)}",
    )


def mode_of(consumer: PushConsumer) -> MessageRequestMode | None:
    """How a member reads the queues of both brokers; None while it has not come to all
    of its share, or reads some in this way and some in that.
    """
    statistics = consumer.statistics()
    pulled = [queue for queue in statistics.queues if queue.topic == "orders"]
    popped = [queue for queue in statistics.popped if queue.topic == "orders"]
    if len(pulled) == 2 and not popped:
        return MessageRequestMode.PULL
    return MessageRequestMode.POP if len(popped) == 2 and not pulled else None


@pytest.mark.parametrize("popping", ["broker-a", "broker-b"])
async def test_members_agree_where_brokers_differ_and_change_over_as_one(popping: str) -> None:
    modes = {
        name: MessageRequestMode.POP if name == popping else MessageRequestMode.PULL
        for name in ("broker-a", "broker-b")
    }
    judge = sorted(modes)[java_hash("billing") % 2]
    collectors = [Collector(), Collector()]
    sent = 0

    async def send(producer: Producer) -> None:
        nonlocal sent
        for place in await producer.publish_queues("orders"):
            await producer.send(Message("orders", b"%d" % sent), queue=place)
            sent += 1

    async with (
        two_brokers(modes) as (namesrv, brokers),
        Producer("shop", namesrv=namesrv) as producer,
        Client(namesrv) as client,
        member(namesrv, collectors[0]) as one,
        member(namesrv, collectors[1]) as two,
    ):
        await until(lambda: mode_of(one) is mode_of(two) is modes[judge])
        for _ in range(ROUNDS):
            before = [each.statistics().last_rebalance for each in (one, two)]
            await send(producer)
            await until(
                lambda: all(
                    each.statistics().last_rebalance != old
                    for each, old in zip((one, two), before, strict=True)  # noqa: B023
                )
            )
            assert mode_of(one) is mode_of(two) is modes[judge]
        await until(
            lambda: (
                {*collectors[0].bodies, *collectors[1].bodies}
                == {str(number) for number in range(sent)}
            )
        )
        assert len(collectors[0].bodies) + len(collectors[1].bodies) == sent, (
            "nobody has changed its mind, so nothing comes twice"
        )
        address = brokers[judge].address
        assert address is not None
        other = next(mode for name, mode in modes.items() if name != judge)
        await set_message_request_mode(client, address, "orders", "billing", other)
        await until(lambda: mode_of(one) is mode_of(two) is other)
        for _ in range(ROUNDS):
            await send(producer)
        await until(
            lambda: (
                {*collectors[0].bodies, *collectors[1].bodies}
                == {str(number) for number in range(sent)}
            )
        )
