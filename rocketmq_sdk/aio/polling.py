"""Polls of a `LitePullConsumer` in asyncio.

They take messages in the asyncio task itself, never in a trio task that a cancellation
could part from it: what is taken is returned.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import attrs
import trio

from rocketmq_sdk.aio.run import PASS

if TYPE_CHECKING:
    from datetime import timedelta

    from rocketmq_sdk.aio.life import Face
    from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
    from rocketmq_sdk.model.received import ReceivedMessage


@attrs.frozen
class TaskThatPolls:
    """An asyncio task, as the consumer knows who polls."""

    task: asyncio.Task[object] | None

    def ended(self) -> bool:
        """Whether it will not poll again."""
        return self.task is None or self.task.done()


async def poll(
    face: Face,
    inner: LitePullConsumer,
    timeout: float | timedelta | None,
    max_messages: int | None,
) -> list[ReceivedMessage]:
    """As `LitePullConsumer.poll` of trio."""
    face._running()
    most, seconds = inner.poll_limits(timeout, max_messages)
    return await _poll(face, inner, most, seconds)


async def polled_by_task(face: Face, inner: LitePullConsumer) -> ReceivedMessage:
    """The next message of an iteration."""
    if face._run is None:
        raise StopAsyncIteration
    return (await _poll(face, inner, 1, math.inf))[0]


async def _poll(
    face: Face, inner: LitePullConsumer, most: int, seconds: float
) -> list[ReceivedMessage]:
    service, poller = inner.poll_service, TaskThatPolls(asyncio.current_task())
    service.polls_again(poller)
    if service.gives_way():
        await PASS
    messages = service.take(most, poller)
    if messages or seconds <= 0:
        return messages
    deadline = trio.current_time() + seconds
    while not messages:
        await face._call(service.arrived, deadline)
        messages = service.take(most, poller)
        if trio.current_time() >= deadline:
            break
    return messages
