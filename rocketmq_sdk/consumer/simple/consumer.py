"""`SimpleConsumer`: the program receives messages and acknowledges each.

The simple consumer of Apache RocketMQ 5, over POP. Received messages are invisible to
others for a time.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self, Unpack

import trio

from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.consumer.config import SIMPLE_OPTIONS, SimpleConfig, SimpleOptions
from rocketmq_sdk.consumer.constructor_arguments import (
    ConstructorArguments,
    Subscription,
    checked_expression,
    checked_subscriptions,
)
from rocketmq_sdk.consumer.health import ConsumerHealth
from rocketmq_sdk.consumer.pop.receipt import PoppedMessage, Receipt, receipt_of
from rocketmq_sdk.consumer.retry_states import State
from rocketmq_sdk.consumer.simple.member import SimpleMember
from rocketmq_sdk.errors import ClosedError, ConfigurationError, RocketMQError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery
from rocketmq_sdk.validators import to_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import timedelta

    from rocketmq_sdk.client.config import NamesrvSource
    from rocketmq_sdk.client.queries import MessageQueries
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.statistics import SimpleStatistics
    from rocketmq_sdk.model.queue import MessageQueue

DEFAULT_BATCH: Final = 16
MAX_BATCH: Final = 32
"""The most messages that a broker returns at a time."""
ERROR_PAUSE: Final = 1.0
"""Seconds until an iteration tries again after an error.

Also after an answer that came too soon.
"""


class SimpleConsumer(RunsOnce):
    """A member of a consumer group that receives messages and acknowledges each.

    ```
    async with SimpleConsumer(
        "billing", namesrv=..., subscriptions={"orders": "*"}
    ) as consumer:
        for message in await consumer.receive(max_messages=32, invisible_duration=30):
            ...
            await consumer.ack(message)
    ```

    A message that is not acknowledged within its invisible duration comes again, with
    `reconsume_times` one higher, to any member that receives it. So any number of
    members may share a queue, and nothing is bound to this one. A message that has used
    up its attempts is put into the group's dead letter topic when a receive finds it.
    Needs brokers of release 5. Any number of tasks may receive, acknowledge and change.

    Leaving the block ends waiting receives with `ClosedError` and unregisters, in 10
    seconds at most (2 after an error or a cancellation). What was not acknowledged
    comes again when its time is over. Raises `ConfigurationError` for settings that are
    not acceptable.
    """

    _second_time = "a consumer runs once; make a new one"

    def __init__(
        self,
        group: str,
        *,
        subscriptions: Mapping[str, Subscription],
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[SimpleOptions],
    ) -> None:
        arguments = ConstructorArguments(
            "SimpleConsumer", group, SIMPLE_OPTIONS, options, namesrv, client
        )
        self.group = group
        self.config = SimpleConfig(**arguments.own)
        self._client = arguments.client
        self._namespace = arguments.client.namespace
        wanted = arguments.client.namespace.wrap_keys(checked_subscriptions(subscriptions))
        self._member = SimpleMember(
            arguments.client, arguments.group, self.config, wanted, own_client=arguments.own_client
        )

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        async with open_quiet_nursery() as nursery, self._member.started(nursery):
            yield

    def _check_running(self) -> None:
        self.check_run()
        self._member.check_running()

    # -- what is known of it

    @property
    def messages(self) -> MessageQueries:
        """Queries for stored messages: by id, key, tag, place and time."""
        return self._client.messages

    def statistics(self) -> SimpleStatistics:
        """What the consumer has received, acknowledged and given up, and its rates."""
        self.check_run()
        return self._member.statistics()

    def health(self) -> ConsumerHealth:
        """Whether receives get messages and, if not, why, in plain words.

        Makes no requests: it reports what the consumer knows.
        """
        self.check_run()
        if not self._member.running:
            return ConsumerHealth(
                False, ("it is not running: use it inside its `async with` block",)
            )
        return self._member.health()

    async def group_lag(self) -> dict[MessageQueue, int]:
        """How many messages the whole group has not committed yet, by queue.

        Of all queues of the subscribed topics, whoever owns them; the masters are
        asked. Raises the error of a broker that cannot be asked, and `ClosedError`.
        """
        self._check_running()
        return await self._member.group_lag()

    # -- receiving

    @checked
    async def subscribe(self, topic: str, expression: Subscription = None) -> None:
        """Subscribe to another topic, or to a topic by another expression.

        Returns when brokers know. Raises `ConfigurationError`, a broker's error for an
        expression that it cannot serve, and `ClosedError`.
        """
        self._check_running()
        await self._member.subscribe(
            self._namespace.wrap(topic), checked_expression(topic, expression)
        )

    @checked
    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic; received messages can still be acknowledged.

        Raises `ClosedError`.
        """
        self._check_running()
        await self._member.unsubscribe(self._namespace.wrap(topic))

    @checked
    async def receive(
        self,
        max_messages: int = DEFAULT_BATCH,
        invisible_duration: float | timedelta | None = None,
        await_duration: float | timedelta | None = None,
    ) -> list[PoppedMessage]:
        """Receive up to `max_messages` (1-32) messages of one topic and broker.

        Topics and brokers take turns. The list is empty when no message arrives in
        `await_duration`. Nobody else gets the messages for `invisible_duration`. Raises
        `ConnectError`, `RequestTimeoutError` and the broker's errors when no broker can
        be asked, `ClosedError` outside of the block, and `ConfigurationError` for
        arguments out of bounds. After a cancellation, messages that a broker had
        already handed out come again when their time is over.
        """
        if not 1 <= max_messages <= MAX_BATCH:
            raise ConfigurationError(
                f"max_messages is {max_messages!r}; it must be from 1 to {MAX_BATCH}"
            )
        self._check_running()
        config = self.config
        invisible = config.invisible_ms(
            config.invisible_duration
            if invisible_duration is None
            else to_seconds(invisible_duration)
        )
        wait = config.await_duration if await_duration is None else to_seconds(await_duration)
        return await self._member.receive(max_messages, invisible, trio.current_time() + wait)

    def __aiter__(self) -> ReceivedMessages:
        """Receive for ever, one message at a time.

        The program acknowledges each message, or processes it with `processing`. For
        more at a time use `receive`.
        """
        return ReceivedMessages(self)

    # -- receipts

    async def ack(self, message: PoppedMessage | Receipt) -> None:
        """Acknowledge a message.

        Raises `ReceiptHandleError`, and sends nothing, when the message was
        acknowledged before, its invisible duration is over, or the receipt was replaced
        or belongs to another group. After any other error the message may be
        acknowledged again.
        """
        self._check_running()
        await self._member.ack(message)

    async def batch_ack(self, messages: Sequence[PoppedMessage | Receipt]) -> None:
        """Acknowledge messages, with one request for each broker.

        Those with good receipts are acknowledged. If there are others,
        `ReceiptHandleError` is raised then and names them.
        """
        self._check_running()
        await self._member.batch_ack(messages)

    @checked
    async def change_invisible_duration(
        self, message: PoppedMessage | Receipt, invisible_duration: float | timedelta | None = None
    ) -> Receipt:
        """Make a message visible again `invisible_duration` from now (0: at once).

        The message's receipt is replaced, and the old one is void. Without a duration
        the message is visible again after the delay that the group's retry policy has
        for its attempt (10 s, 30 s, 1 min ... 2 h if the group has none). Raises
        `ReceiptHandleError` like `ack`, and the broker's errors. When no answer comes,
        it is unknown which of the two receipts is valid.
        """
        self._check_running()
        if invisible_duration is None:
            receipt_of(message)
            if not isinstance(message, PoppedMessage):
                raise ConfigurationError(
                    "how long a retry waits depends on the message's attempt: give the message, "
                    "or an invisible_duration"
                )
            return await self._member.postpone(message)
        seconds = to_seconds(invisible_duration)
        self.config.invisible_ms(seconds, changing=True)
        return await self._member.change_invisible_duration(message, seconds)

    @asynccontextmanager
    @checked
    async def processing(
        self, message: PoppedMessage, *, invisible_duration: float | timedelta | None = None
    ) -> AsyncIterator[PoppedMessage]:
        """Keep a message invisible while the block runs, and acknowledge it at the end.

        An acknowledgement that fails is repeated as long as the message is invisible.
        It is not acknowledged when the block has done so. Whenever the time is nearly
        over it is extended to `invisible_duration` (by default that of the settings),
        for at most `processing_limit`. When the block raises, the message is not
        acknowledged and comes again after the delay of the group's retry policy. With
        `fifo`, when the block is cancelled, and when it has changed the duration
        itself, the message comes again when its time is over. Raises
        `ReceiptHandleError` at either end of the block when the message is not this
        consumer's any more.
        """
        self._check_running()
        receipt_of(message)
        seconds = (
            self.config.invisible_duration
            if invisible_duration is None
            else to_seconds(invisible_duration)
        )
        self.config.invisible_ms(seconds)
        self._member.check(message)
        extended = self._member.renewals.add(message, seconds, self.config.processing_limit)
        try:
            try:
                yield message
            except Exception:
                extended.ended = True
                # Otherwise the program has chosen when it comes again.
                if message.receipt is extended.known:
                    await self._member.give_up(message)
                raise
            if message.receipt.state is not State.COMMIT:
                await self._member.ack_in_time(message)
        finally:
            extended.ended = True


class ReceivedMessages:
    """The messages of a simple consumer, one after another, for one task.

    They are received one at a time. One that waited here behind another would become
    visible again unseen, and be given up after enough of that.
    """

    def __init__(self, consumer: SimpleConsumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PoppedMessage:
        while True:
            began = trio.current_time()
            try:
                for message in await self._consumer.receive(1):
                    return message
            except ClosedError:
                raise StopAsyncIteration from None
            except RocketMQError as error:
                if not error.retryable:
                    raise
            if trio.current_time() - began < ERROR_PAUSE:
                await trio.sleep(ERROR_PAUSE)
