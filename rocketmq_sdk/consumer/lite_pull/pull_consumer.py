"""`PullConsumer`: single pulls of a queue at an offset, and the group's offsets.

Follows `DefaultMQPullConsumer` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar, Final, Unpack

from rocketmq_sdk.client.api.pull import pull_message
from rocketmq_sdk.client.api.send import consumer_send_back
from rocketmq_sdk.client.arguments import checked, wrong_type
from rocketmq_sdk.client.side_by_side import answers_of_all, by_broker
from rocketmq_sdk.consumer.constructor_arguments import (
    ConstructorArguments,
    Subscription,
    checked_expression,
)
from rocketmq_sdk.consumer.group.membership import Membership
from rocketmq_sdk.consumer.lite_pull.queue_queries import QueueQueries
from rocketmq_sdk.consumer.offsets.remote import RemoteOffsets
from rocketmq_sdk.consumer.outcome import BROKER_CHOOSES
from rocketmq_sdk.consumer.pull.puller import reading_address
from rocketmq_sdk.consumer.send_back import SEND_BACK_TIMEOUT
from rocketmq_sdk.errors import ClosedError, ConfigurationError, RocketMQError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.model.route import MASTER_ID
from rocketmq_sdk.protocol.bodies.members import ConsumerData
from rocketmq_sdk.protocol.flags import PullSysFlag
from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader
from rocketmq_sdk.protocol.subscription import build_subscription
from rocketmq_sdk.validators import to_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import timedelta

    import trio

    from rocketmq_sdk.client.config import ClientOptions, NamesrvSource
    from rocketmq_sdk.client.queries import MessageQueries
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.results import PullResult

PULL_TIMEOUT: Final = 10.0
"""Seconds for an answer, beyond the time for which the broker may hold the pull.

Apache's `consumerPullTimeoutMillis`.
"""
MAX_BYTES: Final = 2**31 - 1


class _PullMember(Membership):
    """A member that only sends heartbeats and owns nothing."""

    kind: ClassVar[str] = "pull consumer"

    async def _begin(self, nursery: trio.Nursery) -> None:
        """Nothing runs in the background."""

    async def _finish(self, grace: float) -> None:
        """Nothing needs a commit."""

    async def topic_route(self, topic: str) -> None:
        """Keep the route of a topic fresh while the consumer lives.

        Raises `RocketMQError` when there is none.
        """
        if topic not in self._subscriptions:
            await self._client.route(topic)
            if topic in self._subscriptions:
                return  # another task was quicker
            self._subscriptions[topic] = build_subscription(topic, None, sub_version=0)
            self._client.routes.use(topic)
            await self._client.heartbeat_now()

    def heartbeat_data(self) -> ConsumerData:
        """The consumer's entry in the heartbeat, without subscriptions, as Apache's."""
        return ConsumerData(
            self._group,
            ConsumeType.CONSUME_ACTIVELY,
            MessageModel.CLUSTERING,
            ConsumeFrom.LAST_OFFSET,
            (),
            self._client.config.unit_mode,
        )


class PullConsumer(QueueQueries, RunsOnce):
    """Reads queues at offsets that the program chooses.

    ```
    async with PullConsumer("audit", namesrv=...) as consumer:
        for queue in await consumer.message_queues("orders"):
            result = await consumer.pull(queue, await consumer.begin_offset(queue))
    ```

    Nothing is prefetched, shared or committed automatically. Any number of tasks may
    use it. Raises `ConfigurationError` for settings that are not acceptable.
    """

    _second_time = "a consumer runs once; make a new one"

    def __init__(
        self,
        group: str,
        *,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        arguments = ConstructorArguments(
            "PullConsumer", group, frozenset(), options, namesrv, client
        )
        self.group = group
        self._group = arguments.group
        self._client = arguments.client
        self._member = _PullMember(
            arguments.client, arguments.group, {}, own_client=arguments.own_client
        )
        self._offsets = RemoteOffsets(arguments.client, arguments.group)
        self._suggested: dict[MessageQueue, int] = {}
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

    @property
    def messages(self) -> MessageQueries:
        """Queries for stored messages: by id, key, tag, place and time."""
        return self._client.messages

    @checked
    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: Subscription = None,
        wait: float | timedelta = 0.0,
        timeout: float | timedelta | None = None,
    ) -> PullResult:
        """Pull once.

        `wait` is how long the broker may hold the pull while there is nothing to read;
        the answer must come within another `timeout` (10 s). The result has what was
        found and where to pull next; `OFFSET_ILLEGAL` means that the offset is outside
        of the queue. Follows the broker's advice to read from a replica. Raises
        `RouteError`, `ConnectError`, `RequestTimeoutError`, the broker's errors, and
        `RemoteProtocolError` when a message cannot be decoded.
        """
        self._check_running()
        if offset < 0 or max_messages < 1:
            raise ConfigurationError(
                f"offset {offset} must not be below 0 and max_messages {max_messages} not below 1"
            )
        queue = self._client.namespace.wrap_queue(queue)
        subscription = build_subscription(
            queue.topic, *checked_expression(queue.topic, expression), sub_version=0
        )
        hold = to_seconds(wait)
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if hold > 0 else 0),
            commit_offset=0,
            suspend_timeout_millis=round(hold * 1000),
            subscription=subscription.sub_string,
            sub_version=0,
            expression_type=subscription.expression_type,
            max_msg_bytes=MAX_BYTES,
            bname=queue.broker_name,
        )
        await self._member.topic_route(queue.topic)
        found = reading_address(self._client, queue, self._suggested.get(queue, MASTER_ID))
        tags = subscription.tags_set if subscription.is_tag_type else frozenset[str]()
        limit = hold + (PULL_TIMEOUT if timeout is None else to_seconds(timeout))
        try:
            result = await pull_message(
                self._client, found.address, queue.broker_name, header, limit, tags=tags
            )
        except RocketMQError as error:
            self._suggested.pop(queue, None)
            if error.route_stale:
                self._client.routes.request_refresh(queue.topic)
            raise
        self._suggested[queue] = result.suggest_broker_id
        return self._as_the_user_names_it(result)

    def _as_the_user_names_it(self, result: PullResult) -> PullResult:
        if self._client.namespace:
            for message in result.messages:
                message.topic = self._client.namespace.unwrap(message.topic)
        return result

    @checked
    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the group's offset in a queue, that of the next message to consume.

        Returns when the broker has confirmed it.
        """
        self._check_running()
        queue = self._client.namespace.wrap_queue(queue)
        await self._member.topic_route(queue.topic)
        await self._offsets.write(queue, offset, confirmed=True)

    @checked
    async def send_back(
        self,
        messages: ReceivedMessage | Iterable[ReceivedMessage],
        *,
        delay_level: int = BROKER_CHOOSES,
    ) -> None:
        """Have messages delivered again later to the group's push consumers (36).

        With `delay_level` -1 they go to the dead letter topic. All brokers are asked at
        the same time. Raises the error of one that failed; it has taken its messages
        before that one, and the other brokers have taken theirs.
        """
        self._check_running()
        named = list(messages) if isinstance(messages, Iterable) else [messages]
        for message in named:
            if not isinstance(message, ReceivedMessage):
                raise wrong_type("messages of send_back()", messages, "one or more ReceivedMessage")

        async def give(some: list[ReceivedMessage]) -> None:
            for message in some:
                await consumer_send_back(
                    self._client,
                    message.broker_name,
                    self._group,
                    message.commit_log_offset,
                    delay_level=delay_level,
                    origin_message_id=message.message_id,
                    origin_topic=self._client.namespace.wrap(message.topic),
                    timeout=SEND_BACK_TIMEOUT,
                )

        work = by_broker(named, lambda message: message.broker_name)
        await answers_of_all(work.values(), give)
