"""`DeadLetters` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.admin.dead_letters`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.aio.life import Face, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.admin.dead_letters import DeadLetters as InnerDeadLetters
    from rocketmq_sdk.admin.dead_letters import DeadLetterTopic
    from rocketmq_sdk.client.queries import Moment
    from rocketmq_sdk.model.received import ReceivedMessage


class DeadLetters(Face):
    """Messages that groups gave up after their last try.

    `timeout` is seconds for each request; None means the client's `api_timeout`.
    """

    _inner: InnerDeadLetters

    async def topics(self, *, timeout: float | None = None) -> list[DeadLetterTopic]:
        """The groups that have a dead letter topic, by name, with what is in it."""
        return await self._call(self._inner.topics, timeout=timeout)

    def of(
        self, group: str, *, begin: Moment = None, end: Moment = None, timeout: float | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """The dead letters of a group, in the order in which they were given up.

        `begin` and `end` are store times. Raises `TopicNotFoundError` when the group
        never gave up a message, `RouteError` when its topic may not be read: brokers
        before 5.0 make it for writing only, and `topics.create(topic, queues=1,
        perm=6)` opens it.
        """
        return Stream(self, lambda: self._inner.of(group, begin=begin, end=end, timeout=timeout))

    async def resend(
        self, message: ReceivedMessage, group: str, *, timeout: float | None = None
    ) -> None:
        """Give a group another try at one of its dead letters.

        The message goes to the group's retry topic, so that this group alone gets it,
        at once, with its keys, tags, id and properties, and as many tries as a new
        message has. The dead letter stays where it is. Raises `RouteError` when the
        group has no retry topic: brokers make it when the first consumer of the group
        comes. Raises the broker's error unless the message was stored; after a
        `RequestTimeoutError` it may be stored all the same.
        """
        return await self._call(self._inner.resend, message, group, timeout=timeout)

    async def purge(self, group: str, *, timeout: float | None = None) -> int:
        """Delete a group's dead letters, with their topic, at every broker.

        Returns how many there were. Brokers make the topic again with the next dead
        letter. Raises `NotFoundError` when there is no such topic.
        """
        return await self._call(self._inner.purge, group, timeout=timeout)
