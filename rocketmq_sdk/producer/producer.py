"""The producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

import trio

from rocketmq_sdk.client.api.timers import handle_parts, recall_message
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.errors import (
    RequestTimeoutError,
    SendTimeout,
    TooManyRequestsError,
)
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.producer.engine import SendEngine, connect_to_all
from rocketmq_sdk.producer.gathered import AccumulatedHandle
from rocketmq_sdk.producer.handle import Aim, SendHandle
from rocketmq_sdk.producer.health import ProducerHealth, health_of
from rocketmq_sdk.producer.outgoing import (
    Batch,
    check_message,
    check_messages,
    check_one_sharding_key,
    check_size,
    compressed,
    make_batch,
    no_message,
    wrap_batch,
)
from rocketmq_sdk.producer.queue_selector import UNSET
from rocketmq_sdk.producer.request_reply import request_properties
from rocketmq_sdk.validators import refuse_unknown, to_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from rocketmq_sdk.client.queries import MessageQueries
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.model.results import SendResult
    from rocketmq_sdk.producer.queue_selector import QueueSelector
    from rocketmq_sdk.protocol.command import Command

__all__ = ["Producer", "SendHandle"]

SEND_V2: Final = 310
SEND_BATCH: Final = 320
COMPRESS_IN_THREAD: Final = 256 * 1024
_NO_AIM: Final = Aim(queue=None, selector=None, key=UNSET)
_AIMS: Final = frozenset(_NO_AIM)


class Producer(SendEngine):
    """Sends messages.

    Use it as `async with Producer("group", namesrv=...) as producer`.

    `namesrv` is a list of addresses or an `EmbeddedBroker` (unset: `NAMESRV_ADDR`); or
    `client=` shares a running `Client`. The options are those of `ProducerConfig` and,
    without `client=`, of `ClientConfig`. Leaving the block waits up to 10 s for
    messages under way (not at all when it is left by an exception or a cancellation)
    and unregisters the group. Raises `ConfigurationError` for settings that are unknown
    or not acceptable.
    """

    # --- sending

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
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        try:
            size = len(message._body)
        except (AttributeError, TypeError):
            raise no_message(message) from None
        if self._types is not None:
            seconds = await self._hold_to_type((message,), seconds)
        if self._under_way.is_full(size):
            deadline = trio.current_time() + seconds
            with await self._under_way.wait_for_room(size, seconds, self._running_loop) as room:
                handle = await self._enter(message, queue, selector, key, timeout, room.seconds)
            if isinstance(handle, AccumulatedHandle):  # its batch has a time of its own
                return await handle.wait_until(deadline)
        elif size >= COMPRESS_IN_THREAD:
            with self._under_way.take_room(size):
                handle = await self._enter(message, queue, selector, key, timeout, seconds)
        elif self._accumulator is None:
            handle = self._start(message, queue, selector, key, seconds)
        else:
            handle = await self._enter(message, queue, selector, key, timeout, seconds)
        return await handle.wait_or_abandon()

    def begin(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
        timeout: float | timedelta | None,
    ) -> SendHandle | AccumulatedHandle | None:
        """Start a `send` that has nothing to wait for; None for one that has.

        For doors, whose users wait outside of trio.
        """
        try:
            size = len(message._body)
        except (AttributeError, TypeError):
            raise no_message(message) from None
        if size >= COMPRESS_IN_THREAD or self._types is not None or self._under_way.is_full(size):
            return None
        if (
            (accumulator := self._accumulator) is not None
            and queue is None
            and selector is None
            and key is UNSET
            and timeout is None
            and accumulator.takes(message)
        ):
            return self._accumulate(accumulator, message)
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        return self._start(message, queue, selector, key, seconds)

    async def _enter(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
        timeout: float | timedelta | None,
        seconds: float,
    ) -> SendHandle | AccumulatedHandle:
        """Hand a message over, in a batch or compressed in a thread if need be."""
        if (
            (accumulator := self._accumulator) is not None
            and queue is None
            and selector is None
            and key is UNSET
            and timeout is None
            and accumulator.takes(message)
        ):
            return self._accumulate(accumulator, message)
        size, packed = len(message._body), None
        if size >= COMPRESS_IN_THREAD and size >= self.config.compress_over:
            check_size(size, self.config.max_message_size)
            deadline = trio.current_time() + seconds
            packed = await trio.to_thread.run_sync(compressed, message.body, self.config)
            seconds = max(0.0, deadline - trio.current_time())
        return self._start(message, queue, selector, key, seconds, packed)

    @trio.lowlevel.enable_ki_protection
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
        accumulator = self._accumulator
        if accumulator is not None:
            if queue is not None or selector is not None or key is not UNSET or timeout is not None:
                accumulator = None
            elif (latest := accumulator.latest) is not None:
                joined = latest.take(message)
                if joined is not None:
                    return joined
        try:
            size = len(message._body)
        except (AttributeError, TypeError):
            raise no_message(message) from None
        if self._under_way.is_full(size):
            raise self._under_way.refusal()
        if self._types is not None:
            self._types.check(self._topics[message.topic], message)
        if accumulator is not None and accumulator.takes(message):
            return self._accumulate(accumulator, message)
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        handle = self._start(message, queue, selector, key, seconds, unawaited=True)
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
        key: object = UNSET,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Send one message in one attempt, without confirmation.

        Waits only for a route, a connection, and room in the connection's queue. Raises
        `RouteError`, `ConnectError`, `SendTimeout` (nothing was sent).
        """
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        check_message(message)
        self._running_loop()
        deadline = trio.current_time() + seconds
        with trio.move_on_at(deadline):
            await self._hold_to_type((message,), seconds)
            await self._oneway(message, queue, selector, key, deadline)
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
        check_messages(messages)
        aim = Aim(queue=queue, selector=selector, key=key)
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        if self._types is not None:
            seconds = await self._hold_to_type(messages, seconds)
        return await self._send_batch(*self._join(messages, aim, seconds), **aim)

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
        self._check_batch_room(messages)
        if self._types is not None:
            for message in messages:
                self._types.check(self._topics[message.topic], message)
        self._running_loop()
        aim = Aim(queue=queue, selector=selector, key=key)
        batch, seconds = self._join(messages, aim, timeout)
        try:
            handle = self._start_batch(batch, seconds, **aim)
        except BaseException as error:
            self._hooks.forget(batch.message_ids, error)
            raise
        if handle.done and isinstance(handle.error, TooManyRequestsError) and not handle.unknown:
            handle.observed = True
            raise handle.error
        return handle

    def _join(
        self, messages: Sequence[Message], aim: Aim, timeout: float | timedelta | None
    ) -> tuple[Batch, float]:
        """One request for some messages, which observers see, and its seconds."""
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        if aim == _NO_AIM:
            check_one_sharding_key(messages)
        if not self._hooks.observers:
            return make_batch(messages, self.config, self.client.ids, self._forms), seconds
        made: list[Batch] = []

        def encode(messages: Sequence[Message]) -> str:
            made.append(make_batch(messages, self.config, self.client.ids, self._forms))
            return made[0].message_ids

        self._hooks.join(messages, encode)
        return made[0], seconds

    @checked
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
        try:
            self._running_loop()
            if self._under_way.is_full(len(batch.body)):
                with await self._under_way.wait_for_room(
                    len(batch.body), seconds, self._running_loop
                ) as room:
                    handle = self._start_batch(batch, room.seconds, **aim)
            else:
                handle = self._start_batch(batch, seconds, **aim)
        except BaseException as error:
            self._hooks.forget(batch.message_ids, error)
            raise
        return await handle.wait_or_abandon()

    def _start_batch(self, batch: Batch, seconds: float, **aim: Unpack[Aim]) -> SendHandle:
        now = trio.current_time()
        handle = SendHandle(
            self._topics[batch.topic],
            SEND_BATCH,
            batch.message,
            batch.properties,
            batch.body,
            0,
            now,
            now + seconds,
            self._attempts,
            self._under_way,
        )
        handle.name(batch.message_ids)
        return self._go(handle, **aim)

    @checked
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
        loop = self._running_loop()
        parts = handle_parts(handle)
        broker = parts.broker_name
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        deadline = trio.current_time() + seconds
        with trio.move_on_at(deadline) as asking:
            await loop.find_route(parts.topic)
            if self.client.brokers.address(broker) is None:
                # A proxy in front of the brokers has a name of its own.
                broker = next(
                    (queue.broker_name for queue in await self.publish_queues(parts.topic)), broker
                )
        if asking.cancelled_caught:
            raise _no_route_in_time(parts.topic, seconds)
        left = max(0.0, deadline - trio.current_time())
        return await recall_message(self.client, parts, self._group, left, broker_name=broker)

    @checked
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
        refuse_unknown(aim, _AIMS, "request()")
        check_message(message)
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        self._running_loop()
        deadline = trio.current_time() + seconds
        if message.topic not in self._requested:
            # A reply may reach any broker of the cluster, and each hands it only to
            # clients that it knows.
            self._topics[message.topic]  # in use from here on
            with trio.move_on_at(deadline):
                await self._running_loop().find_route(message.topic)
                await self.client.heartbeat_now()
                self._requested.add(message.topic)
        await self._hold_to_type((message,), max(0.0, deadline - trio.current_time()))
        correlation = self._requests.open()
        try:
            more = request_properties(correlation, self.client.client_id, seconds)
            left = max(0.0, deadline - trio.current_time())
            size = len(message._body)
            if self._under_way.is_full(size):
                with await self._under_way.wait_for_room(size, left, self._running_loop) as room:
                    handle = self._start_request(message, room.seconds, more, **aim)
            else:
                handle = self._start_request(message, left, more, **aim)
            await handle.wait_or_abandon()
            return await self._requests.reply(
                correlation, deadline, f"the request {handle.message_id} to {message.topic!r}"
            )
        finally:
            self._requests.close(correlation)

    def _start_request(
        self, message: Message, seconds: float, more: str, **aim: Unpack[Aim]
    ) -> SendHandle:
        queue, selector, key = aim.get("queue"), aim.get("selector"), aim.get("key", UNSET)
        return self._start(message, queue, selector, key, seconds, more=more)

    def on_reply(self, command: Command) -> bool:
        """A reply has come (326); True when it answers a request of this producer."""
        return self._requests.take(command, self.client.clock.now_ms())

    async def flush(self) -> None:
        """Wait until all messages submitted so far are finished.

        Raises the error of the first one that has failed without anybody awaiting it;
        the error is raised once, and those of the others are logged.
        """
        self.check_run()
        if self._accumulator is not None:
            self._accumulator.dispatch_all()
        await self._under_way.settled()
        self._under_way.raise_failure()

    def health(self) -> ProducerHealth:
        """Whether messages can be sent and, if not, why, in plain words.

        Of the topics that were sent to, their brokers, and each name server. Makes no
        requests: it reports what the producer knows.
        """
        self.check_run()
        if self._loop is None:
            return ProducerHealth(False, ("it is not open: use it inside its `async with` block",))
        return health_of(self.client, self._topics.values(), self._strategy, self._under_way)

    @property
    def in_flight(self) -> int:
        """Messages handed over and not finished.

        Those of an automatic batch count each for itself, those of `send_batch` and
        `submit_batch` as one.
        """
        return self._under_way.count

    @property
    def messages(self) -> MessageQueries:
        """Questions about stored messages: by id, key, tag, place and time."""
        return self.client.messages

    # --- topics

    @checked
    async def warm_up(self, *topics: str, timeout: float | timedelta | None = None) -> None:
        """Learn the routes of topics and connect to their brokers, before a send.

        `timeout` seconds in all (default `send_timeout`); a broker that cannot be
        reached in that time does not matter. Raises `RouteError` for a topic without a
        route, unless its first send may create it, and `ConnectError` or
        `RequestTimeoutError` when no name server tells.
        """
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        self._running_loop()
        deadline = trio.current_time() + seconds
        with trio.move_on_at(deadline) as asking:
            async with open_quiet_nursery() as nursery:
                for topic in topics:
                    nursery.start_soon(self.publish_queues, topic)
        if asking.cancelled_caught:
            raise _no_route_in_time(", ".join(topics), seconds)
        targets = [target for topic in topics for target in self._topics[topic].targets]
        await connect_to_all({target.address for target in targets}, self.client, deadline)

    @checked
    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that messages can be sent to.

        Raises `RouteError` when there is no route.
        """
        loop, targets = self._running_loop(), self._topics[topic]
        if not targets.current():
            await loop.find_route(topic)
            targets.current()
        return list(targets.queues)

    @checked
    async def learn_topic_type(self, topic: str) -> None:
        """Ask for the type of a topic, once, so that `submit` can check messages.

        Without `check_message_type` nothing is asked.

        Raises `RouteError` when there is no route, `BrokerError` when the broker does
        not tell.
        """
        self.check_run()
        if self._types is not None:
            await self.publish_queues(topic)
            await self._types.learn(self._topics[topic])

    async def _hold_to_type(
        self, messages: Iterable[Message], seconds: float, kind: str | None = None
    ) -> float:
        """With `check_message_type`, reject messages of another type than the topic.

        Returns what is left of the seconds. Raises `SendTimeout` when nobody has told
        the type in that time.
        """
        if (types := self._types) is None:
            return seconds
        deadline = trio.current_time() + seconds
        with trio.move_on_at(deadline):
            for message in messages:
                await self.learn_topic_type(message.topic)
                types.check(self._topics[message.topic], message, kind)
            return max(0.0, deadline - trio.current_time())
        raise SendTimeout(
            f"no broker has told the type of the topic within {seconds:g} s", outcome_unknown=False
        )


def _no_route_in_time(topics: str, seconds: float) -> RequestTimeoutError:
    return RequestTimeoutError(
        f"no name server has told the routes of {topics} within {seconds:g} s",
        outcome_unknown=False,
    )
