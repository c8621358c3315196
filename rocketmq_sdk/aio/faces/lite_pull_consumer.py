"""`LitePullConsumer` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.consumer.lite_pull.consumer`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.aio.faces.queries import MessageQueries
from rocketmq_sdk.aio.faces.queue_queries import QueueQueries
from rocketmq_sdk.aio.life import Entered, inner_client
from rocketmq_sdk.aio.polling import poll, polled_by_task
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer as InnerLitePullConsumer
from rocketmq_sdk.doors.face import inner_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime, timedelta
    from typing import Self, Unpack

    from rocketmq_sdk.aio.arguments import NamesrvSource
    from rocketmq_sdk.aio.faces.client import Client
    from rocketmq_sdk.consumer.config import LitePullConfig, LitePullOptions
    from rocketmq_sdk.consumer.constructor_arguments import Subscription
    from rocketmq_sdk.consumer.health import ConsumerHealth
    from rocketmq_sdk.consumer.lite_pull.member import ChangeListener
    from rocketmq_sdk.consumer.statistics import ConsumerStatistics
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage


class LitePullConsumer(QueueQueries, Entered):
    """A consumer whose program polls messages that are prefetched in the background.

    ```
    async with LitePullConsumer(
        "billing", namesrv=..., subscriptions={"orders": "*"}
    ) as consumer:
        async for message in consumer:
            ...
            consumer.done(message)
    ```

    With `subscriptions` the members of the group share the queues of the topics.
    Without, the program chooses queues by `assign`, filtered by the `expressions` of
    their topics. A failure to process a message is up to the program: there are no
    retries and no dead letter topic.

    A message is done when `done(message)` says so, in whatever task and order. What is
    done, up to the first message of a queue that is not, is committed every
    `auto_commit_interval`, and when the block is left. Without `auto_commit`, only
    `commit` commits. A message may come more than once: what was not committed is
    delivered again to the next owner of the queue.

    With `polled_is_done` nothing is said of messages: those of a poll (in `async for`,
    each message) are done when the same task polls again, or when the block is left
    without an error; without `auto_commit`, when the program commits. It is for
    programs whose tasks process what they poll before they poll again. One that hands
    messages on to other tasks would lose them when it fails. Any number of tasks may
    poll.

    `on_assignment_change` is called with an `AssignmentChange`, one change after
    another (an async function is awaited), but not at the end of the block. Entering
    and leaving take as long as for a `PushConsumer`.

    Raises `ConfigurationError` for settings that are not acceptable. A failure in the
    background cancels the block and is raised from it as one `RocketMQError`.
    """

    _inner: InnerLitePullConsumer

    def __init__(
        self,
        group: str,
        *,
        subscriptions: Mapping[str, Subscription] | None = None,
        expressions: Mapping[str, Subscription] | None = None,
        on_assignment_change: ChangeListener | None = None,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[LitePullOptions],
    ) -> None:
        self._inner = InnerLitePullConsumer(
            group,
            subscriptions=subscriptions,
            expressions=expressions,
            on_assignment_change=self._change_listener_in_loop(on_assignment_change),
            namesrv=inner_of(namesrv),
            client=inner_client(client),
            **options,
        )

    @property
    def group(self) -> str:
        """The group, as it was given."""
        return self._inner.group

    @property
    def config(self) -> LitePullConfig:
        """The settings."""
        return self._inner.config

    async def poll(
        self, timeout: float | timedelta | None = None, *, max_messages: int | None = None
    ) -> list[ReceivedMessage]:
        """Return cached messages, or the first that arrive within `timeout`.

        The list is empty when none do. `timeout` is by default `poll_timeout`,
        `max_messages` `pull_batch_size`. The messages may be of several queues, in the
        order of each. Cancelling it loses nothing. Raises `ClosedError` outside of the
        block.
        """
        return await poll(self, self._inner, timeout, max_messages)

    def done(self, *messages: ReceivedMessage) -> None:
        """Say that polled messages are done: their offsets may be committed.

        May be called in any order, from any task of the same event loop, also while
        other messages of the queue are not done; a second time has no effect. Nor has
        it for a message from before a seek in its queue, or whose queue has gone to
        another member, who gets the message as well. Raises `ConfigurationError` with
        `polled_is_done`, and for anything that is no message.
        """
        return self._call_now(self._inner.done, *messages)

    def __aiter__(self) -> Self:
        """Poll for ever, one message at a time."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        return await polled_by_task(self, self._inner)

    async def subscribe(self, topic: str, expression: Subscription = None) -> None:
        """Subscribe to another topic, or to a topic by another expression.

        Returns when brokers know. Only for a consumer with subscriptions. Raises
        `ConfigurationError`, a broker's error for an expression that it cannot serve,
        and `ClosedError`.
        """
        return await self._call(self._inner.subscribe, topic, expression)

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic.

        Its polled messages are committed once they are done, within `revoke_grace`.
        Raises `ClosedError`.
        """
        return await self._call(self._inner.unsubscribe, topic)

    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read exactly these queues from now on.

        Queues that stay go on where they are, others begin at the group's committed
        offset. Only for a consumer without subscriptions. Returns when the queues are
        taken, or cannot be yet because their broker is away; those are tried again
        every second. Raises `ConfigurationError`, and `RouteError` when a topic is not
        known.
        """
        return await self._call(self._inner.assign, queues)

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that the consumer reads now."""
        return self._call_now(self._inner.assignment)

    def pause(self, *queues: MessageQueue) -> None:
        """Neither pull nor hand out messages of these queues until `resume`.

        What is prefetched is kept. The pause ends when a queue is revoked. Raises
        `ConfigurationError` for a queue that is not assigned.
        """
        return self._call_now(self._inner.pause, *queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Resume paused queues.

        Raises `ConfigurationError` for a queue that is not assigned.
        """
        return self._call_now(self._inner.resume, *queues)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll returns; filtered messages count.

        Raises `ConfigurationError` for a queue that is not assigned.
        """
        return self._call_now(self._inner.position, queue)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next poll of a queue begin at an offset.

        Prefetched messages of the queue are dropped, and what was polled of it before
        does not count any more: the seek says where the group is. Raises
        `ConfigurationError` for a queue that is not assigned or an offset outside of
        the queue, and the broker's errors.
        """
        return await self._call(self._inner.seek, queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Seek to the first message that is still stored."""
        return await self._call(self._inner.seek_to_begin, queue)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Seek to the end, after the last message."""
        return await self._call(self._inner.seek_to_end, queue)

    async def seek_to_timestamp(self, queue: MessageQueue, moment: datetime | int) -> None:
        """Seek to the message stored at a moment, otherwise the next one.

        `moment` is an aware datetime or epoch milliseconds.
        """
        return await self._call(self._inner.seek_to_timestamp, queue, moment)

    async def group_lag(self) -> dict[MessageQueue, int]:
        """How many messages the whole group has not committed yet, by queue.

        Of all queues of the subscribed topics, whoever owns them; the masters are
        asked. Raises the error of a broker that cannot be asked, and `ClosedError`.
        """
        return await self._call(self._inner.group_lag)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what is done, or the given offsets, and wait for the brokers.

        What is done up to the first message of a queue that is not; with
        `polled_is_done`, all that was polled. An offset is that of the next message to
        consume. Raises the error of a broker that did not confirm, after all brokers
        were asked.
        """
        return await self._call(self._inner.commit, offsets)

    @property
    def messages(self) -> MessageQueries:
        """Queries for stored messages: by id, key, tag, place and time."""
        return self._adopt(MessageQueries(self._inner.messages))

    def statistics(self) -> ConsumerStatistics:
        """What the consumer owns, holds and has handed out, its lag and its rates.

        Messages that were handed out are counted as `consumed`.
        """
        return self._call_now(self._inner.statistics)

    def health(self) -> ConsumerHealth:
        """Whether polls get messages and, if not, why, in plain words.

        Makes no requests: it reports what the consumer knows.
        """
        return self._call_now(self._inner.health)
