"""Dead letters: what groups gave up, and how it gets another chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.client.api.send import send_dead_letter_again
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.errors import NotFoundError, RouteError
from rocketmq_sdk.names import DLQ_PREFIX, dead_letter_topic, retry_topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.admin.messages import Messages
    from rocketmq_sdk.admin.topics import Topics
    from rocketmq_sdk.client.queries import Moment
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.model.received import ReceivedMessage


@attrs.frozen
class DeadLetterTopic:
    """The dead letters of one group: how many there are, and when the last one came."""

    group: str
    messages: int
    last_store_time: int
    """Epoch milliseconds; 0 when there is none."""


class DeadLetters:
    """Messages that groups gave up after their last try.

    `timeout` is seconds for each request; None means the client's `api_timeout`.
    """

    def __init__(self, client: Client, topics: Topics, messages: Messages) -> None:
        self._client = client
        self._topics = topics
        self._messages = messages

    @checked
    async def topics(self, *, timeout: float | None = None) -> list[DeadLetterTopic]:
        """The groups that have a dead letter topic, by name, with what is in it."""
        found = []
        for topic in await self._topics.names(system=True, timeout=timeout):
            if topic.startswith(DLQ_PREFIX):
                ends = (await self._topics.offsets(topic, timeout=timeout)).values()
                found.append(
                    DeadLetterTopic(
                        topic.removeprefix(DLQ_PREFIX),
                        sum(each.max_offset - each.min_offset for each in ends),
                        max((each.last_update_timestamp for each in ends), default=0),
                    )
                )
        return found

    @checked
    async def of(
        self,
        group: str,
        *,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> AsyncIterator[ReceivedMessage]:
        """The dead letters of a group, in the order in which they were given up.

        `begin` and `end` are store times. Raises `TopicNotFoundError` when the group
        never gave up a message, `RouteError` when its topic may not be read: brokers
        before 5.0 make it for writing only, and `topics.create(topic, queues=1,
        perm=6)` opens it.
        """
        topic = dead_letter_topic(group)
        route = await self._topics.route(topic, timeout=timeout)
        if not route.subscribe_queues(topic):
            raise RouteError(
                f"the topic {topic} may not be read; set its perm to 6, for example with "
                f"updateTopicPerm -t {topic} -p 6"
            )
        async for message in self._messages.in_time(topic, begin, end, timeout=timeout):
            yield message

    @checked
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
        topic = retry_topic(self._client.namespace.wrap(group))
        queues = (await self._client.route(topic)).publish_queues(topic)
        if not queues:
            raise RouteError(f"no queue of {topic} takes messages")
        # Its own broker if that one can be asked, so that a group on two brokers gets
        # its messages where they were.
        queue = min(queues, key=lambda each: each.broker_name != message.broker_name)
        await send_dead_letter_again(
            self._client,
            queue,
            message,
            born_timestamp=self._client.clock.now_ms(),
            timeout=timeout,
        )

    @checked
    async def purge(self, group: str, *, timeout: float | None = None) -> int:
        """Delete a group's dead letters, with their topic, at every broker.

        Returns how many there were. Brokers make the topic again with the next dead
        letter. Raises `NotFoundError` when there is no such topic.
        """
        topic = dead_letter_topic(group)
        if not await self._topics.exists(topic, timeout=timeout):
            raise NotFoundError(
                22, f"the group {group!r} has no dead letters; no name server knows {topic}"
            )
        ends = (await self._topics.offsets(topic, timeout=timeout)).values()
        await self._topics.delete(topic, timeout=timeout)
        return sum(each.max_offset - each.min_offset for each in ends)
