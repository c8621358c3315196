"""`PushConsumer` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.consumer.push.consumer`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from rocketmq_sdk.aio.faces.queries import MessageQueries
from rocketmq_sdk.aio.life import Entered, inner_client
from rocketmq_sdk.consumer.push.consumer import PushConsumer as InnerPushConsumer
from rocketmq_sdk.doors.face import inner_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal, Unpack

    from rocketmq_sdk.aio.arguments import NamesrvSource
    from rocketmq_sdk.aio.faces.client import Client
    from rocketmq_sdk.consumer.config import PushConfig, PushOptions
    from rocketmq_sdk.consumer.constructor_arguments import Subscription
    from rocketmq_sdk.consumer.health import ConsumerHealth
    from rocketmq_sdk.consumer.listener import BatchListener, Listener, MessageListener
    from rocketmq_sdk.consumer.statistics import ConsumerStatistics
    from rocketmq_sdk.model.queue import MessageQueue


class PushConsumer(Entered):
    """A member of a consumer group that hands each message to a listener.

    ```
    subscriptions = {"orders": "paid || refunded"}
    async with PushConsumer(
        "billing", namesrv=..., subscriptions=subscriptions, listener=on_order
    ):
        ...
    ```

    `listener` takes one message (with `batch` above 1 a list). It is an async
    function, which runs in the loop of the caller, or a plain one, which runs in a
    worker thread. Returning None means done; returning anything else ends the
    consumer with `ConfigurationError`, except a `ConsumeOrderlyStatus` with
    `auto_commit=False`. An exception means later, after a delay that grows with
    each attempt, and in the end the dead letter topic; `ConsumeLater` and
    `RejectMessage` choose. A message may be delivered more than once. A listener
    that runs longer than `consume_timeout` is cancelled (a thread goes on, its
    result ignored) and its message is sent back. Give `namesrv`, or a `Client` to
    share as `client`; all other settings are in `PushConfig` and `ClientConfig`.

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

    _inner: InnerPushConsumer

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
        self._inner = InnerPushConsumer(
            group,
            subscriptions=subscriptions,
            listener=self._listener_in_loop(listener),
            batch=batch,
            namesrv=inner_of(namesrv),
            client=inner_client(client),
            **options,
        )

    @property
    def group(self) -> str:
        """The group, as it was given."""
        return self._inner.group

    @property
    def config(self) -> PushConfig:
        """The settings."""
        return self._inner.config

    @property
    def messages(self) -> MessageQueries:
        """Queries for stored messages: by id, key, tag, place and time."""
        return self._adopt(MessageQueries(self._inner.messages))

    def statistics(self) -> ConsumerStatistics:
        """What the consumer owns, holds and has done, its lag and its rates."""
        return self._call_now(self._inner.statistics)

    def health(self) -> ConsumerHealth:
        """Whether the consumer is consuming and, if not, why, in plain words.

        Makes no requests: it reports what the consumer knows.
        """
        return self._call_now(self._inner.health)

    def suspend(self) -> None:
        """Stop pulling and taking queues, until `resume`.

        What is cached is still consumed. Owned queues stay owned unless the group
        gives them to another member; no other member gets this one's share of them.
        Raises `ClosedError`.
        """
        return self._call_now(self._inner.suspend)

    def resume(self) -> None:
        """Go on after `suspend`, at once. Raises `ClosedError`."""
        return self._call_now(self._inner.resume)

    async def group_lag(self) -> dict[MessageQueue, int]:
        """How many messages the whole group has not committed yet, by queue.

        Of all queues of the subscribed topics, the retry topic among them, whoever owns
        them; the masters are asked. Raises the error of a broker that cannot be asked,
        `ClosedError`, and `ConfigurationError` for members that broadcast: brokers do
        not know how far each is.
        """
        return await self._call(self._inner.group_lag)

    def set_concurrency(self, concurrency: int) -> None:
        """Let so many calls of the listener (1-1000) run at the same time from now on.

        Calls above the number run to their end. Raises `ConfigurationError` for another
        number, and `ClosedError`.
        """
        return self._call_now(self._inner.set_concurrency, concurrency)

    async def subscribe(self, topic: str, expression: Subscription = None) -> None:
        """Subscribe to another topic, or to a topic by another expression.

        Returns when brokers know; queues are taken right after. Every member of the
        group must have the same subscriptions. Raises `ConfigurationError` for an
        invalid expression, a broker's error for one that it cannot serve, and
        `ClosedError`. When it is cancelled, brokers may know already; the next
        heartbeat tells them the actual state.
        """
        return await self._call(self._inner.subscribe, topic, expression)

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic.

        What listeners already have is finished and committed, the rest is left to other
        members. Raises `ClosedError`.
        """
        return await self._call(self._inner.unsubscribe, topic)
