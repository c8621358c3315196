"""The long-polling loop of one owned queue.

Follows `DefaultMQPushConsumerImpl.pullMessage` of Apache RocketMQ 5.4.0. One pull is
under way at a time, or one run of pulls where the queue has a backlog (`pull_run`). The
next one is sent before listeners have consumed what the last one returned, so pulling
and consuming overlap.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from rocketmq_sdk.backoff import Backoff
from rocketmq_sdk.client.api.pull import UndecodableError, pull_message, pull_result
from rocketmq_sdk.clock import elapsed
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.consumer.hooks import filtered
from rocketmq_sdk.consumer.offsets.store import OffsetStore
from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
from rocketmq_sdk.consumer.pull.pull_run import MOST, PullRun, PullRuns
from rocketmq_sdk.consumer.pull.standstill import Standstill
from rocketmq_sdk.errors import (
    BrokerError,
    GroupNotFoundError,
    NotSupportedError,
    RocketMQError,
    RouteError,
    SubscriptionError,
)
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import PullStatus
from rocketmq_sdk.model.properties import RETRY_TOPIC
from rocketmq_sdk.model.route import MASTER_ID
from rocketmq_sdk.names import origin_of_pop_retry, retry_topic
from rocketmq_sdk.protocol.flags import PullSysFlag
from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.client.brokers import FoundBroker
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.config import FlowLimits, QueueConfig
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.results import PullResult
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.protocol.subscription import SubscriptionData

logger = logging.getLogger("rocketmq_sdk.consumer")

FLOW_CONTROL_DELAY: Final = 0.02
"""Seconds to wait when a broker asks for a pause."""
UNDECODABLE: Final = Backoff(first=1.0, limit=60.0, jitter=0.0)
"""Pauses between tries of a message that cannot be decoded."""
_AT_ONCE: Final = 0.005
"""An answer with nothing new within these seconds is followed by a pause.

Otherwise the next pull is sent at once.
"""


class QueueService(Protocol):
    """What gets the messages of process queues: workers, or a `PollService`."""

    def add(self, process_queue: ProcessQueue) -> None:
        """Announce that a process queue has messages."""
        ...

    def withdraw(self, process_queue: ProcessQueue) -> None:
        """Take nothing more from a process queue; what was taken goes on."""
        ...

    def interrupt(self, process_queue: ProcessQueue) -> None:
        """Give up what was taken from a process queue and is not done."""
        ...


@attrs.frozen
class PullContext:
    """What the pull loops of one consumer share."""

    client: "Client"
    group: str
    config: "QueueConfig"
    service: QueueService
    offsets: OffsetStore
    introduce: "Callable[[], Awaitable[None]]"
    """Sends a heartbeat again, at most once a second however many queues ask."""
    new_queue: "Callable[[MessageQueue, int, FlowLimits], ProcessQueue]" = ProcessQueue
    lite: bool = False
    """Pulls are LITE_PULL_MESSAGE (361) and carry no offsets to commit."""
    local_offsets: bool = False
    """Offsets are not kept at the broker, so pulls carry none."""
    commits: bool = True
    """Whether a queue that is given up or corrected has its offset committed.

    Otherwise only the user commits.
    """
    standstill: Standstill = attrs.field(factory=Standstill)
    """Tells of a program that has not run for a while."""


def reading_address(client: Client, queue: MessageQueue, broker_id: int) -> FoundBroker:
    """Where to read a queue: the wanted replica of its broker, otherwise another one.

    Raises `RouteError` when no route in use has the broker, and requests a new route
    then.
    """
    found = client.brokers.subscribe_address(queue.broker_name, broker_id)
    if found is None:
        client.routes.request_refresh(queue.topic)
        raise RouteError(f"no address of broker {queue.broker_name!r} is known")
    return found


class QueuePuller:
    """Pulls one queue into its process queue until it is cancelled."""

    def __init__(
        self,
        context: PullContext,
        queue: MessageQueue,
        subscription: SubscriptionData,
        first_offset: int,
        limits: FlowLimits,
    ) -> None:
        self.process_queue = context.new_queue(queue, first_offset, limits)
        self.former: list[ProcessQueue] = []
        """Process queues from before a correction that listeners still work on."""
        self._context = context
        self._queue = queue
        self._namespace = context.client.namespace
        self._origin = origin_of_pop_retry(queue.topic, context.group)
        self._is_retry = queue.topic == retry_topic(context.group) or self._origin != queue.topic
        self._broker_id = MASTER_ID
        self.complaint = ""
        """Why pulling does not work at present; empty when it does."""
        self.max_offset: int | None = None
        self.last_pull: float | None = None
        self.doubtful = False
        """Another member may have been further."""
        self.changed_in: int | None = None
        """The round during which, or after which, members have come or gone, if no
        later one has seen that the queue is still owned.
        """
        self._undecodable: int | None = None
        self._undecoded = 0
        self._single = 0
        self._address = ""
        self._early: tuple[PullResult, bool] | None = None
        self._hooks = context.config.filter_hooks
        self._looping = trio.CancelScope()
        self._correcting = False
        config = context.config
        self._flags = PullSysFlag.SUSPEND | (
            PullSysFlag.SUBSCRIPTION if config.post_subscription_when_pull else 0
        )
        if context.lite:
            self._flags |= PullSysFlag.LITE_PULL
        self._header = PullMessageRequestHeader(
            consumer_group=context.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=first_offset,
            max_msg_nums=config.pull_batch_size,
            sys_flag=self._flags,
            commit_offset=0,
            suspend_timeout_millis=round(config.pull_suspend * 1000),
            sub_version=subscription.sub_version,
            max_msg_bytes=config.pull_batch_size_in_bytes,
            bname=queue.broker_name,
        )
        self._runs = PullRuns(context.client, self._header, config.pull_timeout)
        self._set_subscription(subscription)

    @property
    def unsure(self) -> bool:
        """Whether another member may own the queue by now: then we commit nothing."""
        return self.doubtful or self.changed_in is not None or self._context.standstill.happened

    def _set_subscription(self, subscription: SubscriptionData) -> None:
        self._tags = subscription.tags_set if subscription.is_tag_type else frozenset[str]()
        header = self._header
        header.subscription = (
            subscription.sub_string if self._context.config.post_subscription_when_pull else None
        )
        header.sub_version = subscription.sub_version
        header.expression_type = subscription.expression_type
        self._takes_all = subscription.matches_all
        self._runs.changed()

    def resubscribe(self, subscription: SubscriptionData) -> None:
        """Pull by another expression from now on.

        A pull under way by the old one is dropped; what is cached is still consumed.
        """
        self._set_subscription(subscription)
        if not self._correcting:
            self._looping.cancel()

    async def run(self) -> None:
        """Pull until cancelled; errors are logged and followed by a pause."""
        while True:
            with trio.CancelScope() as self._looping:
                await self._loop()

    def seek(self, offset: int) -> None:
        """Go on at another offset.

        What is cached is dropped, and so is the answer to a pull under way.
        """
        self.process_queue = self._replaced(offset)
        self._looping.cancel()

    def _replaced(self, offset: int) -> ProcessQueue:
        old = self.process_queue
        self._context.service.withdraw(old)
        self.former = [former for former in (*self.former, old) if former.in_flight]
        new = self._context.new_queue(self._queue, offset, old.limits)
        new.paused = old.paused
        new.locked_until = old.locked_until
        return new

    async def _loop(self) -> None:
        while True:
            if self.process_queue.is_blocked:
                await self.process_queue.wait_room()
            began = self.last_pull = trio.current_time()
            pulled, self._early = self.process_queue, None
            try:
                result = await self._pull()
            except RocketMQError as error:
                await self._after_any_error(error)
                continue
            if not await self._accept(result, pulled, began):
                continue
            try:
                await self._pull_together(sum([len(each.body) for each in result.messages]))
            except RocketMQError as error:
                await self._after_any_error(error)

    async def _accept(self, result: PullResult, pulled: ProcessQueue, began: float) -> bool:
        """Do what an answer says; whether it was full, and the queue has more."""
        early, self._early = self._early, None
        if early is not None:
            full = early[1]
        else:
            self._note(result, began)
            if self.process_queue is not pulled:
                return False  # the offset was changed while the answer was on its way
            if result.status is PullStatus.OFFSET_ILLEGAL:
                full = False
                self._learn(result)
                self._correcting = True
                try:
                    await self._correct(result.next_begin_offset)
                finally:  # a seek cancels it
                    self._correcting = False
            else:
                found, full = self._take(result, pulled)
                if not found and trio.current_time() - began < _AT_ONCE:
                    await trio.sleep(FLOW_CONTROL_DELAY)
        if self._context.config.pull_interval:
            await trio.sleep(self._context.config.pull_interval)
            return False
        return full

    def _learn(self, result: PullResult) -> None:
        """What any answer of the broker says of pulling."""
        self.complaint = ""
        if self._single:
            self._leave_single(result)
        self._broker_id = result.suggest_broker_id

    def _take(self, result: PullResult, pulled: ProcessQueue) -> tuple[bool, bool]:
        """Take in what an answer brought: whether that is anything, and whether it was
        full, and the queue has more.
        """
        self._learn(result)
        before = pulled.next_offset
        found = self._take_in(result)
        full = (
            found
            and self._takes_all
            and not self._single
            and pulled.next_offset - before == self._header.max_msg_nums
        )
        return found, full

    def _take_early(self, answer: Command) -> bool:
        """Take in the messages of an answer as soon as it is here.

        Runs in the reader of the connection: so listeners begin before the next pull
        is made. What is not as usual is left to the task that pulls.
        """
        if answer.code != ResponseCode.SUCCESS or self._single or self._hooks:
            return False
        header, queue = self._header, self._queue
        try:
            result = pull_result(answer, queue.broker_name, self._address, header, tags=self._tags)
        except RocketMQError:
            return False  # it is decoded again, and the error is told
        if result.status is not PullStatus.FOUND or not result.messages:
            return False
        self._note(result, self.last_pull or 0.0)
        self._early = result, self._take(result, self.process_queue)[1]
        return True

    async def _pull_together(self, size: int) -> None:
        """Pull by runs as long as all answers are full; else the next pull is alone.

        `size` is what the bodies of the last answer took.
        """
        pulled = self.process_queue
        run, following = self._begin_run(pulled.next_offset, 0, size), None
        try:
            while run is not None:
                answers = await run.answers()
                if not answers or self.process_queue is not pulled:
                    return
                if run.is_over:
                    following = self._begin_run(run.end, len(answers), len(answers[-1].body))
                for answer in answers:
                    result = pull_result(
                        answer,
                        self._queue.broker_name,
                        run.address,
                        self._header,
                        tags=self._tags,
                    )
                    await self._accept(result, pulled, run.began)
                if run.is_over:
                    run, following = following, None
        finally:
            for each in (run, following):
                if each is not None:
                    each.forget()

    def _begin_run(self, first_offset: int, coming: int, size: int) -> PullRun | None:
        """Ask for what the queue is known to have, as much as its limits allow.

        `coming` answers of about `size` bytes are to be taken in before.
        """
        stride, pulled = self._header.max_msg_nums, self.process_queue
        number = min(
            MOST,
            ((self.max_offset or 0) - first_offset) // stride,
            pulled.room(stride, size) - coming,
        )
        if number < 2:
            return None
        client = self._context.client
        found = client.brokers.subscribe_address(self._queue.broker_name, self._broker_id)
        if found is None:
            return None
        self.last_pull = trio.current_time()
        offset = self._commits(found)
        return self._runs.begin(found.address, first_offset, number, offset)

    def _commits(self, found: FoundBroker) -> int | None:
        """The offset that a pull is to commit; None when it must commit nothing."""
        context, process_queue = self._context, self.process_queue
        if context.lite or context.local_offsets:
            return None
        offset = process_queue.commit_offset
        # A slave keeps no offsets of its own.
        if (
            offset > 0
            and not found.is_slave
            and not self.unsure
            and process_queue.locked_until > elapsed()
        ):
            return offset
        return None

    def _note(self, result: PullResult, began: float) -> None:
        self.max_offset = result.max_offset
        counters = self.process_queue.counters
        if counters is not None:
            counters.pulls += 1
            counters.pulled += len(result.messages)
            counters.pull_seconds += trio.current_time() - began

    async def _pull(self) -> PullResult:
        context, queue, header = self._context, self._queue, self._header
        found = reading_address(context.client, queue, self._broker_id)
        offset = self._commits(found)
        header.queue_offset = self.process_queue.next_offset
        header.commit_offset = 0 if offset is None else offset
        header.sys_flag = self._flags if offset is None else self._flags | PullSysFlag.COMMIT_OFFSET
        self._address = found.address
        answer = await self._runs.alone(found.address, self._take_early)
        if self._early is not None:
            return self._early[0]
        try:
            if answer is not None:
                return pull_result(
                    answer, queue.broker_name, found.address, header, tags=self._tags
                )
            return await pull_message(
                context.client,
                found.address,
                queue.broker_name,
                header,
                context.config.pull_timeout,
                tags=self._tags,
            )
        except NotSupportedError:
            if not self._flags & PullSysFlag.LITE_PULL:
                raise
            # Brokers before 5.0 serve lite consumers by the pull of all others.
            self._flags &= ~PullSysFlag.LITE_PULL
            self._runs.changed()
            return await self._pull()

    def _take_in(self, result: PullResult) -> bool:
        """Hand over what a pull returned.

        Returns False when it returned neither messages nor another offset.
        """
        process_queue = self.process_queue
        before = process_queue.next_offset
        messages = result.messages
        if messages and self._is_retry:
            for message in messages:
                came_from = (
                    message.properties.get(RETRY_TOPIC)
                    if self._origin == self._queue.topic
                    else self._origin
                )
                message.topic = origin_of_pop_retry(came_from or message.topic, self._context.group)
        if messages and self._namespace:
            for message in messages:
                message.topic = self._namespace.unwrap(message.topic)
        if messages and self._context.config.filter_hooks:
            messages = filtered(
                messages,
                self._queue,
                group=self._context.group,
                hooks=self._context.config.filter_hooks,
            )
        if process_queue.put(messages, result.next_begin_offset):
            self._context.service.add(process_queue)
            return True
        return process_queue.next_offset != before

    async def _correct(self, offset: int) -> None:
        """Go on at another offset that the broker gives.

        The broker has nothing at the pull offset, or an administrator moved it.
        Listeners finish what they already have, but it does not count.
        """
        old = self.process_queue
        logger.warning(
            "group %s: offset %d of %r is not valid at the broker; going on at %d",
            self._context.group,
            old.next_offset,
            self._queue,
            offset,
            extra=about(group=self._context.group, queue=self._queue),
        )
        if old.locked_until < math.inf:
            self._context.service.withdraw(old)
            await old.wait_drained()  # in order nothing may run beside it
        again = offset == old.next_offset
        self.process_queue = self._replaced(offset)
        if self._context.commits and not self.unsure:
            await self._context.offsets.commit(self._queue, offset, confirmed=True)
        if again:
            await trio.sleep(self._context.config.pull_time_delay_when_exception)

    # Apache's client ends such a pull in its callback and tries again every three
    # seconds, for ever. Here one message at a time is pulled, so that the good ones
    # before it are delivered and the offset of the bad one is known. It is never
    # skipped: that is for an administrator to decide.
    async def _after_undecodable(self, error: UndecodableError) -> None:
        """An answer has a message that cannot be decoded: find it, log it, and retry.

        It is logged once, and tried at growing intervals.
        """
        config, queue, header = self._context.config, self._queue, self._header
        offset = (
            header.queue_offset if error.queue_offset is None else error.queue_offset
        )  # the broker passes over what has other tags
        if header.max_msg_nums > 1:
            self._single = config.pull_batch_size
            self._ask_for(1)
            return
        if offset != self._undecodable:
            self._undecodable, self._undecoded = offset, 0
            logger.warning(
                "group %s: the message of topic %s at broker %s, queue %d, offset %d cannot be "
                "decoded: %s. The queue stands still in front of it. "
                "Install what is missing and start again, or set the group's offset to %d to "
                "leave the message out.",
                self._context.group,
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                offset,
                error,
                offset + 1,
                extra=about(topic=queue.topic, group=self._context.group, queue=queue.queue_id),
            )
        self._undecoded += 1
        self.complaint = f"the message at offset {offset} cannot be decoded: {error}"
        await trio.sleep(UNDECODABLE.delay(self._undecoded - 1))

    def _leave_single(self, result: PullResult) -> None:
        """While pulling single messages, go back to full pulls when that is safe.

        That is when as many messages have come as a full pull returns, or the bad one
        has.
        """
        self._single = max(self._single - max(len(result.messages), 1), 0)
        if self._undecodable is not None and result.next_begin_offset > self._undecodable:
            self._undecodable, self._single = None, 0
        if not self._single:
            self._ask_for(self._context.config.pull_batch_size)

    def _ask_for(self, messages: int) -> None:
        """Let the next pulls ask for so many messages."""
        if self._header.max_msg_nums != messages:
            self._header.max_msg_nums = messages
            self._runs.changed()

    async def _after_any_error(self, error: RocketMQError) -> None:
        if isinstance(error, UndecodableError):
            await self._after_undecodable(error)
        else:
            await self._after_error(error)

    async def _after_error(self, error: RocketMQError) -> None:
        context = self._context
        complaint = str(error)
        if complaint != self.complaint:
            self.complaint = complaint
            logger.info(
                "group %s: pulling %r failed, to be tried again: %s",
                context.group,
                self._queue,
                error,
                extra=about(group=context.group, queue=self._queue),
            )
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            await trio.sleep(FLOW_CONTROL_DELAY)
            return
        self._broker_id = MASTER_ID
        if error.route_stale:
            context.client.routes.request_refresh(self._queue.topic)
        if isinstance(error, SubscriptionError | GroupNotFoundError):
            # A restarted broker does not know the group until its next heartbeat.
            await context.introduce()
        await trio.sleep(context.config.pull_time_delay_when_exception)
