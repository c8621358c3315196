"""`Producer` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.producer.producer`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.aio.faces.client import Client
from rocketmq_sdk.aio.faces.queries import MessageQueries
from rocketmq_sdk.aio.handles import handle_of, sent
from rocketmq_sdk.aio.life import Entered, inner_client
from rocketmq_sdk.doors.face import inner_of
from rocketmq_sdk.producer.producer import Producer as InnerProducer
from rocketmq_sdk.producer.queue_selector import UNSET

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from typing import Unpack

    from rocketmq_sdk.aio.arguments import NamesrvSource
    from rocketmq_sdk.aio.handles import AccumulatedHandle, SendHandle
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.model.results import SendResult
    from rocketmq_sdk.producer.config import ProducerConfig, ProducerOptions
    from rocketmq_sdk.producer.handle import Aim
    from rocketmq_sdk.producer.health import ProducerHealth
    from rocketmq_sdk.producer.queue_selector import QueueSelector


class Producer(Entered):
    """Sends messages.

    Use it as `async with Producer("group", namesrv=...) as producer`.

    `namesrv` is a list of addresses or an `EmbeddedBroker` (unset: `NAMESRV_ADDR`); or
    `client=` shares a running `Client`. The options are those of `ProducerConfig` and,
    without `client=`, of `ClientConfig`. Leaving the block waits up to 10 s for
    messages under way (not at all when it is left by an exception or a cancellation)
    and unregisters the group. Raises `ConfigurationError` for settings that are unknown
    or not acceptable.
    """

    _inner: InnerProducer

    def __init__(
        self,
        group: str,
        *,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._inner = InnerProducer(
            group, namesrv=inner_of(namesrv), client=inner_client(client), **options
        )
        self.client = self._client_of(client, Client, self._inner.client)

    @property
    def group(self) -> str:
        """The group, as it was given."""
        return self._inner.group

    @property
    def config(self) -> ProducerConfig:
        """The settings."""
        return self._inner.config

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = UNSET,
        timeout: float | timedelta | None = None,
    ) -> SendResult:
        """Send one message and wait until a broker has stored it.

        Up to `1 + retry_times` attempts, at other brokers if there are, within
        `timeout` seconds in all (default `send_timeout`); the unique id stays the same.
        With `queue=`, `selector=` or `key=` (queue by hash of the key) there is one
        attempt. A status other than SEND_OK is returned, not raised. Waits within the
        same time when too many messages are under way.

        Raises `ConfigurationError` for a message that is not acceptable, `RouteError`
        when the topic has no route, `SendTimeout` and `ConnectError` (`outcome_unknown`
        tells whether it may be stored all the same), `BrokerError` by the broker's
        code, `ClosedError`. When cancelled the message is given up: no further attempt
        is made, and it may have been stored.
        """
        run = self._run or self._running()
        run.check()
        handle = self._inner.begin(message, queue, selector, key, timeout)
        if handle is not None:
            return await sent(run, handle)
        return await run.call(
            self._inner.send, message, queue=queue, selector=selector, key=key, timeout=timeout
        )

    def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = UNSET,
        timeout: float | timedelta | None = None,
    ) -> SendHandle | AccumulatedHandle:
        """Send one message without waiting; the rules are those of `send`.

        Synchronous, no task.

        Await the handle for the result. Raises `TooManyRequestsError` when
        `max_in_flight` messages or `max_in_flight_bytes` are under way,
        `ConfigurationError` for a message that is not acceptable, `ClosedError`; all
        else is told by the handle.
        """
        run = self._run or self._running()
        run.check()
        return handle_of(
            run,
            self._inner.submit(message, queue=queue, selector=selector, key=key, timeout=timeout),
        )

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = UNSET,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Send one message in one attempt, without confirmation.

        Waits only for a route, a connection, and room in the connection's queue. Raises
        `RouteError`, `ConnectError`, `SendTimeout` (nothing was sent).
        """
        return await self._call(
            self._inner.send_oneway,
            message,
            queue=queue,
            selector=selector,
            key=key,
            timeout=timeout,
        )

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = UNSET,
        timeout: float | timedelta | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request.

        They are stored one after another in one queue, all or none.

        The result's `message_id` holds all unique ids joined by commas, `queue_offset`
        is that of the first message. Never compressed. The rules and errors are those
        of `send`; `ConfigurationError` also for a batch that is empty, mixed, delayed
        or over `max_message_size` when encoded.
        """
        return await self._call(
            self._inner.send_batch,
            messages,
            queue=queue,
            selector=selector,
            key=key,
            timeout=timeout,
        )

    def submit_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = UNSET,
        timeout: float | timedelta | None = None,
    ) -> SendHandle:
        """Send messages of one topic in one request without waiting.

        The rules are those of `send_batch`, `message_id` and result too. The next batch
        is made while the broker stores this one, so some at a time are faster than one
        after the other. They may be stored in another order.

        Await the handle for the result. Raises `TooManyRequestsError` when
        `max_in_flight` requests or `max_in_flight_bytes` are under way,
        `ConfigurationError` for messages that are not acceptable, `ClosedError`; all
        else is told by the handle.
        """
        run = self._run or self._running()
        run.check()
        return handle_of(
            run,
            self._inner.submit_batch(
                messages, queue=queue, selector=selector, key=key, timeout=timeout
            ),
        )

    async def send_encoded_batch(
        self, topic: str, body: bytes, *, queue: MessageQueue | None = None
    ) -> SendResult:
        """As `send_batch`, for messages that `protocol.batch_codec` has encoded.

        Each has its unique id and `WAIT` true.

        The result's `message_id` is that of the request; hooks see one message with
        this body. What the body holds is not looked at.
        """
        return await self._call(self._inner.send_encoded_batch, topic, body, queue=queue)

    async def recall(
        self, handle: str | SendResult, *, timeout: float | timedelta | None = None
    ) -> str:
        """Recall a message with `deliver_at` before it is delivered.

        Returns its unique id.

        `handle` is the result of its send, or that result's `recall_handle`. It works
        for brokers since 5.3.2, up to the second of the delivery; success says that the
        wish was stored. Apache's brokers have this switched off unless
        `recallMessageEnable` is set.

        Raises `ConfigurationError` for a handle that is none, `RouteError` when its
        broker is not known, `BrokerError` by the broker's code (NO_PERMISSION: switched
        off; ILLEGAL_OPERATION: too late, or another broker's), `RequestTimeoutError`;
        after that and after a cancellation the message may be taken back all the same.
        """
        return await self._call(self._inner.recall, handle, timeout=timeout)

    async def request(
        self, message: Message, *, timeout: float | timedelta | None = None, **aim: Unpack[Aim]
    ) -> ReceivedMessage:
        """Send a request and wait for its reply, `timeout` seconds in all.

        Whoever consumes the request makes the reply with `reply_message`. `timeout` is
        `send_timeout` by default.

        The rules of sending are those of `send`, its errors too. Raises
        `RequestTimeoutError` when the request was sent and no reply came; a reply that
        comes later is dropped.
        """
        return await self._call(self._inner.request, message, timeout=timeout, **aim)

    async def flush(self) -> None:
        """Wait until all messages submitted so far are finished.

        Raises the error of the first one that has failed without anybody awaiting it;
        the error is raised once, and those of the others are logged.
        """
        return await self._call(self._inner.flush)

    def health(self) -> ProducerHealth:
        """Whether messages can be sent and, if not, why, in plain words.

        Of the topics that were sent to, their brokers, and each name server. Makes no
        requests: it reports what the producer knows.
        """
        return self._call_now(self._inner.health)

    @property
    def in_flight(self) -> int:
        """Messages handed over and not finished.

        Those of an automatic batch count each for itself, those of `send_batch` and
        `submit_batch` as one.
        """
        return self._inner.in_flight

    @property
    def messages(self) -> MessageQueries:
        """Questions about stored messages: by id, key, tag, place and time."""
        return self._adopt(MessageQueries(self._inner.messages))

    async def warm_up(self, *topics: str, timeout: float | timedelta | None = None) -> None:
        """Learn the routes of topics and connect to their brokers, before a send.

        `timeout` seconds in all (default `send_timeout`); a broker that cannot be
        reached in that time does not matter. Raises `RouteError` for a topic without a
        route, unless its first send may create it, and `ConnectError` or
        `RequestTimeoutError` when no name server tells.
        """
        return await self._call(self._inner.warm_up, *topics, timeout=timeout)

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that messages can be sent to.

        Raises `RouteError` when there is no route.
        """
        return await self._call(self._inner.publish_queues, topic)

    async def learn_topic_type(self, topic: str) -> None:
        """Ask for the type of a topic, once, so that `submit` can check messages.

        Without `check_message_type` nothing is asked.

        Raises `RouteError` when there is no route, `BrokerError` when the broker does
        not tell.
        """
        return await self._call(self._inner.learn_topic_type, topic)
