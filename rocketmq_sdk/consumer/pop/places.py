"""Popping for a push consumer: the loops that pop, and what becomes of each message.

A push consumer pops where a broker decides so. Follows
`DefaultMQPushConsumerImpl.popMessage` and `ConsumeMessagePopConcurrentlyService` of
Apache RocketMQ 5.4.0: a message that is done is acknowledged; one that failed is made
invisible for the delay of the group's retry policy; one that has used up its attempts
goes to the dead letter topic (Apache's client drops it). A message whose invisible time
ends before its turn comes is left alone: the broker delivers it again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rocketmq_sdk.client.api.pop import change_invisible_time, pop_message
from rocketmq_sdk.client.api.send import consumer_send_back
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.consumer.config import FlowLimits
from rocketmq_sdk.consumer.hooks import filtered
from rocketmq_sdk.consumer.outcome import DEAD_LETTER
from rocketmq_sdk.consumer.pop.acknowledgements import Acknowledgements
from rocketmq_sdk.consumer.pop.popped_queue import PoppedQueue
from rocketmq_sdk.consumer.pop.receipt import Invisibility, PoppedMessage, Receipt
from rocketmq_sdk.consumer.pull.puller import QueueService
from rocketmq_sdk.consumer.retry_delays import LEVELS, delay_ms
from rocketmq_sdk.consumer.retry_states import State, failure
from rocketmq_sdk.errors import BrokerError, RocketMQError, RouteError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import ConsumeFrom, PopStatus
from rocketmq_sdk.protocol.headers.pop import PopMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.config import PushConfig
    from rocketmq_sdk.consumer.statistics import Counters
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.protocol.bodies.groups import GroupRetryPolicy
    from rocketmq_sdk.protocol.subscription import SubscriptionData

logger = logging.getLogger("rocketmq_sdk.consumer")

POLL_MARGIN: Final = 10.0
"""Seconds that a pop may take beyond the time for which the broker holds it."""
BROKERS_CLOCK: Final = 0
"""A born time of 0, which brokers replace by their own time.

With the client's time, brokers would answer a client whose clock is slow at once, each
time.
"""
FROM_MIN: Final = 0
FROM_MAX: Final = 1
PAUSE: Final = 0.05
"""Seconds between two checks of a place that holds too much.

Also the pause after an answer that returns nothing at once.
"""


class PopService(QueueService, Protocol):
    """The workers that get popped messages."""

    def counters_of(self, topic: str) -> Counters:
        """The counters of a topic."""
        ...

    def look_at(self, moment: float) -> None:
        """Check the running listeners at `moment`, when an invisible time ends."""
        ...


class PopPlaces:
    """The places that this member pops, as the broker assigned them.

    A place is a topic at one broker, or one queue of it. Each has a loop.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        config: PushConfig,
        service: PopService,
        most_retries: Callable[[], int],
        policy: Callable[[], GroupRetryPolicy | None],
    ) -> None:
        self.places: dict[MessageQueue, tuple[PoppedQueue, trio.CancelScope]] = {}
        self.acks = Acknowledgements(client, group)
        """Acknowledges what is done; the owner of the places runs it."""
        self.subscriptions: Mapping[str, SubscriptionData] = {}
        """The member's subscriptions, which change while it runs.

        Set it before places are assigned.
        """
        self._client = client
        self._group = group
        self._config = config
        self._service = service
        self._most_retries = most_retries
        self._policy = policy
        self._going: dict[PoppedQueue, trio.CancelScope] = {}
        """Places no longer assigned, until what was popped of them is consumed."""
        self._kept: set[Receipt] = set()
        """Receipts of failed messages that the listener's service has not finished yet.

        These are not acknowledged when it does.
        """
        self._resumed: trio.Event | None = None

    def held(self) -> dict[MessageQueue, PoppedQueue]:
        """What is held of each place."""
        return {popped.queue: popped for popped in self._going if popped.message_count} | {
            queue: popped for queue, (popped, _scope) in self.places.items()
        }

    def suspend(self) -> None:
        """Stop popping.

        What is held is still consumed, and so is the answer to a pop under way.
        """
        if self._resumed is None:
            self._resumed = trio.Event()

    def resume(self) -> None:
        """Undo `suspend`."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def assign(self, topic: str, places: Collection[MessageQueue], nursery: trio.Nursery) -> None:
        """Pop exactly these places of a topic; loops live in `nursery`."""
        self._going = {
            popped: scope
            for popped, scope in self._going.items()
            if popped.message_count or not popped.ended
        }
        for queue in [
            queue for queue in self.places if queue.topic == topic and queue not in places
        ]:
            # What it holds, and what the pop under way returns, is invisible to others:
            # dropped, it would be delayed until its invisible time is over.
            popped, scope = self.places.pop(queue)
            popped.goes = True
            self._going[popped] = scope
        limits = FlowLimits(messages=self._config.pop_threshold_for_queue)
        for queue in places:
            if queue not in self.places:
                popped, scope = PoppedQueue(queue, self._acknowledge, limits), trio.CancelScope()
                self.places[queue] = popped, scope
                nursery.start_soon(
                    self._loop, popped, scope, name=f"pop of {queue!r} for group {self._group}"
                )

    def _leave(self, topic: str | None = None) -> list[PoppedQueue]:
        """Give up the places of a topic, or all; returns them.

        Messages that no listener has begun are dropped.
        """
        left = [popped for popped, _scope in self.places.values()] + list(self._going)
        left = [popped for popped in left if topic is None or popped.queue.topic == topic]
        for popped in left:
            place = self.places.get(popped.queue)
            if place is not None and place[0] is popped:
                del self.places[popped.queue]
                scope = place[1]
            else:
                scope = self._going.pop(popped)
            scope.cancel()
            self._service.withdraw(popped)
        return left

    def leave_topic(self, topic: str) -> None:
        """Stop popping all places of a topic."""
        self._leave(topic)

    async def close(self, grace: float) -> None:
        """Stop popping, and acknowledge what is done.

        Running listeners have `grace` seconds to finish.
        """
        left = self._leave()
        with trio.move_on_after(grace):
            for popped in left:
                await popped.wait_drained()
        for popped in left:
            self._service.interrupt(popped)
        await self.acks.flush()

    # -- popping

    async def _loop(self, popped: PoppedQueue, scope: trio.CancelScope) -> None:
        config = self._config
        with scope:
            while not popped.goes:
                if self._resumed is not None:
                    await self._resumed.wait()
                    continue
                popped.drop_expired()
                if popped.is_full:
                    await trio.sleep(PAUSE)
                    continue
                began = popped.last_pop = trio.current_time()
                try:
                    status = await self._pop(popped)
                except RocketMQError as error:
                    if str(error) != popped.complaint:
                        popped.complaint = str(error)
                        logger.info(
                            "group %s: %r cannot be popped, to be tried again: %s",
                            self._group,
                            popped.queue,
                            error,
                            extra=about(group=self._group, queue=popped.queue),
                        )
                    if error.route_stale:
                        self._client.routes.request_refresh(popped.queue.topic)
                    busy = (
                        isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL
                    )
                    await trio.sleep(0.02 if busy else config.pull_time_delay_when_exception)
                else:
                    popped.complaint = ""
                    if status is PopStatus.POLLING_FULL:
                        await trio.sleep(config.pull_time_delay_when_exception)
                    elif status is not PopStatus.FOUND and trio.current_time() - began < PAUSE:
                        await trio.sleep(PAUSE)
        popped.ended = True

    def _request(
        self, queue: MessageQueue, subscription: SubscriptionData
    ) -> PopMessageRequestHeader:
        config = self._config
        return PopMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            max_msg_nums=config.pop_batch_nums,
            invisible_time=round(config.pop_invisible_time * 1000),
            poll_time=round(config.pull_suspend * 1000),
            born_time=BROKERS_CLOCK,
            init_mode=FROM_MIN if config.consume_from is ConsumeFrom.FIRST_OFFSET else FROM_MAX,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
        )

    async def _pop(self, popped: PoppedQueue) -> PopStatus:
        config, queue = self._config, popped.queue
        subscription = self.subscriptions.get(queue.topic)
        if subscription is None:  # the next round takes the place away
            raise RouteError(f"topic {queue.topic!r} is not subscribed to")
        if self._client.broker_address(queue.broker_name) is None:
            raise RouteError(f"no address of broker {queue.broker_name!r} is known")
        header = self._request(queue, subscription)
        tags = subscription.tags_set if subscription.is_tag_type else frozenset[str]()
        timeout = config.pull_suspend + POLL_MARGIN
        began, invisibility = trio.current_time(), Invisibility()
        result = await pop_message(
            self._client, queue.broker_name, header, timeout, tags=tags, kind=PoppedMessage
        )
        until = invisibility.ends(result.invisible_time / 1000)
        # The expression may have changed while the broker held the pop.
        current = self.subscriptions.get(queue.topic, subscription)
        wanted = (
            current.tags_set
            if current.is_tag_type and current is not subscription
            else frozenset[str]()
        )
        messages: list[PoppedMessage] = []
        for message, handle in zip(result.messages, result.handles, strict=True):
            assert isinstance(message, PoppedMessage)
            if wanted and message.tags not in wanted:
                result.unwanted.append(handle)
                continue
            message._receipt = Receipt(queue.topic, handle, until, self._group)
            if self._client.namespace:
                message.topic = self._client.namespace.unwrap(message.topic)
            messages.append(message)
        if messages and config.filter_hooks:
            left = filtered(messages, queue, group=self._group, hooks=config.filter_hooks)
            kept = {id(message) for message in left}
            self.acks.extend(message.receipt for message in messages if id(message) not in kept)
            messages = left
        self.acks.extend(
            Receipt(queue.topic, handle, until, self._group) for handle in result.unwanted
        )
        popped.rest = result.rest_count
        counters = self._service.counters_of(queue.topic)
        counters.pulls += 1
        counters.pulled += len(messages)
        counters.pull_seconds += trio.current_time() - began
        if messages:
            popped.add(messages)
            self._service.add(popped)
            self._service.look_at(messages[0].receipt.expires_at)
        return result.status

    # -- what becomes of messages

    def _acknowledge(self, message: PoppedMessage) -> None:
        if message.receipt in self._kept:
            self._kept.discard(message.receipt)
        elif message.receipt.is_good:
            self.acks.add(message.receipt)

    async def give_back(self, message: PoppedMessage, delay_level: int) -> bool:
        """A message has failed: postpone it, or put it into the dead letter topic.

        Always returns True: a message that could not be postponed comes again by
        itself.
        """
        exhausted = failure(message.reconsume_times, self._most_retries()) is State.DLQ
        receipt = message.receipt
        try:
            if exhausted or delay_level == DEAD_LETTER:
                await consumer_send_back(
                    self._client,
                    message.broker_name,
                    self._group,
                    message.commit_log_offset,
                    delay_level=DEAD_LETTER,
                    origin_message_id=message.message_id,
                    origin_topic=receipt.topic,
                    max_reconsume_times=0,
                )
                return True  # and is acknowledged, as what is done
            if receipt.is_good:
                delay = (
                    LEVELS.delay_ms(delay_level)
                    if delay_level > 0
                    else delay_ms(self._policy(), message.reconsume_times)
                )
                await change_invisible_time(
                    self._client, receipt.topic, self._group, receipt.handle, delay
                )
        except RocketMQError as error:
            logger.info(
                "group %s: message %s could not be postponed, it comes again by itself: %s",
                self._group,
                message.message_id,
                error,
                extra=about(group=self._group, message_id=message.message_id),
            )
        self._kept.add(receipt)
        return True
