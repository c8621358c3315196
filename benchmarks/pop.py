"""Pops and acks at the broker, below any consumer.

`pop(32)` and its acks go over the in-process channel, with and without merging in
memory.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk import EmbeddedBroker
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.client.api.pop import batch_ack_messages, pop_message
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.headers.pop import PopMessageRequestHeader

if TYPE_CHECKING:
    from benchmarks.harness import Report
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel

MESSAGES = 100_000
POPPERS = 8
TOPIC, GROUP = "bench", "benchmark"


class _Client:
    """What typed calls need of a client, over one channel."""

    client_id = "bench"

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def call_broker(
        self,
        _broker_name: str,
        command: Command,
        timeout: float | None = None,
        *,
        broker_id: int = 0,
        any_replica: bool = False,
    ) -> Command:
        del broker_id, any_replica
        return await self._channel.call(command, timeout or 10.0)


async def _pop_all(client: _Client, left: list[int]) -> None:
    while left[0] > 0:
        header = PopMessageRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=32, invisible_time=60_000
        )
        result = await pop_message(client, "broker-a", header, 30.0)  # type: ignore[arg-type]
        if not result.messages:
            return
        left[0] -= len(result.messages)
        await batch_ack_messages(
            client,  # type: ignore[arg-type]
            "broker-a",
            [(TOPIC, GROUP, handle) for handle in result.handles],
        )


async def _measure(path: Path, count: int, *, merge: bool) -> float:
    async with (
        EmbeddedBroker(path, enable_pop_buffer_merge=merge) as broker,
        trio.open_nursery() as connections,
    ):
        broker.core.topics.put(TopicConfig(TOPIC, 8, 8))
        for number in range(count):
            broker.store.put(MessageToStore(TOPIC, number % 8, b"x" * 100))
        clients = [
            _Client(
                await broker.open_channel(
                    broker.core.address(), lambda _channel, _command: None, connections
                )
            )
            for _ in range(POPPERS)
        ]
        left = [count]
        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(_pop_all, client, left)
        took = time.perf_counter() - began
        connections.cancel_scope.cancel()
    return took


def run(report: Report, scale: float) -> None:
    """Pop and acknowledge a backlog, merging off and on."""
    count = max(1000, int(MESSAGES * scale))
    for merge in (False, True):
        with TemporaryDirectory() as path:
            took = trio.run(partial(_measure, Path(path), count, merge=merge))
        report.add(
            f"pop(32) and batch ack at the broker, merge {'on' if merge else 'off'}",
            "messages/s",
            count / took,
        )
