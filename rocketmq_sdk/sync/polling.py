"""Polls of a `LitePullConsumer` by threads."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import attrs
import trio

if TYPE_CHECKING:
    from datetime import timedelta

    from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.sync.life import Face


@attrs.frozen
class ThreadThatPolls:
    """A thread, as the consumer knows who polls."""

    thread: threading.Thread

    def ended(self) -> bool:
        """Whether it will not poll again."""
        return not self.thread.is_alive()


def poll(
    face: Face,
    inner: LitePullConsumer,
    timeout: float | timedelta | None,
    max_messages: int | None,
) -> list[ReceivedMessage]:
    """As `LitePullConsumer.poll` of trio."""
    poller = ThreadThatPolls(threading.current_thread())

    async def polled() -> list[ReceivedMessage]:
        most, seconds = inner.poll_limits(timeout, max_messages)
        return await inner.poll_service.poll(most, trio.current_time() + seconds, poller)

    return face._running().call(polled)


def polled_by_thread(face: Face, inner: LitePullConsumer) -> ReceivedMessage:
    """The next message of an iteration."""
    if face._run is None:
        raise StopIteration
    poller = ThreadThatPolls(threading.current_thread())
    messages = face._run.call(inner.poll_service.poll, 1, math.inf, poller)
    return messages[0]
