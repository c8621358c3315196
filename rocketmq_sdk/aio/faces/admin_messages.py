"""`Messages` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.admin.messages`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.aio.faces.queries import MessageQueries
from rocketmq_sdk.aio.life import Managed, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from rocketmq_sdk.admin.messages import Messages as InnerMessages
    from rocketmq_sdk.admin.stored_copy import StoredCopy
    from rocketmq_sdk.admin.trace import MessageTrace
    from rocketmq_sdk.admin.track import Track
    from rocketmq_sdk.client.queries import Moment
    from rocketmq_sdk.model.received import ReceivedMessage


class Messages(MessageQueries):
    """Messages of a cluster."""

    _inner: InnerMessages

    async def stored_copies(
        self, topic: str, unique_id: str, *, timeout: float | None = None
    ) -> list[StoredCopy]:
        """Every stored copy of a message in the order in which brokers stored them.

        Delays, timers, halves, itself, retries, dead letters.

        Retries are looked for in the groups that consume the topic now or have offsets
        in it. Empty when nothing is stored under the id.
        """
        return await self._call(self._inner.stored_copies, topic, unique_id, timeout=timeout)

    def follow(
        self, topic: str, *, begin: Moment = None, tags: str = "*", sql: str | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[ReceivedMessage]]:
        """The messages of a topic as they come: `async with ... as messages`.

        Inside, `async for message in messages` gives them, each queue in its order; no
        group is made, nothing is committed. `begin` is a store time (0 for all that is
        stored), None for what comes from now on. `tags` or `sql` (SQL92, where brokers
        allow it) selects. New queues are followed when they appear. A broker that
        cannot be read is tried again, with a warning to the log. Raises `RouteError`
        for a topic that nobody knows, `ConfigurationError` for an expression that no
        broker would serve, `SubscriptionError` when the broker refuses it,
        `NotPermittedError` without permission for the topic and for the group
        TOOLS_CONSUMER.
        """
        return Managed(
            self._running(),
            lambda: self._inner.follow(topic, begin=begin, tags=tags, sql=sql),
            lambda messages: Stream(self, lambda: messages),
        )

    async def trace(
        self,
        message_id: str,
        *,
        topic: str | None = None,
        trace_topic: str | None = None,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> MessageTrace:
        """Everything that is known of one message.

        Its trace records, joined, and the copies that brokers keep of it.

        `topic` is needed only for a message whose producer did not trace. `trace_topic`
        is that of the client's settings unless given; `begin` and `end` are store times
        of trace messages. Raises `NotFoundError` when there is no trace and no copy.
        """
        return await self._call(
            self._inner.trace,
            message_id,
            topic=topic,
            trace_topic=trace_topic,
            begin=begin,
            end=end,
            timeout=timeout,
        )

    async def track(
        self, message: ReceivedMessage, *, timeout: float | None = None
    ) -> dict[str, Track]:
        """Whether each group of the topic has had a message, by its broker."""
        return await self._call(self._inner.track, message, timeout=timeout)

    async def traces(
        self,
        key: str,
        *,
        trace_topic: str | None = None,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> list[MessageTrace]:
        """The traces of all messages with a key, in order of sending.

        They come without stored copies.
        """
        return await self._call(
            self._inner.traces, key, trace_topic=trace_topic, begin=begin, end=end, timeout=timeout
        )
