"""`MessageQueries` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.client.queries`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.aio.life import Face, Stream
from rocketmq_sdk.client.api.queries import QUERY_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.client.queries import MessageQueries as InnerMessageQueries
    from rocketmq_sdk.client.queries import Moment
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage


class MessageQueries(Face):
    """Questions about stored messages, over a running client.

    What is found is sorted by store time.

    All may raise `RouteError` when nobody knows the topic, `ConnectError` and
    `RequestTimeoutError` when a broker cannot be asked, and `BrokerError`; a broker
    that fails makes the whole question fail, so that an answer is never silently a part
    of the truth.
    """

    _inner: InnerMessageQueries

    async def by_offset_id(
        self, offset_id: str, *, topic: str | None = None, timeout: float | None = None
    ) -> ReceivedMessage:
        """The message that an offset id names, by the broker in the id.

        With `topic` the brokers of its route are asked instead when none of them has
        the id's address, for brokers that are reached by another one. Raises
        `NotFoundError` when no broker has it, `ConfigurationError` when the text is no
        offset id.
        """
        return await self._call(self._inner.by_offset_id, offset_id, topic=topic, timeout=timeout)

    async def by_unique_id(
        self,
        topic: str,
        unique_id: str,
        *,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> ReceivedMessage:
        """The message with a producer's unique id.

        When there are several, as after a send that was tried twice, the one stored
        first.

        Raises `NotFoundError`.
        """
        return await self._call(
            self._inner.by_unique_id, topic, unique_id, begin=begin, end=end, timeout=timeout
        )

    async def by_id(
        self, topic: str, message_id: str, *, timeout: float | None = None
    ) -> ReceivedMessage:
        """The message that either kind of id names.

        Raises `NotFoundError`. Follows `DefaultMQAdminExtImpl.viewMessage`.
        """
        return await self._call(self._inner.by_id, topic, message_id, timeout=timeout)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        limit: int = QUERY_MAX,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> list[ReceivedMessage]:
        """Messages with a key, or a unique id, stored within a time.

        At most `limit`, the newest of each broker.
        """
        return await self._call(
            self._inner.by_key, topic, key, limit=limit, begin=begin, end=end, timeout=timeout
        )

    async def by_tag(
        self,
        topic: str,
        tag: str,
        *,
        limit: int = QUERY_MAX,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> list[ReceivedMessage]:
        """Messages with a tag, stored within a time.

        At most `limit`, the newest of each broker. Brokers before 5.4 find none.
        """
        return await self._call(
            self._inner.by_tag, topic, tag, limit=limit, begin=begin, end=end, timeout=timeout
        )

    async def copies(
        self, topic: str, unique_id: str, stored_in: str, *, timeout: float | None = None
    ) -> list[ReceivedMessage]:
        """The copies of a message that the brokers of its topic keep in another topic.

        There it waited, was retried, or ended.
        """
        return await self._call(self._inner.copies, topic, unique_id, stored_in, timeout=timeout)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic."""
        return await self._call(self._inner.queues, topic)

    async def at(
        self, queue: MessageQueue, offset: int, *, timeout: float | None = None
    ) -> ReceivedMessage:
        """The message at an offset of a queue.

        Raises `NotFoundError` when there is none.
        """
        return await self._call(self._inner.at, queue, offset, timeout=timeout)

    async def from_offset(
        self, queue: MessageQueue, offset: int, count: int, *, timeout: float | None = None
    ) -> list[ReceivedMessage]:
        """At most `count` messages of a queue from an offset on, in order.

        Fewer at the end of the queue.
        """
        return await self._call(self._inner.from_offset, queue, offset, count, timeout=timeout)

    def in_time(
        self, topic: str, begin: Moment, end: Moment = None, *, timeout: float | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """All messages of a topic stored between two moments, in order of store time.

        Both moments are included.

        Reads as far as the iteration goes. What is stored after it began may be left
        out.
        """
        return Stream(self, lambda: self._inner.in_time(topic, begin, end, timeout=timeout))
