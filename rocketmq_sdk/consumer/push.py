"""`PushConsumer`: messages come to a listener (`DefaultMQPushConsumer`, clustering and concurrent, of Apache RocketMQ 5.4.0)."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Unpack

from rocketmq_sdk.client.config import CLIENT_OPTIONS, NamesrvSource, refuse_unknown
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.consumer.concurrent import Listener
from rocketmq_sdk.consumer.config import PUSH_OPTIONS, PushConfig, PushOptions
from rocketmq_sdk.consumer.member import Member
from rocketmq_sdk.consumer.statistics import ConsumerStatistics
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery
from rocketmq_sdk.model.enums import ExpressionType
from rocketmq_sdk.names import check_group, topic_problem
from rocketmq_sdk.protocol.subscription import build_subscription

Subscription = str | tuple[str, ExpressionType | str] | None
"""A tag expression (`"a || b"`, `"*"` or None for all), or an expression with its type."""


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
        check_group(group)
        refuse_unknown(options, PUSH_OPTIONS | CLIENT_OPTIONS, "PushConsumer")
        if not callable(listener):
            raise ConfigurationError(f"the listener is {listener!r}, which can not be called")
        self.group = group
        # A typed dictionary that is split by names gives plain objects; both classes check what they get.
        self.config = PushConfig(**{name: value for name, value in options.items() if name in PUSH_OPTIONS})  # type: ignore[arg-type]  # see above
        client_options = {name: value for name, value in options.items() if name in CLIENT_OPTIONS}
        if client is not None and (namesrv is not None or client_options):
            raise ConfigurationError("give either client= or the settings of a client of its own")
        self._listener = listener
        self._own_client = client is None
        self._client = client or Client(namesrv, **client_options)  # type: ignore[arg-type]  # see above
        self._wanted = _checked_subscriptions(subscriptions)
        self._member: Member | None = None

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        self._member = member = Member(self._client, self.group, self.config, self._wanted, self._listener, own_client=self._own_client)
        async with open_quiet_nursery() as nursery, member.started(nursery):
            yield

    def statistics(self) -> ConsumerStatistics:
        """What the consumer owns, holds and has done."""
        return ConsumerStatistics() if self._member is None else self._member.statistics()


def _checked_subscriptions(subscriptions: Mapping[str, Subscription]) -> dict[str, tuple[str | None, str]]:
    if not isinstance(subscriptions, Mapping):
        raise ConfigurationError(f"subscriptions is {subscriptions!r}; give topics with their expressions, as in {{'orders': '*'}}")
    if not subscriptions:
        raise ConfigurationError("subscriptions is empty; name at least one topic")
    checked: dict[str, tuple[str | None, str]] = {}
    for topic, wanted in subscriptions.items():
        if problem := topic_problem(topic):
            raise ConfigurationError(problem)
        expression, kind = wanted if isinstance(wanted, tuple) else (wanted, ExpressionType.TAG)
        checked[topic] = expression, kind.value if isinstance(kind, ExpressionType) else kind
        build_subscription(topic, *checked[topic], sub_version=0)
    return checked
