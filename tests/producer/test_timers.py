"""Messages with a time of delivery, and taking them back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import trio

from producer.test_embedded import stored
from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import BrokerError, ConfigurationError, RouteError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.recall_handle import RecallHandle, decode_recall_handle

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_a_message_comes_at_its_moment(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("pg", namesrv=broker) as producer:
        with trio.fail_after(60):
            now = broker.core.clock.now_ms()
            moment = datetime.fromtimestamp(now / 1000, UTC) + timedelta(seconds=20)
            await Admin(client=producer.client).topics.create("t")
            result = await producer.send(Message("t", b"x", deliver_at=moment))
            assert result.recall_handle is not None
            await trio.sleep(19.9)
            assert await stored(producer, "t") == 0
            await trio.sleep(1.2)
            assert await stored(producer, "t") == 1


@pytest.mark.parametrize("by_result", [True, False])
async def test_a_message_is_taken_back(by_result: bool, autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("pg", namesrv=broker) as producer:
        with trio.fail_after(60):
            due = broker.core.clock.now_ms() + 20_000
            result = await producer.send(Message("t", b"x", deliver_at=due))
            assert result.recall_handle is not None
            assert (
                await producer.recall(result if by_result else result.recall_handle)
                == result.message_id
            )
            await trio.sleep(25)
            assert broker.store.queue_ids("t") == []
            with pytest.raises(BrokerError, match="timestamp invalid") as caught:
                await producer.recall(result)
            assert caught.value.code == ResponseCode.ILLEGAL_OPERATION


async def test_another_producer_can_take_a_message_back_by_its_handle(
    autojump_clock: MockClock,
) -> None:
    """Its client has no route of the topic yet."""
    async with EmbeddedBroker() as broker, Producer("pg", namesrv=broker) as producer:
        with trio.fail_after(60):
            result = await producer.send(
                Message("t", b"x", deliver_at=broker.core.clock.now_ms() + 20_000)
            )
            assert result.recall_handle is not None
            async with Client(broker) as client, Producer("other", client=client) as other:
                assert await other.recall(result.recall_handle) == result.message_id


async def test_what_cannot_be_taken_back(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("pg", namesrv=broker) as producer:
        with trio.fail_after(60):
            ordinary = await producer.send(Message("t", b"x"))
            with pytest.raises(ConfigurationError, match="gave no recall handle"):
                await producer.recall(ordinary)
            for no_handle in (None, 5, b"handle"):
                with pytest.raises(
                    ConfigurationError, match="give a SendResult, or its recall_handle"
                ):
                    await producer.recall(no_handle)  # type: ignore[arg-type]
            with pytest.raises(ConfigurationError, match="recall handle is invalid"):
                await producer.recall("nonsense")
            with pytest.raises(ConfigurationError, match="cannot be taken back"):
                await producer.recall(RecallHandle("%RETRY%g", "broker-a", "1", "K").encode())
            timer = await producer.send(
                Message("t", b"x", deliver_at=broker.core.clock.now_ms() + 20_000)
            )
            parts = decode_recall_handle(timer.recall_handle or "")
            with pytest.raises(BrokerError, match="broker service not available"):
                await producer.recall(parts._replace(broker_name="broker-z").encode())


async def test_a_moment_too_far_away_is_refused(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("pg", namesrv=broker) as producer:
        with trio.fail_after(60):
            with pytest.raises(BrokerError, match="bigger than the max delay") as caught:
                await producer.send(
                    Message("t", b"x", deliver_at=broker.core.clock.now_ms() + 259_300_000)
                )
            assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_topic_without_route_cannot_be_recalled_from(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker(auto_create_topic_enable=False) as broker,
        Producer("pg", namesrv=broker) as producer,
    ):
        with trio.fail_after(60), pytest.raises(RouteError):
            await producer.recall(RecallHandle("nobody", "broker-a", "1", "K").encode())
