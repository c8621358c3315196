"""Stored messages that a consumer cannot decode: told once, tried ever more seldom, and
not in the way of what is in front of them.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import CodecMissingError
from rocketmq_sdk.protocol import message_codec
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.headers.send import SendMessageRequestHeaderV2
from rocketmq_sdk.testing import TestBroker
from rocketmq_sdk.testing.interception import intercept
from support.consuming import Collector, Sender, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock


@asynccontextmanager
async def opened(where: str) -> AsyncIterator[tuple[EmbeddedBroker, Any]]:
    """A broker, and the name server of consumers that read it here or over streams."""
    if where == "in process":
        async with EmbeddedBroker() as broker:
            yield broker, broker
    else:
        async with TestBroker() as outside:
            yield outside.embedded, outside.party("consumer")


async def send_broken(sender: Sender, topic: str) -> None:
    """Store a message that says it is compressed and is not."""
    header = SendMessageRequestHeaderV2(
        producer_group="sender",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=SysFlag.COMPRESSED | 0x300,
        born_timestamp=sender.client.clock.now_ms(),
        flag=0,
        properties="UNIQ_KEY\x01BROKEN\x02TAGS\x01paid\x02",
    )
    route = await sender.client.route(topic)
    request = Command.request(RequestCode.SEND_MESSAGE_V2, header, body=b"no zlib stream")
    assert (
        await sender.client.call_address(route.broker_datas[0].broker_addrs[0], request)
    ).code == 0


@pytest.mark.parametrize("where", ["in process", "over streams"])
@pytest.mark.parametrize("why", ["corrupt", "codec missing"])
async def test_a_message_that_cannot_be_decoded(
    autojump_clock: MockClock,
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
    where: str,
) -> None:
    if why == "codec missing":

        def decompress(_body: bytes, _sys_flag: int, *, limit: int) -> bytes:
            raise CodecMissingError(f"bodies need a library (limit {limit}): pip install 'that'")

        monkeypatch.setattr(message_codec, "decompress", decompress)
    async with opened(where) as (broker, namesrv), open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", queue=0, tags="paid")
        await sender.send("orders", "for others", queue=0, tags="shipped")
        await send_broken(sender, "orders")
        await sender.send("orders", "c", queue=0, tags="paid")
        pulls = intercept(broker, RequestCode.PULL_MESSAGE)
        caplog.set_level(logging.WARNING, "rocketmq_sdk.consumer")
        async with PushConsumer(
            "billing", namesrv=namesrv, subscriptions={"orders": "paid"}, listener=collector
        ):
            await until(lambda: len(collector.bodies) == 2, 5)
            await trio.sleep(600)
            topics = [request.ext_fields["topic"] for request in pulls.requests]
            assert topics.count("orders") < 25
        assert collector.bodies == ["a", "b"]
        assert committed(broker, "billing", "orders", 1) == [2]
        (warning,) = [record for record in caplog.records if record.name == "rocketmq_sdk.consumer"]
        text = warning.getMessage()
        cause = "inflated" if why == "corrupt" else "pip install"
        for part in (
            "group billing",
            "topic orders",
            "broker broker-a",
            "queue 0",
            "offset 3",
            "offset to 4",
            cause,
        ):
            assert part in text
        broker.core.offsets.commit("billing", "orders", 0, 4)
        async with PushConsumer(
            "billing", namesrv=namesrv, subscriptions={"orders": "paid"}, listener=collector
        ):
            await until(lambda: collector.bodies == ["a", "b", "c"], 5)


@pytest.mark.parametrize("where", ["in process", "over streams"])
async def test_behind_a_message_that_can_be_decoded_again_pulls_are_full_again(
    autojump_clock: MockClock, collector: Collector, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def decompress(body: bytes, _sys_flag: int, *, limit: int) -> bytes:
        if trio.current_time() - began < 20:
            raise CodecMissingError(f"not yet (limit {limit})")
        return body

    async with opened(where) as (broker, namesrv), open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await send_broken(sender, "orders")
        await sender.send("orders", *map(str, range(300)), queue=0)
        pulls = intercept(broker, RequestCode.PULL_MESSAGE)
        monkeypatch.setattr(message_codec, "decompress", decompress)
        began = trio.current_time()
        async with PushConsumer(
            "billing", namesrv=namesrv, subscriptions={"orders": "*"}, listener=collector
        ):
            await until(lambda: len(collector.bodies) == 301)
    assert collector.bodies == ["no zlib stream", *map(str, range(300))]
    asked = [
        request.ext_fields["maxMsgNums"]
        for request in pulls.requests
        if request.ext_fields["topic"] == "orders"
    ]
    assert asked[0] == "32"
    assert "1" in asked
    assert asked[-1] == "32"
    assert len(asked) < 80
