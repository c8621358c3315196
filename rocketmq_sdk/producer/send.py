"""The send loop: attempts, what follows from them, and the end of a message.

Follows `DefaultMQProducerImpl.sendDefaultImpl` and `sendKernelImpl`.

It is driven by callbacks of channels instead of a task for each message: an attempt is
handed to a channel, the channel's reader runs `_answered`, and the next attempt starts
from there. Only a missing route or connection costs a task, one for all messages that
need it. The rules are those of `client.retry`; all attempts of a message share its
deadline and its unique id.
"""

from __future__ import annotations

import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.backoff import Backoff
from rocketmq_sdk.client.retry import SEND_STATUS, Next, judge_error
from rocketmq_sdk.client.routes import DefaultTopic
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import (
    BrokerError,
    ClosedError,
    ConnectError,
    FieldError,
    RequestTimeoutError,
    RocketMQError,
    SendTimeout,
    broker_error,
)
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.producer.fault_strategy import UNANSWERED
from rocketmq_sdk.producer.outbox import SHARE, Outbox
from rocketmq_sdk.producer.outcome import Answers, final_error, log_retry, no_queue, used_up
from rocketmq_sdk.producer.timekeeper import Timekeeper
from rocketmq_sdk.producer.waiting_room import WaitingRoom
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.model.results import SendResult
    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.producer.fault_strategy import MQFaultStrategy
    from rocketmq_sdk.producer.handle import SendHandle
    from rocketmq_sdk.producer.targets import Target
    from rocketmq_sdk.producer.under_way import UnderWay
    from rocketmq_sdk.remoting.channel import Channel, PendingCall

logger = logging.getLogger("rocketmq_sdk.producer")
_SEND_OK: Final = SendStatus.SEND_OK
_BATCH: Final = 320
ONEWAY_HIGH_WATER: Final = 4 * 1024 * 1024
_GO_AWAY: Final = ResponseCode.GO_AWAY
LEAST_SILENCE: Final = 0.25
"""Seconds without an answer that tell something of a broker.

Who gives a message less time than that must not set brokers apart.
"""
PAUSES: Final = Backoff(first=0.05, limit=1.0)
"""Between attempts of a producer that tries until the deadline."""


class SendLoop:
    """Takes the messages that `under_way` has admitted through their attempts."""

    def __init__(
        self,
        client: Client,
        config: ProducerConfig,
        strategy: MQFaultStrategy,
        nursery: trio.Nursery,
        under_way: UnderWay,
        turned: Callable[[], None],
    ) -> None:
        self._client = client
        self._config, self._strategy = config, strategy
        self._under_way = under_way
        self._limit = config.send_timeout_per_attempt
        self._first_attempts = 1 + config.retry_times
        self._persistent = config.retry_until_deadline
        # A broker in this process has answered before `submit` returned, so that no
        # message finds another one under way.
        self._at_once = self._concluding = False
        self._gathers = (
            not client.remoting.interceptors
            and client.config.header_encoding is HeaderEncoding.JSON
        )
        answers = Answers(self.answered, under_way, strategy)
        self._result = answers.result
        self._outbox = Outbox(
            self._free_channel,
            now_ms=client.clock.now_ms,
            next_ids=client.ids.next_ids,
            answered=answers,
            judge=self._conclude,
            go_alone=self._leave_alone,
            limit=self._limit,
            turned=turned,
        )
        self.stir = self._outbox.stir
        nursery.start_soon(self._outbox.run)
        self.timekeeper = Timekeeper(under_way.handles, expired=self._expired, resume=self._resumed)
        self._channel_nowait = client.remoting.channel_nowait
        self._interceptors = client.remoting.interceptors
        self._now_ms, self._next_id = client.clock.now_ms, client.ids.next_id
        self._encoding = client.config.header_encoding
        self._default = DefaultTopic(config.create_topic_key, config.default_topic_queue_nums)
        self._routes = WaitingRoom(
            nursery,
            self.find_route,
            ready=self._routed,
            failed=self._no_route,
            expired=self._expired,
        )
        self._connections = WaitingRoom(
            nursery,
            self._connect,
            ready=self._connected,
            failed=self._not_connected,
            expired=self._not_connected_in_time,
            limited=True,
        )
        nursery.start_soon(self.timekeeper.run)

    async def find_route(self, topic: str) -> None:
        """Ask for the route of a topic, or of the default topic if there is none."""
        await self._client.routes.fetch(topic, self._default)

    async def _connect(self, address: str) -> None:
        await self._client.remoting.channel(address, self._client.config.connect_timeout)

    # --- the way of one message

    def start(self, handle: SendHandle, *, unawaited: bool = False) -> None:
        """Make the next attempt now, or as soon as the route is known.

        `unawaited`: whoever hands it over does not wait for it now, and may hand over
        more.
        """
        topic = handle.topic
        if handle.deadline < self.timekeeper.due:
            self.timekeeper.watch(handle.deadline)
        if not topic.current() or topic.topic in self._routes.waiting:
            self._routes.enter(topic.topic, handle)
        elif (
            self._gathers
            and (self._under_way.count > 1 or (unawaited and self._at_once))
            and handle.queue is None
            and handle.selector is None
            and not self._strategy.active
            and handle.is_plain
        ):
            self._outbox.put(handle)
        else:
            if self._outbox.handles:
                self._outbox.empty()
            self._choose(handle)

    def _leave_alone(self, handle: SendHandle) -> None:
        """A message cannot leave with others; its topic may have lost its queues."""
        if handle.topic.current():
            self._choose(handle)
        else:
            self._routes.enter(handle.topic.topic, handle)

    def _free_channel(self, address: str) -> Channel | None:
        """The open connection to a broker, unless others wait for one."""
        if address in self._connections.waiting:
            return None
        return self._channel_nowait(address)

    def _routed(self, handle: SendHandle) -> None:
        handle.started = 0.0
        if handle.topic.current():
            self._choose(handle)
        else:
            self._stopped(handle, no_queue(handle.topic))

    def _no_route(self, handle: SendHandle, error: RocketMQError) -> None:
        if handle.target is not None and handle.topic.current():
            # The route was asked for again between two attempts; the old one has to do.
            handle.started = 0.0
            self._choose(handle)
        else:
            self._stopped(handle, error)

    def _stopped(self, handle: SendHandle, error: RocketMQError) -> None:
        """There is nowhere to send a message to."""
        if self._persistent and error.retryable:
            handle.attempts -= 1
            self._rest(handle, error)
        else:
            self.finish(handle, handle.stored, error)

    def _choose(self, handle: SendHandle) -> None:
        """Choose the queue of the next attempt and go on to it."""
        try:
            target = self.next_target(handle)
        except Exception as error:  # noqa: BLE001
            # The selector is the caller's function; its error is the outcome of this
            # message.
            self.finish(handle, None, error)
            return
        handle.target = target
        self._attempt(handle, target)

    def next_target(self, handle: SendHandle) -> Target:
        """The target of the next attempt; the route is known.

        Raises what a caller's selector raises.
        """
        topic = handle.topic
        if handle.queue is not None:
            return topic.of_queue(handle.queue)
        if handle.selector is not None:
            return topic.selected(handle.selector, handle.message, handle.key)
        if handle.last_broker is None and not self._strategy.active:
            targets = topic.targets
            return targets[topic.index.next() % len(targets)]
        return topic.another(self._strategy, handle.last_broker, self._monotonic_ms())

    def _attempt(self, handle: SendHandle, target: Target) -> None:
        """Hand one attempt to the connection of the target's broker."""
        now = handle.started
        if not now:
            now = handle.started = trio.current_time()
        timeout = (handle.limit or handle.deadline) - now
        if timeout <= 0.0:
            self._not_connected_in_time(handle)
            return
        if handle.attempts > 1 and not handle.limit:
            if self._limit is not None:
                timeout = min(timeout, self._limit)
            elif handle.topic.several and self._another_is_there(handle, target):
                timeout *= SHARE
        channel = self._channel_nowait(target.address)
        if channel is None or target.address in self._connections.waiting:
            handle.limit = now + timeout
            self._connections.enter(target.address, handle)
            return
        handle.attempts -= 1
        handle.channel = channel
        if channel.in_process and self._gathers and not self._concluding and handle.is_plain:
            self._hand_over(handle, target, channel, timeout)
            return
        try:
            command = self.command(handle, target)
        except Exception as error:  # noqa: BLE001
            # An interceptor is the caller's code; its error is the outcome of this
            # message.
            self.finish(handle, handle.stored, error)
            return
        try:
            answered = (
                partial(self._concluded, handle, command)
                if self._interceptors
                else partial(self.answered, handle)
            )
            handle.call = call = channel.submit(command, timeout, answered)
            if call.done:
                self._at_once = True
        except RocketMQError as error:
            self._failed(handle, error)

    def _hand_over(
        self, handle: SendHandle, target: Target, channel: Channel, timeout: float
    ) -> None:
        """Hand a plain message to a broker in this process."""
        self._at_once = True
        now_ms = self._now_ms()
        if not handle._id:
            handle.name(self._next_id(now_ms))
        known = None if handle.sys_flag else target.template
        template = known or handle.topic.template_of(target, half=handle.is_half)
        values = {"g": str(now_ms), "i": f"UNIQ_KEY\x01{handle._id}\x02{handle.tail}"}
        try:
            call = channel.submit_template(
                (template, values, handle.body), timeout, partial(self.answered, handle)
            )
        except RocketMQError as error:
            self._failed(handle, error)
            return
        if isinstance(call, Command):
            if not handle.done:
                # What follows from an answer must not lead deeper and deeper in here.
                self._concluding = True
                try:
                    self._conclude(handle, call)
                finally:
                    self._concluding = False
        elif not call.done:
            handle.call = call

    def _another_is_there(self, handle: SendHandle, target: Target) -> bool:
        """Whether another broker could take the message if this one does not answer."""
        if handle.queue is not None or handle.selector is not None:
            return False
        strategy = self._strategy
        return not strategy.active or any(
            strategy.is_good(other.broker_name, self._monotonic_ms())
            for other in handle.topic.targets
            if other.broker_name != target.broker_name
        )

    async def oneway(self, handle: SendHandle) -> None:
        """Send a message without confirmation. Raises `RouteError`, `ConnectError`.

        Waits for a route, a connection, and room in the connection's queue.
        """
        topic = handle.topic
        if self._outbox.handles:
            self._outbox.empty()
        if not topic.current():
            await self.find_route(topic.topic)
            if not topic.current():
                raise no_queue(topic)
        handle.started = trio.current_time()
        target = self.next_target(handle)
        try:
            channel = self._channel_nowait(target.address) or await self._client.remoting.channel(
                target.address, self._client.config.connect_timeout
            )
        except (ConnectError, trio.Cancelled) as error:  # the next one goes elsewhere
            if isinstance(error, ConnectError):
                self._note_failure(handle, target, error)
            elif trio.current_time() >= handle.deadline:
                self._note_failure(handle, target, ConnectError("not connected in time"))
            raise
        channel.send_oneway(self.command(handle, target, oneway=True))
        if channel.unsent_bytes() > ONEWAY_HIGH_WATER:
            await channel.drained()
        else:
            await trio.lowlevel.checkpoint()

    def command(self, handle: SendHandle, target: Target, *, oneway: bool = False) -> Command:
        """The request of one attempt."""
        fields = handle.topic.template.copy()
        fields["e"] = target.queue_id_text
        now_ms = self._now_ms()
        fields["g"] = str(now_ms)
        fields["n"] = target.broker_name
        if handle.sys_flag:
            fields["f"] = str(handle.sys_flag)
        if handle.code == _BATCH:
            fields["i"] = handle.tail
            fields["m"] = "true"
        else:
            if not handle._id:
                handle.name(self._next_id(now_ms))
            fields["i"] = f"UNIQ_KEY\x01{handle._id}\x02{handle.tail}"
            message = handle.message
            if not message.is_plain and message.flag:
                fields["h"] = str(message.flag)
        command = Command(
            handle.code,
            flag=2 if oneway else 0,
            ext_fields=fields,
            body=handle.body,
            encoding=self._encoding,
        )
        if self._interceptors:
            self._client.remoting.prepare(target.address, command)
        return command

    def _connected(self, handle: SendHandle) -> None:
        target = handle.target
        assert target is not None
        handle.started = 0.0
        if self._channel_nowait(target.address) is None:
            self._not_connected(
                handle,
                ConnectError(
                    f"the connection to {target.address} ended as soon as it was open",
                    address=target.address,
                ),
            )
        else:
            self._attempt(handle, target)

    def _not_connected(self, handle: SendHandle, error: RocketMQError) -> None:
        handle.attempts -= 1
        if not handle.started:
            handle.started = trio.current_time()
        self._failed(handle, error)

    def _not_connected_in_time(self, handle: SendHandle) -> None:
        """The limit of an attempt has passed while it waited for a connection."""
        target, now = handle.target, trio.current_time()
        assert target is not None
        error = ConnectError(
            f"no connection to {target.address} within {now - handle.started:.3g} s",
            address=target.address,
        )
        if now < handle.deadline:
            self._not_connected(handle, error)
            return
        handle.error = error
        self._note_failure(handle, target, error)
        self._expired(handle)

    # --- what comes back

    def _concluded(self, handle: SendHandle, command: Command, call: PendingCall) -> None:
        """An attempt that interceptors look at is over."""
        if call.response is not None and handle.target is not None and not handle.done:
            try:
                self._client.remoting.conclude(handle.target.address, command, call.response)
            except RocketMQError as error:
                error.outcome_unknown = (
                    True  # the broker has answered, perhaps that it stored the message
                )
                self.finish(handle, handle.stored, error)
                return
        self.answered(handle, call)

    def answered(self, handle: SendHandle, call: PendingCall) -> None:
        """An attempt is over. Runs in the reader of the channel."""
        if handle.done:
            return
        response = call.response
        if response is None:
            assert call.error is not None
            self._failed(handle, call.error)
            return
        try:
            self._judge(handle, response)
        except Exception as error:  # noqa: BLE001
            self._unusable(handle, response, error)

    def _conclude(self, handle: SendHandle, response: Command) -> None:
        """An attempt has its answer."""
        try:
            self._judge(handle, response)
        except Exception as error:  # noqa: BLE001
            self._unusable(handle, response, error)

    def _unusable(self, handle: SendHandle, response: Command, error: Exception) -> None:
        """Whatever an answer does to this code: the message ends."""
        logger.error("the answer %r for %r cannot be used", response, handle, exc_info=error)
        failure = RocketMQError(f"the broker's answer cannot be used: {error!r}")
        failure.outcome_unknown = True
        self.finish(handle, handle.stored, failure)

    def _judge(self, handle: SendHandle, response: Command) -> None:
        """The broker has answered."""
        target = handle.target
        assert target is not None
        status = SEND_STATUS.get(response.code)
        if status is None:
            if response.code == _GO_AWAY:
                self._client.remoting.retire(target.address, handle.channel)
            self._failed(
                handle,
                broker_error(
                    response.code, response.remark, address=target.address, topic=handle.topic.topic
                ),
            )
            return
        try:
            result = self._result(handle, target, response, status)
        except (FieldError, ValueError) as error:
            # The broker says that it has stored the message, only not where.
            failure = FieldError(f"the broker's answer cannot be read: {error}")
            failure.outcome_unknown = True
            self._failed(handle, failure)
            return
        if self._strategy.active:
            self._note(handle, target, isolated=False, reachable=True)
        if status is _SEND_OK or not self._config.retry_another_broker_when_not_store_ok:
            self._under_way.end(handle, result, None)
        else:
            handle.stored = result
            self._again(handle, target, ClosedError("no attempt is left"))

    def _failed(self, handle: SendHandle, error: RocketMQError) -> None:
        """An attempt has failed, or could not be made."""
        if error.outcome_unknown:
            handle.unknown = True
        if error.route_stale:
            self._client.routes.request_refresh(handle.topic.topic)
        target = handle.target
        assert target is not None
        handle.call = None
        judgement = judge_error(error, retry_codes=self._config.retry_response_codes)
        if self._strategy.profile is not None:
            self._note_failure(handle, target, error)
        if judgement.step is Next.RETRY:
            self._again(handle, target, error)
        else:
            self.finish(handle, handle.stored, error)

    def _again(self, handle: SendHandle, failed: Target, error: RocketMQError) -> None:
        """Make the next attempt if one is left and there is time for it."""
        tried = self._tries(handle)
        if handle.attempts <= 0 or (tried >= self._first_attempts and not error.retryable):
            self.finish(handle, handle.stored, error)
            return
        if logger.isEnabledFor(logging.INFO):
            log_retry(handle, failed, error)
        handle.error = error
        if trio.current_time() >= handle.deadline:
            self._expired(handle)
            return
        handle.last_broker = failed.broker_name
        handle.limit = 0.0
        alone = handle.topic.only_broker(failed.broker_name)
        if isinstance(error, ConnectError) and not handle.refreshed and alone:
            # Nobody else could take the message; perhaps the broker has another address
            # by now.
            handle.refreshed = True
            self._routes.enter(handle.topic.topic, handle)
        elif self._persistent and (alone or tried > 1 or handle.selector or handle.queue):
            self._rest(handle, error)
        else:
            self._resumed(handle)

    def _tries(self, handle: SendHandle) -> int:
        """How many attempts a message has had."""
        return self._config.most_attempts - handle.attempts

    def _rest(self, handle: SendHandle, error: RocketMQError) -> None:
        """Pause before the next attempt."""
        handle.error = error
        seconds = PAUSES.delay(max(0, self._tries(handle) - 1), random.random())
        left = handle.deadline - trio.current_time()
        self.timekeeper.pause(handle, max(0.0, min(seconds, left)))

    def _resumed(self, handle: SendHandle) -> None:
        """Go on to the next attempt."""
        handle.started = handle.limit = 0.0
        if trio.current_time() >= handle.deadline:
            self._expired(handle)
        elif handle.topic.current() and handle.topic.topic not in self._routes.waiting:
            self._choose(handle)
        elif handle.refreshed and not self._persistent:
            self._stopped(handle, no_queue(handle.topic))
        else:
            handle.refreshed = True
            self._routes.enter(handle.topic.topic, handle)

    def _expired(self, handle: SendHandle) -> None:
        """The time of a message is up."""
        if handle.call is not None:
            handle.unknown = True
            handle.call.forget()
        error = SendTimeout(used_up(handle), outcome_unknown=handle.unknown)
        error.__cause__ = handle.error
        self.finish(handle, handle.stored, error)

    def finish(
        self, handle: SendHandle, result: SendResult | None, error: Exception | None
    ) -> None:
        """End a message with a result, else with an error.

        The error says whether the message may be stored all the same.
        """
        if result is None and isinstance(error, RocketMQError):
            error = final_error(error, unknown=handle.unknown)
            if handle.target is not None:
                error.last_queue = (handle.target.broker_name, handle.target.queue.queue_id)
        self._under_way.end(handle, result, error)

    def _note_failure(self, handle: SendHandle, target: Target, error: RocketMQError) -> None:
        """Let fault avoidance know of an attempt that failed."""
        strategy = self._strategy
        strategy.failures[target.broker_name] = str(error)
        if strategy.profile is UNANSWERED:
            if isinstance(error, ConnectError) or (
                isinstance(error, RequestTimeoutError)
                and trio.current_time() - handle.started >= LEAST_SILENCE
            ):
                self._note(handle, target, isolated=True, reachable=not self._config.probing)
            elif isinstance(error, BrokerError) and strategy.active:
                self._note(handle, target, isolated=False, reachable=True)
            return
        judgement = judge_error(
            error, retry_codes=self._config.retry_response_codes, detector=self._config.probing
        )
        if judgement.isolated is not None:
            self._note(handle, target, isolated=judgement.isolated, reachable=judgement.reachable)

    def _note(self, handle: SendHandle, target: Target, *, isolated: bool, reachable: bool) -> None:
        self._strategy.update_fault_item(
            target.broker_name,
            int((trio.current_time() - handle.started) * 1000),
            isolation=isolated,
            reachable=reachable,
            now=self._monotonic_ms(),
        )

    def _monotonic_ms(self) -> int:
        return int(trio.current_time() * 1000)
