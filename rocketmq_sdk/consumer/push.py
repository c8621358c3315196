"""`PushConsumer`: messages come to a listener (`DefaultMQPushConsumer`, clustering and concurrent, of Apache RocketMQ 5.4.0)."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Unpack

from rocketmq_sdk.client.config import NamesrvSource
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.consumer.arguments import Settings, Subscription, checked_subscriptions
from rocketmq_sdk.consumer.config import PUSH_OPTIONS, PushConfig, PushOptions
from rocketmq_sdk.consumer.member import Member
from rocketmq_sdk.consumer.statistics import ConsumerStatistics
from rocketmq_sdk.consumer.workers import Listener
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery


class PushConsumer(RunsOnce):
    """A member of a consumer group that hands each message to a listener.

    ```
    async with PushConsumer("billing", namesrv=..., subscriptions={"orders": "paid || refunded"}, listener=on_order):
        ...
    ```

    `listener` takes one message (with `batch` above 1 a list) and is an async function, or a plain one that runs in a worker thread. Returning means
    done; an exception means later, after a delay that grows with each attempt and in the end in the dead letter topic. `ConsumeLater` and
    `RejectMessage` choose. A message may be delivered more than once. A listener that runs longer than `consume_timeout` is cancelled (a thread
    goes on, its result ignored) and its message is sent back. Give `namesrv`, or a `Client` to share as `client`; all else is in `PushConfig` and
    `ClientConfig`.

    Entering the block returns when brokers know the member and it has its first queues, or after three seconds. Leaving it stops pulling, lets
    running listeners finish for up to 8 seconds, commits and unregisters, in 10 seconds at most; leaving it by an exception or cancellation cancels
    the listeners and takes at most 2. Only a listener that shields itself from cancellation or blocks the event loop can outlast that: a task can not
    be abandoned, so the block ends when it does. What was not consumed is delivered again to whoever owns the queue. Raises `ConfigurationError` for
    settings that are not acceptable; a failure in the background cancels the block and is raised from it as one `RocketMQError`.
    """

    _second_time = "a consumer runs once; make a new one"

    def __init__(
        self,
        group: str,
        *,
        subscriptions: Mapping[str, Subscription],
        listener: Listener,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[PushOptions],
    ) -> None:
        settings = Settings("PushConsumer", group, PUSH_OPTIONS, options, namesrv, client)
        if not callable(listener):
            raise ConfigurationError(f"the listener is {listener!r}, which can not be called")
        self.group = group
        self.config = PushConfig(**settings.own)
        self._listener = listener
        self._settings = settings
        self._wanted = checked_subscriptions(subscriptions)
        self._member: Member | None = None

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        self._member = member = Member(
            self._settings.client, self.group, self.config, self._wanted, self._listener, own_client=self._settings.own_client
        )
        async with open_quiet_nursery() as nursery, member.started(nursery):
            yield

    def statistics(self) -> ConsumerStatistics:
        """What the consumer owns, holds and has done."""
        return ConsumerStatistics() if self._member is None else self._member.statistics()
