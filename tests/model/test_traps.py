"""Arguments of a message that are probably mistakes are refused; delays in seconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    ConfigurationError,
    ConsumeFrom,
    EmbeddedBroker,
    Message,
    Producer,
    SimpleConsumer,
)

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.parametrize(
    "moment",
    [1_795_533_359, 0, -1, 1_795_531_559_867_857_414, 1_795_531_559_867_862],
)
def test_a_moment_that_is_not_in_milliseconds(moment: int) -> None:
    with pytest.raises(ConfigurationError, match="looks like"):
        Message("t", b"x", deliver_at=moment)


def test_moments_that_are_right() -> None:
    now_ms = time.time_ns() // 1_000_000
    assert Message("t", b"x", deliver_at=now_ms).deliver_at_ms == now_ms
    moment = datetime(2031, 1, 2, tzinfo=UTC)
    assert Message("t", b"x", deliver_at=moment).deliver_at_ms == moment.timestamp() * 1000


@pytest.mark.parametrize("tag", ["a,b", "a | b", "a || b", "a|b", "*", " a", "a ", "a\t", "  "])
def test_a_tag_that_no_subscription_means(tag: str) -> None:
    with pytest.raises(ConfigurationError, match="tag"):
        Message("t", b"x", tags=tag)


@pytest.mark.parametrize(
    ("delay", "text"),
    [(30, "30000"), (0.25, "250"), (timedelta(minutes=2), "120000")],
)
def test_a_delay_is_counted_by_the_broker(delay: Any, text: str) -> None:
    message = Message("t", b"x", delay=delay)
    assert f"TIMER_DELAY_MS\x01{text}\x02" in message.property_text()
    assert message.is_delayed


def test_no_delay_is_none() -> None:
    message = Message("t", b"x", delay=0)
    assert not message.is_delayed
    assert "TIMER" not in message.property_text()


@pytest.mark.parametrize("delay", [-1, timedelta(seconds=-1), float("nan"), "5", True, 1.8e12])
def test_a_delay_that_is_none(delay: Any) -> None:
    with pytest.raises(ConfigurationError, match="delay"):
        Message("t", b"x", delay=delay)


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 5, "delay_level": 1},
        {"delay": 5, "deliver_at": 1_900_000_000_000},
        {"delay_level": 1, "deliver_at": 1_900_000_000_000},
    ],
)
def test_one_kind_of_delay(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="exclude"):
        Message("t", b"x", **options)


async def test_delays_and_dates_in_virtual_time(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker:
        await trio.sleep(7200)
        async with (
            Producer("pg", namesrv=broker) as producer,
            SimpleConsumer(
                "g",
                namesrv=broker,
                subscriptions={"t": "*"},
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ) as consumer,
        ):
            began = trio.current_time()
            await producer.send(Message("t", b"now"))
            await producer.send(Message("t", b"delay", delay=timedelta(minutes=20)))
            await producer.send(
                Message("t", b"moment", deliver_at=broker.clock.now_ms() + 1_800_000)
            )
            arrived = {}
            while len(arrived) < 3:
                for message in await consumer.receive(1, await_duration=3600):
                    arrived[message.body] = round(trio.current_time() - began)
                    await consumer.ack(message)
                    if message.body == b"now":
                        assert abs(message.store_time - message.born_time) < timedelta(seconds=5)
            assert arrived[b"now"] <= 5
            assert 1200 <= arrived[b"delay"] <= 1205
            assert 1800 <= arrived[b"moment"] <= 1805


async def test_a_delayed_message_goes_in_no_batch(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("pg", namesrv=broker) as producer:
        with pytest.raises(ConfigurationError, match="batch"):
            await producer.send_batch([Message("t", b"x"), Message("t", b"y", delay=5)])
