"""`SimpleConsumer` for threads.

Written by `python -m tools.doors` from `rocketmq_sdk.consumer.simple.consumer`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.consumer.simple.consumer import DEFAULT_BATCH
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer as InnerSimpleConsumer
from rocketmq_sdk.doors.face import inner_of
from rocketmq_sdk.sync.faces.queries import MessageQueries
from rocketmq_sdk.sync.faces.received_messages import ReceivedMessages
from rocketmq_sdk.sync.life import Entered, Managed, inner_client

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta
    from typing import Unpack

    from rocketmq_sdk.consumer.config import SimpleConfig, SimpleOptions
    from rocketmq_sdk.consumer.constructor_arguments import Subscription
    from rocketmq_sdk.consumer.health import ConsumerHealth
    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage, Receipt
    from rocketmq_sdk.consumer.statistics import SimpleStatistics
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.sync.arguments import NamesrvSource
    from rocketmq_sdk.sync.faces.client import Client


class SimpleConsumer(Entered):
    """A member of a consumer group that receives messages and acknowledges each.

    ```
    with SimpleConsumer(
        "billing", namesrv=..., subscriptions={"orders": "*"}
    ) as consumer:
        for message in consumer.receive(max_messages=32, invisible_duration=30):
            ...
            consumer.ack(message)
    ```

    A message that is not acknowledged within its invisible duration comes again,
    with `reconsume_times` one higher, to any member that receives it. So any number
    of members may share a queue, and nothing is bound to this one. A message that
    has used up its attempts is put into the group's dead letter topic when a
    receive finds it. Needs brokers of release 5. Any number of threads may receive,
    acknowledge and change.

    Leaving the block ends waiting receives with `ClosedError` and unregisters, in 10
    seconds at most (2 after an error or a cancellation). What was not acknowledged
    comes again when its time is over. Raises `ConfigurationError` for settings that are
    not acceptable.
    """

    _inner: InnerSimpleConsumer

    def __init__(
        self,
        group: str,
        *,
        subscriptions: Mapping[str, Subscription],
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[SimpleOptions],
    ) -> None:
        self._inner = InnerSimpleConsumer(
            group,
            subscriptions=subscriptions,
            namesrv=inner_of(namesrv),
            client=inner_client(client),
            **options,
        )

    @property
    def group(self) -> str:
        """The group, as it was given."""
        return self._inner.group

    @property
    def config(self) -> SimpleConfig:
        """The settings."""
        return self._inner.config

    @property
    def messages(self) -> MessageQueries:
        """Queries for stored messages: by id, key, tag, place and time."""
        return self._adopt(MessageQueries(self._inner.messages))

    def statistics(self) -> SimpleStatistics:
        """What the consumer has received, acknowledged and given up, and its rates."""
        return self._call_now(self._inner.statistics)

    def health(self) -> ConsumerHealth:
        """Whether receives get messages and, if not, why, in plain words.

        Makes no requests: it reports what the consumer knows.
        """
        return self._call_now(self._inner.health)

    def group_lag(self) -> dict[MessageQueue, int]:
        """How many messages the whole group has not committed yet, by queue.

        Of all queues of the subscribed topics, whoever owns them; the masters are
        asked. Raises the error of a broker that cannot be asked, and `ClosedError`.
        """
        return self._call(self._inner.group_lag)

    def subscribe(self, topic: str, expression: Subscription = None) -> None:
        """Subscribe to another topic, or to a topic by another expression.

        Returns when brokers know. Raises `ConfigurationError`, a broker's error for an
        expression that it cannot serve, and `ClosedError`.
        """
        return self._call(self._inner.subscribe, topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic; received messages can still be acknowledged.

        Raises `ClosedError`.
        """
        return self._call(self._inner.unsubscribe, topic)

    def receive(
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
        return self._call(self._inner.receive, max_messages, invisible_duration, await_duration)

    def __iter__(self) -> ReceivedMessages:
        """Receive for ever, one message at a time.

        The program acknowledges each message, or processes it with `processing`. For
        more at a time use `receive`.
        """
        return self._adopt(ReceivedMessages(self._inner.__aiter__()))

    def ack(self, message: PoppedMessage | Receipt) -> None:
        """Acknowledge a message.

        Raises `ReceiptHandleError`, and sends nothing, when the message was
        acknowledged before, its invisible duration is over, or the receipt was replaced
        or belongs to another group. After any other error the message may be
        acknowledged again.
        """
        return self._call(self._inner.ack, message)

    def batch_ack(self, messages: Sequence[PoppedMessage | Receipt]) -> None:
        """Acknowledge messages, with one request for each broker.

        Those with good receipts are acknowledged. If there are others,
        `ReceiptHandleError` is raised then and names them.
        """
        return self._call(self._inner.batch_ack, messages)

    def change_invisible_duration(
        self, message: PoppedMessage | Receipt, invisible_duration: float | timedelta | None = None
    ) -> Receipt:
        """Make a message visible again `invisible_duration` from now (0: at once).

        The message's receipt is replaced, and the old one is void. Without a duration
        the message is visible again after the delay that the group's retry policy has
        for its attempt (10 s, 30 s, 1 min ... 2 h if the group has none). Raises
        `ReceiptHandleError` like `ack`, and the broker's errors. When no answer comes,
        it is unknown which of the two receipts is valid.
        """
        return self._call(self._inner.change_invisible_duration, message, invisible_duration)

    def processing(
        self, message: PoppedMessage, *, invisible_duration: float | timedelta | None = None
    ) -> AbstractContextManager[PoppedMessage]:
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
        return Managed(
            self._running(),
            lambda: self._inner.processing(message, invisible_duration=invisible_duration),
        )
