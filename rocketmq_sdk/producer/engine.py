"""The sending machinery of a producer: its life, and how a message enters it."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Final, Unpack

import trio
from trio.lowlevel import current_clock

from rocketmq_sdk.client.callbacks import ProducerCallbacks
from rocketmq_sdk.client.runtime import Client, check_client
from rocketmq_sdk.client.trace import TraceDispatcher
from rocketmq_sdk.errors import ClosedError, ConfigurationError, RocketMQError
from rocketmq_sdk.lifecycle import RunsOnce, bounded_cleanup, open_quiet_nursery
from rocketmq_sdk.names import check_group, check_send_topic
from rocketmq_sdk.producer.accumulator import Accumulator
from rocketmq_sdk.producer.config import ProducerOptions, split_options
from rocketmq_sdk.producer.detector import Detector
from rocketmq_sdk.producer.fault_strategy import MQFaultStrategy, fault_profile
from rocketmq_sdk.producer.handle import SendHandle, check_aim
from rocketmq_sdk.producer.hooks import SendHooks
from rocketmq_sdk.producer.message_type import TypeCheck
from rocketmq_sdk.producer.outcome import final_error
from rocketmq_sdk.producer.outgoing import (
    CheckedMessages,
    Forms,
    batch_parts,
    check_messages,
    check_one_sharding_key,
    check_size,
    compressed,
    leaving_body,
    no_message,
    tail_of,
)
from rocketmq_sdk.producer.queue_selector import UNSET
from rocketmq_sdk.producer.request_reply import RequestTable
from rocketmq_sdk.producer.send import SendLoop
from rocketmq_sdk.producer.targets import TopicTable, named_queue
from rocketmq_sdk.producer.trace import note_sent
from rocketmq_sdk.producer.under_way import UnderWay
from rocketmq_sdk.validators import to_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from datetime import timedelta

    from rocketmq_sdk.client.config import NamesrvSource
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.producer.gathered import AccumulatedHandle
    from rocketmq_sdk.producer.queue_selector import QueueSelector
    from rocketmq_sdk.producer.under_way import Failure

logger = logging.getLogger("rocketmq_sdk.producer")
DRAIN_TIMEOUT: Final = 10.0
LEAVE_TIMEOUT: Final = 1.0


def _closed() -> ClosedError:
    return ClosedError(
        "the producer is not open; enter it with `async with`, and send before its block is left"
    )


class SendEngine(ProducerCallbacks, RunsOnce):
    """A producer without its calls: settings, parts, life, and the start of a message.

    `Producer` adds what users call.
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
        self.group = group
        self._group = ""
        self.config, client_options = split_options(options, shared_client=client is not None)
        if client is not None and namesrv is not None:
            raise ConfigurationError(
                "namesrv= and client= exclude each other; the client knows its name servers"
            )
        check_client(client)
        self._owns_client = client is None
        self.client = client if client is not None else Client(namesrv, **client_options)
        namespace = self.client.namespace
        self._group = namespace.wrap(group)
        self._more = f"INSTANCE_ID\x01{namespace.name}\x02" if namespace else ""
        self._strategy = MQFaultStrategy(fault_profile(self.config.fault_profile))
        self._topics = TopicTable(self.client, self.config, self._group, self._running_loop)
        self._under_way = UnderWay(self.config, self.check_run, self.client.ids.next_id)
        self._loop: SendLoop | None = None
        self._attempts = self.config.most_attempts
        self._timeout = self.config.send_timeout
        self._id_digits = self.client.ids.digits
        self._forms = Forms(self._id_digits)
        self._hooks = SendHooks(self._group, self.config, self.client.client_id)
        self._hooked = self._hooks.any
        self._departures = self._hooks.departures
        if self._hooked:
            self._under_way.sweeps.append(self._hooks.after)
        self._types = TypeCheck(self.client) if self.config.check_message_type else None
        self._accumulator: Accumulator | None = None
        if self.config.auto_batch is not None:
            self._accumulator = Accumulator(
                self.config,
                self.client.ids,
                self._more,
                self._launch,
                self._under_way,
                looked_at=bool(self._hooks.observers) or self._types is not None,
            )
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
            self.client.register_producer(self._group, self)
            try:
                async with open_quiet_nursery() as nursery:
                    self._loop = SendLoop(
                        self.client,
                        self.config,
                        self._strategy,
                        nursery,
                        self._under_way,
                        self._turned,
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
                    await self.client.unregister_producer(self._group)
                self._topics.release()

    async def _start_services(self, nursery: trio.Nursery) -> None:
        """Start what runs beside the sending; the loop is there."""
        if self.config.probing:
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

    def _turned(self) -> None:
        """A turn of the loop is over in which something was handed over."""
        self._hooks.close()

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
        self._under_way.give_up(self._group)

    # --- checks, which the threads of doors make before trio takes a message

    def _check_submit(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
        timeout: float | timedelta | None,
        ahead: int,
    ) -> None:
        """Raise what `submit` would raise of a message, but for what hooks raise.

        `ahead` messages are about to be submitted. It may be called in any thread.
        """
        try:
            size = len(message._body)
        except (AttributeError, TypeError):
            raise no_message(message) from None
        self._under_way.check_room(size, ahead)
        most = self.config.max_message_size
        if not 0 < size <= most:
            check_size(size, most)
        if message._topic not in self._topics:
            check_send_topic(message._topic)
        tail_of(message, self._id_digits, self._more)
        if queue is not None or selector is not None or key is not UNSET:
            self._check_aim(message, queue, selector, key)
        if timeout is not None:
            to_seconds(timeout)
        if self._types is not None:
            self._types.check_named(self.client.namespace.wrap(message._topic), message)

    def _check_submit_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
        timeout: float | timedelta | None,
        ahead: int,
    ) -> CheckedMessages:
        """`_check_submit` for messages in one request. Gives a copy of them."""
        self._check_batch_room(messages, ahead)
        messages = [*messages]
        aimed = queue is not None or selector is not None or key is not UNSET
        if aimed:
            self._check_aim(messages[0], queue, selector, key)
        else:
            check_one_sharding_key(messages)
        if timeout is not None:
            to_seconds(timeout)
        parts = batch_parts(messages, self.config, self._forms)
        if self._types is not None:
            full = self.client.namespace.wrap(messages[0]._topic)
            for message in messages:
                self._types.check_named(full, message)
        return CheckedMessages(messages, parts)

    def _check_batch_room(self, messages: Sequence[Message], ahead: int = 0) -> None:
        check_messages(messages)
        if not messages:
            raise ConfigurationError("the batch is empty")
        self._under_way.check_room(sum([len(message._body) for message in messages]), ahead)

    def _check_aim(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
    ) -> None:
        check_aim(queue, selector, key)
        if queue is not None:
            namespace = self.client.namespace
            full = namespace.wrap(message._topic)
            named_queue(queue, full, namespace.unwrap(full))

    def _refused(self, failure: Failure) -> None:
        """A door has handed over what was not taken; its users learn of it later."""
        self._under_way.note_failure(failure)

    # --- messages

    def _running_loop(self) -> SendLoop:
        self.check_run()
        loop = self._loop
        if loop is None:
            raise _closed()
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
        *,
        unawaited: bool = False,
    ) -> SendHandle:
        topic = self._topics[message._topic]
        config = self.config
        body = message._body
        sys_flag = 0
        size = len(body)
        if not 0 < size <= config.max_message_size:
            check_size(size, config.max_message_size)
        if packed is not None:
            body, sys_flag = packed
        elif size >= config.compress_over:
            body, sys_flag = compressed(body, config)
        tail = tail_of(message, self._id_digits, self._more + more)
        try:
            clock = current_clock()
        except RuntimeError:
            clock = None
        if clock is None or clock is not self._run_clock:
            self.check_run()
            raise _closed()
        now = clock.current_time()
        handle = SendHandle(
            topic,
            message.send_code,
            message,
            tail,
            body,
            sys_flag,
            now,
            now + seconds,
            self._attempts,
            self._under_way,
        )
        return self._go(handle, queue, selector, key, unawaited=unawaited)

    def _accumulate(self, accumulator: Accumulator, message: Message) -> AccumulatedHandle:
        """Put a message into a batch."""
        # The thread tells less than the clock, and costs half: in the thread of the run
        # nothing can go wrong but the beginning of a batch, which asks for the time.
        if self._loop is None or get_ident() != self._run_thread:
            self._running_loop()
        if not self._hooks.observers:
            return accumulator.add(self._topics[message._topic], message)
        add = partial(accumulator.add, self._topics[message.topic])
        return self._hooks.gather(message, add)

    @trio.lowlevel.enable_ki_protection
    def _go(
        self,
        handle: SendHandle,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = UNSET,
        *,
        unawaited: bool = False,
    ) -> SendHandle:
        loop = self._running_loop() if self._loop is None else self._loop
        if (
            key is not UNSET
            or queue is not None
            or selector is not None
            or (not handle.message._is_plain and handle.message.sharding_key)
        ):
            self._aim(handle, queue, selector, key)
        if self._hooked:
            self._hooks.before(handle)
        self._under_way.admit(handle)
        try:
            loop.start(handle, unawaited=unawaited)
            for departures in self._departures:
                if departures.begun and departures.takes_more():
                    loop.stir()
        except Exception as error:
            logger.exception("%r could not be started", handle)
            self._under_way.end(handle, None, error)
        except BaseException as error:
            self._under_way.break_off(handle, error)
            raise
        return handle

    def _aim(
        self,
        handle: SendHandle,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
    ) -> None:
        """Let the caller choose the queue, else the message's sharding key."""
        if queue is None and selector is None and key is UNSET:
            key = handle.message.sharding_key or UNSET
            if key is UNSET:
                return
        attempts = handle.attempts if self.config.retry_until_deadline else 1
        handle.aim(queue, selector, key, attempts)

    @trio.lowlevel.enable_ki_protection
    def _launch(self, handle: SendHandle) -> None:
        """Start a batch that was admitted with its first message.

        Raises what a hook raises, `ClosedError`.
        """
        loop = self._running_loop()
        self._aim(handle, None, None, UNSET)
        if self._hooked:
            self._hooks.before(handle, gathered=True)
        loop.start(handle)

    async def _oneway(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
        deadline: float,
    ) -> None:
        loop = self._running_loop()
        topic = self._topics[message.topic]
        check_size(len(message.body), self.config.max_message_size)
        body, sys_flag = leaving_body(message, self.config)
        tail = tail_of(message, self._id_digits, self._more)
        handle = SendHandle(
            topic,
            message.send_code,
            message,
            tail,
            body,
            sys_flag,
            0.0,
            deadline,
            1,
            self._under_way,
        )
        self._aim(handle, queue, selector, key)
        if self._hooked:
            self._hooks.before(handle)
        try:
            await loop.oneway(handle)
        except RocketMQError as error:  # perhaps that of a question for a route
            handle.error = final_error(error, unknown=False)
            raise handle.error from handle.error.__cause__
        except Exception as error:
            handle.error = error
            raise
        finally:
            if self._hooked:
                self._hooks.after((handle,))

    def _note_sent(self, handle: SendHandle) -> None:
        assert self._trace is not None
        note_sent(self._trace, self._group, handle, self.client.clock.now_ms())


async def connect_to_all(addresses: Iterable[str], client: Client, deadline: float) -> None:
    """Connect to brokers side by side, until a moment of trio's clock.

    What fails is logged.
    """

    async def connect(address: str) -> None:
        try:
            await client.remoting.channel(address, max(0.0, deadline - trio.current_time()))
        except RocketMQError as error:
            logger.info("%s cannot be connected in advance: %s", address, error)

    async with trio.open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(connect, address)
