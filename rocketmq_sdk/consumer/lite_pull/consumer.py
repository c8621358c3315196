"""`LitePullConsumer`: the program polls prefetched messages.

Follows `DefaultLitePullConsumer` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, Unpack

import trio
from trio.lowlevel import current_clock

from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.client.observers import Operation, OperationKind, installed, observed
from rocketmq_sdk.consumer.config import LITE_PULL_OPTIONS, LitePullConfig, LitePullOptions
from rocketmq_sdk.consumer.constructor_arguments import (
    ConstructorArguments,
    Subscription,
    checked_expression,
    checked_subscriptions,
)
from rocketmq_sdk.consumer.health import ConsumerHealth
from rocketmq_sdk.consumer.hooks import address_of_all
from rocketmq_sdk.consumer.lite_pull.member import ChangeListener, LitePullMember
from rocketmq_sdk.consumer.lite_pull.queue_queries import QueueQueries
from rocketmq_sdk.errors import ClosedError, ConfigurationError, WrongTypeError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.validators import check_callable, to_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping
    from datetime import datetime, timedelta

    from rocketmq_sdk.client.config import NamesrvSource
    from rocketmq_sdk.client.queries import MessageQueries
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.lite_pull.poll_service import PollService
    from rocketmq_sdk.consumer.statistics import ConsumerStatistics
    from rocketmq_sdk.model.queue import MessageQueue


class LitePullConsumer(QueueQueries, RunsOnce):
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

    _second_time = "a consumer runs once; make a new one"

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
        arguments = ConstructorArguments(
            "LitePullConsumer", group, LITE_PULL_OPTIONS, options, namesrv, client
        )
        if on_assignment_change is not None:
            check_callable(
                "on_assignment_change",
                on_assignment_change,
                "give a function of an AssignmentChange",
            )
        if subscriptions is not None and expressions is not None:
            raise ConfigurationError(
                "subscriptions have their expressions with them; expressions= is for queues "
                "chosen by assign()"
            )
        self.group = group
        self.config = LitePullConfig(**arguments.own)
        self._client = arguments.client
        namespace = arguments.client.namespace
        wanted = (
            None
            if subscriptions is None
            else namespace.wrap_keys(checked_subscriptions(subscriptions))
        )
        chosen = namespace.wrap_keys(
            {topic: checked_expression(topic, wish) for topic, wish in (expressions or {}).items()}
        )
        self._member = LitePullMember(
            arguments.client,
            arguments.group,
            self.config,
            wanted,
            chosen,
            on_assignment_change,
            own_client=arguments.own_client,
        )
        self._offsets = self._member.offsets
        self._observers = installed()
        self._running = False

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        async with open_quiet_nursery() as nursery, self._member.started(nursery):
            self._running = True
            try:
                yield
            finally:
                self._running = False

    def _check_running(self) -> None:
        self.check_run()
        if not self._running:
            raise ClosedError("the consumer is not running; use it inside its `async with` block")

    # -- messages

    @checked
    async def poll(
        self, timeout: float | timedelta | None = None, *, max_messages: int | None = None
    ) -> list[ReceivedMessage]:
        """Return cached messages, or the first that arrive within `timeout`.

        The list is empty when none do. `timeout` is by default `poll_timeout`,
        `max_messages` `pull_batch_size`. The messages may be of several queues, in the
        order of each. Cancelling it loses nothing. Raises `ClosedError` outside of the
        block.
        """
        most, seconds = self.poll_limits(timeout, max_messages)
        deadline = trio.current_time() + seconds
        if not self._observers:
            return await self._member.service.poll(most, deadline)
        polling = Operation(OperationKind.RECEIVE, self.group, None, self._client.client_id)
        with observed(self._observers, polling):
            polling.messages = messages = await self._member.service.poll(most, deadline)
            topics = {message.topic for message in messages}
            polling.topic = topics.pop() if len(topics) == 1 else None
            polling.address = address_of_all(messages, self._client.broker_address)
        return messages

    def poll_limits(
        self, timeout: float | timedelta | None, max_messages: int | None
    ) -> tuple[int, float]:
        """How many messages a poll takes at most, and how many seconds it waits."""
        self._check_running()
        most = self.config.pull_batch_size if max_messages is None else max_messages
        if most < 1:
            raise ConfigurationError(f"max_messages is {max_messages!r}; it must be at least 1")
        return most, self.config.poll_timeout if timeout is None else to_seconds(timeout)

    @property
    def poll_service(self) -> PollService:
        """Who hands out messages, also to doors, whose users wait outside of trio."""
        return self._member.service

    def done(self, *messages: ReceivedMessage) -> None:
        """Say that polled messages are done: their offsets may be committed.

        May be called in any order, from any task of the same `trio.run`, also while
        other messages of the queue are not done; a second time has no effect. Nor has
        it for a message from before a seek in its queue, or whose queue has gone to
        another member, who gets the message as well. Raises `ConfigurationError` with
        `polled_is_done`, and for anything that is no message.
        """
        if self.config.polled_is_done:
            raise ConfigurationError(
                "with polled_is_done the messages of a poll are done when their task polls again; "
                "make the consumer without it to say it of each message"
            )
        self.check_run()
        for message in messages:
            if not isinstance(message, ReceivedMessage):
                raise WrongTypeError(
                    f"done({message!r:.200}) names no ReceivedMessage; give the messages "
                    "themselves, several as done(*messages)"
                )
        self._member.service.done(messages)

    def __aiter__(self) -> Self:
        """Poll for ever, one message at a time."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        try:
            here = current_clock()
        except RuntimeError:
            here = None
        if not self._running or here is not self._run_clock:
            self.check_run()
            raise StopAsyncIteration
        return (await self._member.service.poll(1, float("inf")))[0]

    # -- queues

    @checked
    async def subscribe(self, topic: str, expression: Subscription = None) -> None:
        """Subscribe to another topic, or to a topic by another expression.

        Returns when brokers know. Only for a consumer with subscriptions. Raises
        `ConfigurationError`, a broker's error for an expression that it cannot serve,
        and `ClosedError`.
        """
        self._check_running()
        self._member.check_shared()
        await self._member.subscribe(
            self._client.namespace.wrap(topic), checked_expression(topic, expression)
        )

    @checked
    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic.

        Its polled messages are committed once they are done, within `revoke_grace`.
        Raises `ClosedError`.
        """
        self._check_running()
        await self._member.unsubscribe(self._client.namespace.wrap(topic))

    @checked
    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read exactly these queues from now on.

        Queues that stay go on where they are, others begin at the group's committed
        offset. Only for a consumer without subscriptions. Returns when the queues are
        taken, or cannot be yet because their broker is away; those are tried again
        every second. Raises `ConfigurationError`, and `RouteError` when a topic is not
        known.
        """
        self._check_running()
        wrap = self._client.namespace.wrap_queue
        await self._member.assign([wrap(queue) for queue in queues])

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that the consumer reads now."""
        self.check_run()
        return self._member.assignment()

    @checked
    def pause(self, *queues: MessageQueue) -> None:
        """Neither pull nor hand out messages of these queues until `resume`.

        What is prefetched is kept. The pause ends when a queue is revoked. Raises
        `ConfigurationError` for a queue that is not assigned.
        """
        self.check_run()
        named = self._owned(queues)
        for queue in named:
            self._member.pause(queue)

    @checked
    def resume(self, *queues: MessageQueue) -> None:
        """Resume paused queues.

        Raises `ConfigurationError` for a queue that is not assigned.
        """
        self.check_run()
        named = self._owned(queues)
        for queue in named:
            self._member.resume(queue)

    def _owned(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Owned queues as brokers name them. Raises `ConfigurationError` for others."""
        named = [self._client.namespace.wrap_queue(queue) for queue in queues]
        for queue in named:
            self._member.owned(queue)
        return named

    @checked
    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll returns; filtered messages count.

        Raises `ConfigurationError` for a queue that is not assigned.
        """
        self.check_run()
        return self._member.position(self._client.namespace.wrap_queue(queue))

    @checked
    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next poll of a queue begin at an offset.

        Prefetched messages of the queue are dropped, and what was polled of it before
        does not count any more: the seek says where the group is. Raises
        `ConfigurationError` for a queue that is not assigned or an offset outside of
        the queue, and the broker's errors.
        """
        self._check_running()
        await self._member.seek(self._client.namespace.wrap_queue(queue), offset)

    @checked
    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Seek to the first message that is still stored."""
        await self.seek(queue, await self.begin_offset(queue))

    @checked
    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Seek to the end, after the last message."""
        await self.seek(queue, await self.end_offset(queue))

    @checked
    async def seek_to_timestamp(self, queue: MessageQueue, moment: datetime | int) -> None:
        """Seek to the message stored at a moment, otherwise the next one.

        `moment` is an aware datetime or epoch milliseconds.
        """
        await self.seek(queue, await self.offset_for_timestamp(queue, moment))

    # -- offsets

    async def group_lag(self) -> dict[MessageQueue, int]:
        """How many messages the whole group has not committed yet, by queue.

        Of all queues of the subscribed topics, whoever owns them; the masters are
        asked. Raises the error of a broker that cannot be asked, and `ClosedError`.
        """
        self._check_running()
        return await self._member.group_lag()

    @checked
    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what is done, or the given offsets, and wait for the brokers.

        What is done up to the first message of a queue that is not; with
        `polled_is_done`, all that was polled. An offset is that of the next message to
        consume. Raises the error of a broker that did not confirm, after all brokers
        were asked.
        """
        self._check_running()
        if offsets is None:
            await self._member.commit()
        else:
            wrap = self._client.namespace.wrap_queue
            await self._member.write({wrap(queue): offset for queue, offset in offsets.items()})

    @property
    def messages(self) -> MessageQueries:
        """Queries for stored messages: by id, key, tag, place and time."""
        return self._client.messages

    def statistics(self) -> ConsumerStatistics:
        """What the consumer owns, holds and has handed out, its lag and its rates.

        Messages that were handed out are counted as `consumed`.
        """
        self.check_run()
        return self._member.statistics()

    def health(self) -> ConsumerHealth:
        """Whether polls get messages and, if not, why, in plain words.

        Makes no requests: it reports what the consumer knows.
        """
        self.check_run()
        if not self._running:
            return ConsumerHealth(
                False, ("it is not running: use it inside its `async with` block",)
            )
        return self._member.health()
