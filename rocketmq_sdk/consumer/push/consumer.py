"""`PushConsumer`: messages come to a listener.

Follows `DefaultMQPushConsumer` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal, Unpack, overload

import attrs

from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.consumer.config import PUSH_OPTIONS, PushConfig, PushOptions
from rocketmq_sdk.consumer.constructor_arguments import (
    ConstructorArguments,
    Subscription,
    checked_expression,
    checked_subscriptions,
)
from rocketmq_sdk.consumer.health import ConsumerHealth
from rocketmq_sdk.consumer.listener import LISTENER_REMEDY
from rocketmq_sdk.consumer.push.member import PushMember
from rocketmq_sdk.consumer.statistics import ConsumerStatistics
from rocketmq_sdk.errors import ClosedError, ConfigurationError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.validators import check_callable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from rocketmq_sdk.client.config import NamesrvSource
    from rocketmq_sdk.client.queries import MessageQueries
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.listener import BatchListener, Listener, MessageListener
    from rocketmq_sdk.model.queue import MessageQueue

BROADCAST_INSTANCE: Final = "DEFAULT"
"""The instance name of broadcasting consumers.

It keeps the client id, and with it the place of the offsets, the same after a restart.
"""


class PushConsumer(RunsOnce):
    """A member of a consumer group that hands each message to a listener.

    ```
    subscriptions = {"orders": "paid || refunded"}
    async with PushConsumer(
        "billing", namesrv=..., subscriptions=subscriptions, listener=on_order
    ):
        ...
    ```

    `listener` takes one message (with `batch` above 1 a list). It is an async function,
    or a plain one that runs in a worker thread. Returning None means done; returning
    anything else ends the consumer with `ConfigurationError`, except a
    `ConsumeOrderlyStatus` with `auto_commit=False`. An exception means later,
    after a delay that grows with each attempt, and in the end the dead letter topic;
    `ConsumeLater` and `RejectMessage` choose. A message may be delivered more
    than once. A listener that runs longer than `consume_timeout` is cancelled (a thread
    goes on, its result ignored) and its message is sent back. Give `namesrv`, or a
    `Client` to share as `client`; all other settings are in `PushConfig` and
    `ClientConfig`.

    Entering the block returns when brokers know the member and it has its first queues,
    or after three seconds. Leaving it stops pulling, lets running listeners finish for
    up to 8 seconds, commits and unregisters, in 10 seconds at most. Leaving it by an
    exception or cancellation cancels the listeners and takes at most 2. Only a listener
    that shields itself from cancellation or blocks the event loop can outlast that: a
    task cannot be abandoned, so the block ends when it does. What was not consumed is
    delivered again to the next owner of the queue.

    Raises `ConfigurationError` for settings that are not acceptable. A failure in the
    background cancels the block and is raised from it as one `RocketMQError`.
    """

    _second_time = "a consumer runs once; make a new one"

    @overload
    def __init__(
        self,
        group: str,
        *,
        subscriptions: Mapping[str, Subscription],
        listener: MessageListener,
        batch: Literal[1] = 1,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[PushOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        group: str,
        *,
        subscriptions: Mapping[str, Subscription],
        listener: BatchListener,
        batch: int,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[PushOptions],
    ) -> None: ...

    def __init__(
        self,
        group: str,
        *,
        subscriptions: Mapping[str, Subscription],
        listener: Listener,
        batch: int = 1,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[PushOptions],
    ) -> None:
        if options.get("message_model") is MessageModel.BROADCASTING and client is None:
            options.setdefault("instance_name", BROADCAST_INSTANCE)
        arguments = ConstructorArguments(
            "PushConsumer", group, PUSH_OPTIONS, options, namesrv, client
        )
        check_callable("the listener", listener, LISTENER_REMEDY)
        self.group = group
        self.config = PushConfig(batch=batch, **arguments.own)
        self._listener = listener
        self._arguments = arguments
        self._wanted = arguments.client.namespace.wrap_keys(checked_subscriptions(subscriptions))
        self._member: PushMember | None = None
        self._running = False

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        self._member = member = PushMember(
            self._arguments.client,
            self._arguments.group,
            self.config,
            self._wanted,
            self._listener,
            own_client=self._arguments.own_client,
        )
        async with open_quiet_nursery() as nursery, member.started(nursery):
            self._running = True
            member.opened()
            try:
                yield
            finally:
                self._running = False
                member.closed()

    @property
    def messages(self) -> MessageQueries:
        """Queries for stored messages: by id, key, tag, place and time."""
        return self._arguments.client.messages

    def statistics(self) -> ConsumerStatistics:
        """What the consumer owns, holds and has done, its lag and its rates."""
        self.check_run()
        if self._member is None:
            return ConsumerStatistics()
        return self._member.statistics()

    def health(self) -> ConsumerHealth:
        """Whether the consumer is consuming and, if not, why, in plain words.

        Makes no requests: it reports what the consumer knows.
        """
        self.check_run()
        if self._member is None or not self._running:
            state = (
                "is not running: enter it with `async with`"
                if self._member is None
                else "has ended"
            )
            return ConsumerHealth(False, (f"it {state}",))
        return self._member.health()

    def suspend(self) -> None:
        """Stop pulling and taking queues, until `resume`.

        What is cached is still consumed. Owned queues stay owned unless the group
        gives them to another member; no other member gets this one's share of them.
        Raises `ClosedError`.
        """
        self._running_member().suspend()

    def resume(self) -> None:
        """Go on after `suspend`, at once. Raises `ClosedError`."""
        self._running_member().resume()

    async def group_lag(self) -> dict[MessageQueue, int]:
        """How many messages the whole group has not committed yet, by queue.

        Of all queues of the subscribed topics, the retry topic among them, whoever owns
        them; the masters are asked. Raises the error of a broker that cannot be asked,
        `ClosedError`, and `ConfigurationError` for members that broadcast: brokers do
        not know how far each is.
        """
        member = self._running_member()
        if self.config.message_model is MessageModel.BROADCASTING:
            raise ConfigurationError(
                "members that broadcast keep their offsets themselves, so the group has no lag; "
                "statistics() has that of this member"
            )
        return await member.group_lag()

    @checked
    def set_concurrency(self, concurrency: int) -> None:
        """Let so many calls of the listener (1-1000) run at the same time from now on.

        Calls above the number run to their end. Raises `ConfigurationError` for another
        number, and `ClosedError`.
        """
        checked = attrs.evolve(self.config, concurrency=concurrency)
        self._running_member().set_concurrency(checked.concurrency)

    @checked
    async def subscribe(self, topic: str, expression: Subscription = None) -> None:
        """Subscribe to another topic, or to a topic by another expression.

        Returns when brokers know; queues are taken right after. Every member of the
        group must have the same subscriptions. Raises `ConfigurationError` for an
        invalid expression, a broker's error for one that it cannot serve, and
        `ClosedError`. When it is cancelled, brokers may know already; the next
        heartbeat tells them the actual state.
        """
        checked = checked_expression(topic, expression)
        await self._running_member().subscribe(
            self._arguments.client.namespace.wrap(topic), checked
        )

    @checked
    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic.

        What listeners already have is finished and committed, the rest is left to other
        members. Raises `ClosedError`.
        """
        await self._running_member().unsubscribe(self._arguments.client.namespace.wrap(topic))

    def _running_member(self) -> PushMember:
        self.check_run()
        if self._member is None or not self._running:
            raise ClosedError("the consumer is not running; enter it with `async with`")
        return self._member
