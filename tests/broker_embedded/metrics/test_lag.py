"""The lag of groups that pull and of groups that pop, by topic and by queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.metrics import lag
from rocketmq_sdk.model.enums import ConsumeType
from support.broker import heartbeat, open_broker, subscription
from support.metrics import page, samples
from support.popping import Popper

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker

KEY = ("CG", "false", "false", "orders")
NAMES = (
    "lag_messages",
    "lag_latency_milliseconds",
    "inflight_messages",
    "queueing_latency_milliseconds",
    "ready_messages",
)


async def lags(broker: EmbeddedBroker, key: tuple[str, ...] = KEY) -> list[float]:
    """Lag, its age, messages in flight, age of those that no member has, and these."""
    found = samples(await page(broker))
    return [found[f"rocketmq_consumer_{name}"][key] for name in NAMES]


async def test_a_group_that_pulls(autojump_clock: MockClock) -> None:
    async with open_broker(metrics=0) as (broker, peer):
        for queue_id in (0, 0, 0, 1):
            await peer.send("orders", b"1", queue_id=queue_id)
        broker.core.offsets.commit("CG", "orders", 0, 1)
        assert "rocketmq_consumer_lag_messages" not in samples(await page(broker))
        await peer.ask(heartbeat("me", "CG", subscription("orders")))
        autojump_clock.jump(5)
        assert await lags(broker) == [2, 5000, 0, 0, 0]
        broker.core.offsets.note_pulled("CG", "orders", 0, 2)
        assert await lags(broker) == [2, 5000, 1, 5000, 1]
        await peer.send("orders", b"2", queue_id=1)
        broker.core.offsets.commit("CG", "orders", 1, 0)
        autojump_clock.jump(1)
        assert (await lags(broker))[0] == 4
        found = samples(await page(broker))["rocketmq_sdk_queue_lag_messages"]
        assert found == {("CG", "0", "orders"): 2, ("CG", "1", "orders"): 2}


async def test_a_group_that_pops(autojump_clock: MockClock) -> None:
    async with open_broker(metrics=0) as (broker, peer):
        popper = Popper(peer, "orders", "CG")
        for number in range(4):
            await peer.send("orders", b"%d" % number)
        beat = heartbeat("me", "CG", subscription("orders"))
        beat.body = beat.body.replace(
            ConsumeType.CONSUME_PASSIVELY.value.encode(), ConsumeType.CONSUME_POP.value.encode()
        )
        await peer.ask(beat)
        first = await popper.pop(queue_id=0, max_msg_nums=3)
        assert len(first.messages) == 3
        autojump_clock.jump(2)
        assert await lags(broker) == [4, 2000, 3, 2000, 1]
        await popper.ack(first.handles[0])
        assert (await lags(broker))[:3] == [3, 2000, 2]
        assert await lags(broker, ("CG", "true", "false", "orders")) == [0, 0, 0, 0, 0]


async def test_only_the_queues_most_behind_are_told_one_by_one(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "QUEUES_SHOWN", 2)
    async with open_broker(metrics=0, default_topic_queue_nums=4) as (broker, peer):
        for queue_id, number in ((0, 1), (1, 3), (2, 2)):
            for _ in range(number):
                await peer.send("orders", b"1", queue_id=queue_id)
            broker.core.offsets.commit("CG", "orders", queue_id, 0)
        await peer.ask(heartbeat("me", "CG", subscription("orders")))
        found = samples(await page(broker))
        assert found["rocketmq_sdk_queue_lag_messages"] == {
            ("CG", "1", "orders"): 3,
            ("CG", "2", "orders"): 2,
        }
        assert found["rocketmq_consumer_lag_messages"][KEY] == 6
