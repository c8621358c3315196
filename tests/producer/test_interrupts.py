"""Ctrl-C while messages are handed over: what was taken is whole, however it came."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.bodies.topics import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.real_time
ROUNDS = 200


@pytest.fixture(autouse=True)
def _alarms_interrupt() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


async def submit_until_interrupted(producer: Producer, seconds: float) -> list[Any]:
    """The handles of all messages that were taken until the interrupt."""
    handles: list[Any] = []
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        while True:
            # One that comes where it must not waits for the next checkpoint.
            await trio.lowlevel.checkpoint()
            for _ in range(100):
                handle = producer.submit(Message("orders", b"body", tags="a"))
                handles.append(handle)
    except KeyboardInterrupt:
        return handles


@pytest.mark.parametrize("auto_batch", [None, True])
def test_interrupts_leave_no_message_half_taken(auto_batch: bool | None) -> None:
    async def main() -> None:
        chance = random.Random(7)
        async with (
            EmbeddedBroker() as broker,
            Producer("PG", namesrv=broker, auto_batch=auto_batch) as producer,
        ):
            broker.core.topics.put(TopicConfig("orders", 1, 1))
            least = most = 0
            for _ in range(ROUNDS):
                handles = await submit_until_interrupted(producer, chance.uniform(1e-5, 2e-3))
                await producer.flush()
                offsets = [handle.outcome().queue_offset for handle in handles]
                assert offsets == sorted(set(offsets))
                # The message that was interrupted may be taken without a handle.
                least, most = least + len(handles), most + len(handles) + 1
                assert (producer._under_way.count, producer._under_way.bytes) == (0, 0)
                assert least <= broker.store.max_offset("orders", 0) <= most
                least = max(least, broker.store.max_offset("orders", 0))
            assert least > ROUNDS

    trio.run(main)
