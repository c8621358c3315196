"""The producer."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, Unpack

import trio

from rocketmq_sdk.client.api.timers import handle_parts, recall_message
from rocketmq_sdk.client.callbacks import ProducerCallbacks
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.client.trace import TraceDispatcher
from rocketmq_sdk.errors import (
    ClosedError,
    ConfigurationError,
    SendTimeout,
    TooManyRequestsError,
)
from rocketmq_sdk.lifecycle import RunsOnce, bounded_cleanup, open_quiet_nursery
from rocketmq_sdk.names import check_group
from rocketmq_sdk.producer.accumulator import AccumulatedHandle, Accumulator
from rocketmq_sdk.producer.config import ProducerOptions, split_options
from rocketmq_sdk.producer.detector import Detector
from rocketmq_sdk.producer.fault_strategy import MQFaultStrategy, fault_profile
from rocketmq_sdk.producer.handle import Aim, SendHandle
from rocketmq_sdk.producer.hooks import SendHooks
from rocketmq_sdk.producer.message_type import TypeCheck
from rocketmq_sdk.producer.outgoing import (
    Batch,
    check_size,
    compressed,
    make_batch,
    properties_of,
    wrap_batch,
)
from rocketmq_sdk.producer.request_reply import RequestTable, request_properties
from rocketmq_sdk.producer.send import SendLoop
from rocketmq_sdk.producer.targets import TopicTable
from rocketmq_sdk.producer.trace import note_sent
from rocketmq_sdk.producer.under_way import UnderWay
from rocketmq_sdk.validators import to_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from datetime import timedelta

    from rocketmq_sdk.client.config import NamesrvSource
    from rocketmq_sdk.client.queries import MessageQueries
    from rocketmq_sdk.model.message import Message, ReceivedMessage
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.results import SendResult
    from rocketmq_sdk.producer.queue_selector import QueueSelector
    from rocketmq_sdk.protocol.command import Command

__all__ = ["Producer", "SendHandle"]

logger = logging.getLogger("rocketmq_sdk.producer")
SEND_V2: Final = 310
SEND_BATCH: Final = 320
DRAIN_TIMEOUT: Final = 10.0
LEAVE_TIMEOUT: Final = 1.0
COMPRESS_IN_THREAD: Final = 256 * 1024
_UNENDING: Final = float("inf")
_UNAIMED: Final = (None, None, None, None)


class Producer(ProducerCallbacks, RunsOnce):
    """Sends messages.

    Use it as `async with Producer("group", namesrv=...) as producer`.

    `namesrv` is a list of addresses or an `EmbeddedBroker` (unset: `NAMESRV_ADDR`); or
    `client=` shares a running `Client`. The options are those of `ProducerConfig` and,
    without `client=`, of `ClientConfig`. Leaving the block waits up to 10 s for
    messages under way (not at all when it is left by an exception or a cancellation)
    and unregisters the group. Raises `ConfigurationError` for settings that are unknown
    or not acceptable.
    """

    _second_time = "a producer runs once; make a new one"

    def __init__(
        self,
        group: str,
        *,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        check_group(group)
        self.group = ""
        self.config, client_options = split_options(options, shared_client=client is not None)
        if client is not None and namesrv is not None:
            raise ConfigurationError(
                "namesrv= and client= exclude each other; the client knows its name servers"
            )
        self._owns_client = client is None
        self.client = client if client is not None else Client(namesrv, **client_options)
        namespace = self.client.namespace
        self.group = namespace.wrap(group)
        self._more = f"INSTANCE_ID\x01{namespace.name}\x02" if namespace else ""
        self._strategy = MQFaultStrategy(fault_profile(self.config.fault_profile))
        self._topics = TopicTable(self.client, self.config, self.group, self._running_loop)
        self._under_way = UnderWay(self.config)
        self._loop: SendLoop | None = None
        self._attempts = 1 + self.config.retry_times
        self._timeout = self.config.send_timeout
        self._next_id = self.client.ids.next_id
        self._hooks = SendHooks(self.group, self.config)
        self._hooked = self._hooks.any
        if self._hooked:
            self._under_way.observers.append(self._hooks.after)
        self._accumulator: Accumulator | None = None
        if self.config.auto_batch is not None:
            go = lambda handle: self._go(handle, None, None, None)  # noqa: E731 - the queue is chosen when it goes
            self._accumulator = Accumulator(
                self.config, self.client.ids, self._more, go, self._under_way.abandoned
            )
        self._types = TypeCheck(self.client) if self.config.check_message_type else None
        self._requests = RequestTable()
        self._requested: set[str] = set()
        self._trace = (
            TraceDispatcher(self.client, group, "PRODUCE")
            if self.client.config.enable_trace
            else None
        )
        if self._trace is not None:
            self._under_way.observers.append(self._note_sent)

    # --- life

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._owns_client:
                await stack.enter_async_context(self.client)
            self.client.register_producer(self.group, self)
            try:
                async with open_quiet_nursery() as nursery:
                    self._loop = SendLoop(
                        self.client, self.config, self._strategy, nursery, self._under_way.finished
                    )
                    try:
                        await self._start_services(nursery)
                        yield
                        await self._drain()
                    finally:
                        self._end()
                        if self._trace is not None:
                            await self._trace.aclose()
                        nursery.cancel_scope.cancel()
            finally:
                async with bounded_cleanup(LEAVE_TIMEOUT):
                    await self.client.unregister_producer(self.group)
                self._topics.release()

    async def _start_services(self, nursery: trio.Nursery) -> None:
        """Start what runs beside the sending; the loop is there."""
        if self.config.detector:
            detector = Detector(
                self.client,
                self._strategy,
                self._topics.any_topic,
                timeout=self.config.detect_timeout,
                interval=self.config.detect_interval,
            )
            nursery.start_soon(detector.run)
        if self._trace is not None:
            nursery.start_soon(self._trace.run)
        if self._accumulator is not None:
            nursery.start_soon(self._accumulator.run)

    async def _drain(self) -> None:
        """Take no more messages, and wait for those under way."""
        if self._accumulator is not None:
            self._accumulator.dispatch_all()
        loop, self._loop = self._loop, None
        assert loop is not None
        with trio.move_on_after(DRAIN_TIMEOUT):
            await self._under_way.settled()

    def _end(self) -> None:
        """Give up what is under way."""
        self._loop = None
        if self._accumulator is not None:
            self._accumulator.give_up()
        self._under_way.give_up(self.group)

    # --- sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
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
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        size = len(message.body)
        if self._types is not None:
            await self._hold_to_type((message,))
        if self._under_way.is_full(size):
            seconds = await self._under_way.wait_for_room(size, seconds, self._running_loop)
        if (
            self._accumulator is not None
            and (queue, selector, key, timeout) == _UNAIMED
            and self._accumulator.takes(message)
        ):
            return await self._accumulate(message).wait()
        if size >= COMPRESS_IN_THREAD and size >= self.config.compress_over:
            check_size(size, self.config.max_message_size)
            packed = await trio.to_thread.run_sync(compressed, message.body, self.config)
            return await self._start(
                message, queue, selector, key, seconds, packed
            ).wait_or_abandon()
        return await self._start(message, queue, selector, key, seconds).wait_or_abandon()

    def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout: float | timedelta | None = None,
    ) -> SendHandle | AccumulatedHandle:
        """Send one message without waiting; the rules are those of `send`.

        Synchronous, no task.

        Await the handle for the result. Raises `TooManyRequestsError` when
        `max_in_flight` messages or `max_in_flight_bytes` are under way,
        `ConfigurationError` for a message that is not acceptable, `ClosedError`; all
        else is told by the handle.
        """
        if self._under_way.is_full(len(message.body)):
            raise self._under_way.refusal()
        if self._types is not None:
            self._types.check(self._topics[message.topic], message)
        if (
            self._accumulator is not None
            and (queue, selector, key, timeout) == _UNAIMED
            and self._accumulator.takes(message)
        ):
            return self._accumulate(message)
        handle = self._start(
            message, queue, selector, key, self._timeout if timeout is None else to_seconds(timeout)
        )
        if handle.done and isinstance(handle.error, TooManyRequestsError) and not handle.unknown:
            handle.observed = True
            raise handle.error
        return handle

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Send one message in one attempt, without confirmation.

        Waits only for a route, a connection, and room in the connection's queue. Raises
        `RouteError`, `ConnectError`, `SendTimeout` (nothing was sent).
        """
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        with trio.move_on_after(seconds):
            await self._hold_to_type((message,))
            await self._oneway(message, queue, selector, key)
            return
        raise SendTimeout(
            f"the one-way message to {message.topic!r} found no way within {seconds:g} s",
            outcome_unknown=False,
        )

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout: float | timedelta | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request.

        They are stored one after another in one queue, all or none.

        The result's `message_id` holds all unique ids joined by commas, `queue_offset`
        is that of the first message. Never compressed. The rules and errors are those
        of `send`; `ConfigurationError` also for a batch that is empty, mixed, delayed
        or over `max_message_size` when encoded.
        """
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        await self._hold_to_type(messages)
        batch = make_batch(messages, self.config, self.client.ids)
        return await self._send_batch(batch, seconds, queue=queue, selector=selector, key=key)

    async def send_encoded_batch(
        self, topic: str, body: bytes, *, queue: MessageQueue | None = None
    ) -> SendResult:
        """As `send_batch`, for messages that `protocol.batch_codec` has encoded.

        Each has its unique id and `WAIT` true.

        The result's `message_id` is that of the request; hooks see one message with
        this body. What the body holds is not looked at.
        """
        return await self._send_batch(
            wrap_batch(topic, body, self.config, self.client.ids), self._timeout, queue=queue
        )

    async def _send_batch(self, batch: Batch, seconds: float, **aim: Unpack[Aim]) -> SendResult:
        if self._under_way.is_full(len(batch.body)):
            seconds = await self._under_way.wait_for_room(
                len(batch.body), seconds, self._running_loop
            )
        topic, message, now = self._topics[batch.topic], batch.message, trio.current_time()
        more = (
            batch.message_ids,
            batch.properties,
            batch.body,
            0,
            now,
            now + seconds,
            self._attempts,
            self._under_way.abandoned,
        )
        handle = SendHandle(topic, SEND_BATCH, message, *more)
        return await self._go(
            handle, aim.get("queue"), aim.get("selector"), aim.get("key")
        ).wait_or_abandon()

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
        parts = handle_parts(handle)
        await self._running_loop().find_route(parts.topic)
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        broker = parts.broker_name
        if self.client.brokers.address(broker) is None:
            # A proxy in front of the brokers has a name of its own.
            broker = next(
                (queue.broker_name for queue in await self.publish_queues(parts.topic)), broker
            )
        return await recall_message(self.client, parts, self.group, seconds, broker_name=broker)

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
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        deadline = trio.current_time() + seconds
        if message.topic not in self._requested:
            # A reply may reach any broker of the cluster, and each hands it only to
            # clients that it knows.
            self._topics[message.topic]  # in use from here on
            with trio.move_on_at(deadline):
                await self._running_loop().find_route(message.topic)
                await self.client.heartbeat_now()
            self._requested.add(message.topic)
        await self._hold_to_type((message,))
        correlation = self._requests.open()
        try:
            more = request_properties(correlation, self.client.client_id, seconds)
            left = max(0.0, deadline - trio.current_time())
            handle = self._start(
                message, aim.get("queue"), aim.get("selector"), aim.get("key"), left, more=more
            )
            await handle.wait_or_abandon()
            return await self._requests.reply(
                correlation, deadline, f"the request {handle.message_id} to {message.topic!r}"
            )
        finally:
            self._requests.close(correlation)

    def on_reply(self, command: Command) -> bool:
        """A reply has come (326); True when it answers a request of this producer."""
        return self._requests.take(command, self.client.clock.now_ms())

    async def flush(self) -> None:
        """Wait until all messages submitted so far are finished.

        Raises the error of the first one that has failed without anybody awaiting it;
        the error is raised once.
        """
        if self._accumulator is not None:
            self._accumulator.dispatch_all()
        await self._under_way.settled()
        self._under_way.raise_failure()

    @property
    def in_flight(self) -> int:
        """Messages handed over and not finished."""
        return len(self._under_way.handles)

    @property
    def messages(self) -> MessageQueries:
        """Questions about stored messages: by id, key, tag, place and time."""
        return self.client.messages

    # --- topics

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that messages can be sent to.

        Raises `RouteError` when there is no route.
        """
        targets = self._topics[topic]
        if not targets.current():
            await self._running_loop().find_route(topic)
            targets.current()
        return list(targets.queues)

    async def learn_topic_type(self, topic: str) -> None:
        """Ask for the type of a topic, once, so that `submit` can check messages.

        Without `check_message_type` nothing is asked.

        Raises `RouteError` when there is no route, `BrokerError` when the broker does
        not tell.
        """
        if self._types is not None:
            await self.publish_queues(topic)
            await self._types.learn(self._topics[topic])

    async def _hold_to_type(self, messages: Iterable[Message], kind: str | None = None) -> None:
        """With `check_message_type`, reject messages of another type than the topic."""
        if (types := self._types) is None:
            return
        for message in messages:
            await self.learn_topic_type(message.topic)
            types.check(self._topics[message.topic], message, kind)

    # --- inside

    def _running_loop(self) -> SendLoop:
        loop = self._loop
        if loop is None:
            raise ClosedError(
                "the producer is not open; enter it with `async with`, and send before its block "
                "is left"
            )
        return loop

    def _start(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
        seconds: float,
        packed: tuple[bytes, int] | None = None,
        more: str = "",
    ) -> SendHandle:
        topic = self._topics[message.topic]
        config = self.config
        body = message.body
        sys_flag = 0
        size = len(body)
        if not 0 < size <= config.max_message_size:
            check_size(size, config.max_message_size)
        if packed is not None:
            body, sys_flag = packed
        elif size >= config.compress_over:
            body, sys_flag = compressed(body, config)
        message_id = self._next_id()
        properties = properties_of(message, message_id, self._more + more)
        now = trio.current_time()
        handle = SendHandle(
            topic,
            message.send_code,
            message,
            message_id,
            properties,
            body,
            sys_flag,
            now,
            now + seconds,
            self._attempts,
            self._under_way.abandoned,
        )
        return self._go(handle, queue, selector, key)

    def _accumulate(self, message: Message) -> AccumulatedHandle:
        """Put a message into a batch."""
        assert self._accumulator is not None
        if self._loop is None:
            self._running_loop()
        return self._accumulator.add(self._topics[message.topic], message)

    @trio.lowlevel.enable_ki_protection
    def _go(
        self,
        handle: SendHandle,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
    ) -> SendHandle:
        loop = self._running_loop() if self._loop is None else self._loop
        if queue is not None or selector is not None or key is not None:
            handle.aim(queue, selector, key)
        if self._hooked:
            self._hooks.before(handle)
        under_way = self._under_way
        under_way.handles.add(handle)
        under_way.bytes += len(handle.body)
        loop.start(handle)
        return handle

    async def _oneway(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
    ) -> None:
        loop = self._running_loop()
        topic = self._topics[message.topic]
        check_size(len(message.body), self.config.max_message_size)
        message_id = self._next_id()
        body, sys_flag = (
            (message.body, 0)
            if len(message.body) < self.config.compress_over
            else compressed(message.body, self.config)
        )
        properties = properties_of(message, message_id, self._more)
        handle = SendHandle(
            topic,
            SEND_V2,
            message,
            message_id,
            properties,
            body,
            sys_flag,
            0.0,
            _UNENDING,
            1,
            self._under_way.abandoned,
        )
        if queue is not None or selector is not None or key is not None:
            handle.aim(queue, selector, key)
        if self._hooked:
            self._hooks.before(handle)
            self._hooks.after(handle)
        await loop.oneway(handle)

    def _note_sent(self, handle: SendHandle) -> None:
        assert self._trace is not None
        note_sent(self._trace, self.group, handle, self.client.clock.now_ms())
