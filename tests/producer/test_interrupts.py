"""Ctrl-C while messages are handed over: what was taken is whole, however it came.

An interrupt comes at each line that runs meanwhile, one after the other.
"""

from __future__ import annotations

import signal
import sys
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.config import AutoBatch
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.bodies.topics import TopicConfig

if TYPE_CHECKING:
    from types import FrameType

MESSAGES = 5


class Interrupt:
    """Traces lines, and interrupts at one of them."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __call__(self, _frame: FrameType, event: str, _argument: object) -> Interrupt:
        if event == "line":
            self._left -= 1
            if self._left == 0:
                signal.raise_signal(signal.SIGINT)
        return self

    @property
    def came(self) -> bool:
        return self._left <= 0


async def submit_interrupted(producer: Producer, interrupt: Interrupt) -> list[Any]:
    """The handles of the messages that were taken until the interrupt."""
    handles: list[Any] = []
    before = sys.gettrace()
    try:
        sys.settrace(interrupt)
        try:
            for _ in range(MESSAGES):
                handle = producer.submit(Message("orders", b"body", tags="a"))
                handles.append(handle)
        finally:
            sys.settrace(before)
        await trio.lowlevel.checkpoint()  # where one comes that had to wait
    except KeyboardInterrupt:
        pass
    return handles


@pytest.mark.parametrize("auto_batch", [None, AutoBatch(max_bytes=400)])
def test_interrupts_leave_no_message_half_taken(auto_batch: AutoBatch | None) -> None:
    async def main() -> None:
        async with (
            EmbeddedBroker() as broker,
            Producer("PG", namesrv=broker, auto_batch=auto_batch) as producer,
        ):
            broker.core.topics.put(TopicConfig("orders", 1, 1))
            await producer.send(Message("orders", b"first"))
            stored = 1
            for line in count(1):
                interrupt = Interrupt(line)
                handles = await submit_interrupted(producer, interrupt)
                await producer.flush()
                offsets = [handle.outcome().queue_offset for handle in handles]
                assert offsets == sorted({*offsets})
                assert (producer._under_way.count, producer._under_way.bytes) == (0, 0)
                # The one that was interrupted may have been taken; its handle was lost.
                added = broker.store.max_offset("orders", 0) - stored
                assert len(handles) <= added <= len(handles) + 1
                stored += added
                if not interrupt.came:
                    break
            assert line > 40
            assert len(handles) == MESSAGES

    trio.run(main)
