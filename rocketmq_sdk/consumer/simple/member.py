"""A simple consumer between its start and its end.

Receives, acknowledgements, changes of invisible durations, and dead letters.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final

import trio

from rocketmq_sdk.client.api.pop import ack_message, batch_ack_messages, change_invisible_time
from rocketmq_sdk.client.api.send import consumer_send_back
from rocketmq_sdk.client.observers import Operation, OperationKind, installed, observed
from rocketmq_sdk.client.side_by_side import answers_of_all
from rocketmq_sdk.client.troubles import one_line, route_reason
from rocketmq_sdk.clock import elapsed
from rocketmq_sdk.consumer.group.membership import Membership
from rocketmq_sdk.consumer.health import ConsumerHealth
from rocketmq_sdk.consumer.outcome import DEAD_LETTER
from rocketmq_sdk.consumer.pop.receipt import Invisibility, PoppedMessage, Receipt, receipt_of
from rocketmq_sdk.consumer.retry_delays import delay_ms
from rocketmq_sdk.consumer.retry_states import State, received
from rocketmq_sdk.consumer.send_back import SEND_BACK_TIMEOUT
from rocketmq_sdk.consumer.simple.receiver import (
    INIT_AT_BEGINNING,
    INIT_AT_END,
    Popped,
    ReceivePlace,
    Receiver,
)
from rocketmq_sdk.consumer.simple.renewal import Renewals
from rocketmq_sdk.consumer.simple.trace import ReceiptTrace
from rocketmq_sdk.consumer.statistics import Counters, Rates, SimpleStatistics, seconds_since
from rocketmq_sdk.errors import ClosedError, ReceiptHandleError, RocketMQError, WrongTypeError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.protocol.bodies.members import ConsumerData
from rocketmq_sdk.protocol.subscription import build_subscription

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.config import SimpleConfig
    from rocketmq_sdk.consumer.constructor_arguments import Expression
    from rocketmq_sdk.protocol.receipt_handle import ReceiptHandle

logger = logging.getLogger("rocketmq_sdk.consumer")

RECEIVE_MARGIN: Final = 10.0
"""Seconds for an answer to a pop, beyond the time for which the broker may hold it."""

ACK_RETRY_PAUSE: Final = 1.0
"""Seconds until a failed acknowledgement is sent again."""
GIVE_UP_LIMIT: Final = 2.0
"""The most seconds that a failure of the program is delayed to tell the broker."""


class SimpleMember(Membership):
    """One simple consumer; use it once: `async with member.started(nursery)`."""

    kind: ClassVar[str] = "simple consumer"

    def __init__(
        self,
        client: Client,
        group: str,
        config: SimpleConfig,
        wanted: Mapping[str, Expression],
        *,
        own_client: bool,
    ) -> None:
        now = client.clock.now_ms()
        subscriptions = {
            topic: build_subscription(topic, *expression, sub_version=now)
            for topic, expression in wanted.items()
        }
        super().__init__(client, group, subscriptions, own_client=own_client)
        self._config = config
        at = INIT_AT_BEGINNING if config.consume_from is ConsumeFrom.FIRST_OFFSET else INIT_AT_END
        self.receiver = Receiver(
            client,
            group,
            self._subscriptions,
            margin=RECEIVE_MARGIN,
            fifo=config.fifo,
            init_mode=at,
        )
        self.renewals = Renewals(group, self.change_invisible_duration)
        self._nursery: trio.Nursery
        self.running = False
        self._observers = installed()
        self._receiving: set[trio.CancelScope] = set()
        self._counters: dict[str, Counters] = {}
        self._rates = Rates()
        self._dead_letters = 0
        self._deliveries = None if self._trace is None else ReceiptTrace(self._trace)

    # -- life

    async def _begin(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._client.jobs.add(nursery, self._read_group)
        self.receiver.run_in(nursery)
        nursery.start_soon(self.renewals.run)
        self._client.jobs.add_quick(nursery, self._rates.sampling(self._counters))
        if self._deliveries is not None:
            self._client.jobs.add(nursery, self._deliveries.expire)
        self.running = True

    # What nobody has acknowledged comes again by itself.
    async def _finish(self, grace: float) -> None:  # noqa: ARG002
        self.running = False
        for scope in self._receiving:
            scope.cancel()

    def check_running(self) -> None:
        """Raise `ClosedError` outside of the block."""
        if not self.running:
            raise ClosedError("the consumer is not running; use it inside its `async with` block")

    def check(self, target: PoppedMessage | Receipt) -> None:
        """Raise `ReceiptHandleError` when a message is not this consumer's any more.

        Or has never been.
        """
        receipt_of(target).check(self._group)

    # Receives look at all topics.
    def _subscription_changed(self, topic: str) -> None:  # noqa: ARG002
        self.receiver.wake()

    def on_route_changed(self, topic: str) -> None:
        """A topic has other brokers: waiting receives look again."""
        super().on_route_changed(topic)
        if topic in self._subscriptions:
            self.receiver.wake()

    def heartbeat_data(self) -> ConsumerData:
        """The consumer's entry in the heartbeat, as a proxy writes it."""
        return ConsumerData(
            self._group,
            ConsumeType.CONSUME_ACTIVELY,
            MessageModel.CLUSTERING,
            self._config.consume_from,
            tuple(self._subscriptions.values()),
            self._client.config.unit_mode,
        )

    # -- what is known of it

    def statistics(self) -> SimpleStatistics:
        """The numbers of this moment."""
        now, counters, places = trio.current_time(), self._counters, self.receiver.places()
        return SimpleStatistics(
            received=sum(of_topic.pulled for of_topic in counters.values()),
            consumed=sum(of_topic.consumed for of_topic in counters.values()),
            dead_letters=self._dead_letters,
            extended=self.renewals.extended,
            receiving=len(self._receiving),
            last_receive=self.receiver.last_pop,
            places=len(places),
            lag=sum(self.receiver.rests.get(place, 0) for place in places),
            received_per_second=self._rates.per_second(now, counters, "pulled"),
            consumed_per_second=self._rates.per_second(now, counters, "consumed"),
            since_receive=seconds_since(self.receiver.last_pop),
        )

    def health(self) -> ConsumerHealth:
        """Whether receives get messages and, if not, why."""
        places = self.receiver.places()
        complaints = {
            place: text for place, text in self.receiver.complaints.items() if place in places
        }
        reasons, named = [], self._client.namespace.unwrap
        for topic in sorted(self._subscriptions):
            known = any(place.topic == topic for place in places)
            problem = self._client.routes.problem(topic)
            if problem or not known:
                reasons.append(route_reason(named(topic), problem, known=known))
        reasons += self._client.troubles.of_name_servers()
        reasons += [
            f"{named(place.topic)} at {place.broker_name} cannot be popped: {one_line(text)}"
            for place, text in sorted(complaints.items())
        ]
        return ConsumerHealth(len(complaints) < len(places), tuple(reasons))

    # -- receiving

    async def receive(self, most: int, invisible_ms: int, deadline: float) -> list[PoppedMessage]:
        """Receive messages.

        Those that have used up their attempts go to the dead letter topic instead.
        """
        self.check_running()
        receiving = self._operation(OperationKind.RECEIVE)
        with observed(self._observers, receiving), trio.CancelScope() as scope:
            self._receiving.add(scope)
            try:
                while True:
                    found = await self.receiver.receive(most, invisible_ms, deadline)
                    if found is None:
                        return []
                    messages = await self._sorted_out(*found, deadline)
                    if messages:
                        self._counters_of(messages[0].receipt.topic).pulled += len(messages)
                        if self._deliveries is not None:
                            self._deliveries.received(messages)
                        receiving.messages, receiving.topic = messages, messages[0].topic
                        receiving.address = self._client.broker_address(found[0].broker_name)
                        return messages
                    if trio.current_time() >= deadline:
                        return []
            finally:
                self._receiving.discard(scope)
        raise ClosedError("the consumer is closed")

    def _operation(
        self, kind: OperationKind, topic: str | None = None, *messages: PoppedMessage
    ) -> Operation:
        return Operation(kind, self._group, topic, self._client.client_id, messages)

    async def _sorted_out(
        self, place: ReceivePlace, popped: Popped, deadline: float
    ) -> list[PoppedMessage]:
        messages = popped.messages
        most = self._config.most_retries(self._retries_of_group)
        # A count can only be too high, so most messages need no second look.
        found = (*messages, *popped.undecodable)
        exhausted = [
            message
            for message in found
            if message.reconsume_times > most and received(message.failed_before, most) is State.DLQ
        ]
        if not exhausted and not popped.unwanted:
            return messages
        # Their broker may hang: whoever receives the others does not wait for it.
        ended = trio.Event()
        self._nursery.start_soon(self._set_aside, place, popped.unwanted, exhausted, ended)
        wanted = [message for message in messages if message not in exhausted]
        if not wanted:
            with trio.move_on_at(deadline):
                await ended.wait()
        return wanted

    async def _set_aside(
        self,
        place: ReceivePlace,
        unwanted: Sequence[ReceiptHandle],
        exhausted: Sequence[PoppedMessage],
        ended: trio.Event,
    ) -> None:
        async with open_quiet_nursery() as nursery:
            if unwanted:
                nursery.start_soon(self._drop, place, unwanted)
            for message in exhausted:
                nursery.start_soon(self._bury, message)
        ended.set()

    async def _drop(self, place: ReceivePlace, handles: Sequence[ReceiptHandle]) -> None:
        try:
            await batch_ack_messages(
                self._client,
                place.broker_name,
                [(place.topic, self._group, handle) for handle in handles],
            )
        except RocketMQError as error:
            logger.info(
                "group %s: %d messages with other tags come again: %s",
                self._group,
                len(handles),
                error,
                extra=about(group=self._group),
            )

    async def _bury(self, message: PoppedMessage) -> None:
        """Put a message into the dead letter topic.

        When that fails, the message comes again and is tried again.
        """
        try:
            await consumer_send_back(
                self._client,
                message.broker_name,
                self._group,
                message.commit_log_offset,
                delay_level=DEAD_LETTER,
                origin_message_id=message.message_id,
                origin_topic=message.receipt.topic,
                max_reconsume_times=0,
                timeout=SEND_BACK_TIMEOUT,
            )
            await self.ack(message)
        except RocketMQError as error:
            logger.warning(
                "group %s: message %s of %s has used up its attempts, but could not be put into "
                "the dead letter topic; to be tried again: %s",
                self._group,
                message.message_id,
                message.topic,
                error,
                extra=about(topic=message.topic, group=self._group, message_id=message.message_id),
            )
            return
        self._counters_of(message.receipt.topic).consumed -= 1
        self._dead_letters += 1
        logger.warning(
            "group %s: message %s of %s has used up its attempts; it is in the dead letter topic",
            self._group,
            message.message_id,
            message.topic,
            extra=about(topic=message.topic, group=self._group, message_id=message.message_id),
        )

    # -- receipts

    def _counters_of(self, topic: str) -> Counters:
        found = self._counters.get(topic)
        if found is None:
            found = self._counters[topic] = Counters()
        return found

    async def _free(self, target: PoppedMessage | Receipt) -> Receipt:
        """The receipt to use, once no other request about it is under way."""
        receipt = receipt_of(target)
        while receipt.busy is not None:
            await receipt.busy.wait()
            receipt = receipt_of(target)
        return receipt

    async def ack(self, target: PoppedMessage | Receipt) -> None:
        """Acknowledge a message."""
        receipt = receipt_of(target)
        if receipt.busy is not None:
            receipt = await self._free(target)
        receipt.check(self._group)
        receipt.busy = busy = trio.Event()
        try:
            if not self._observers:
                await ack_message(self._client, receipt.topic, self._group, receipt.handle)
            else:
                acknowledged = (target,) if isinstance(target, PoppedMessage) else ()
                ack = self._operation(OperationKind.ACK, receipt.topic, *acknowledged)
                ack.address = self._client.broker_address(receipt.handle.broker_name)
                with observed(self._observers, ack):
                    await ack_message(self._client, receipt.topic, self._group, receipt.handle)
            receipt.acknowledged()
            if self._deliveries is not None:
                self._deliveries.acknowledged(receipt)
        finally:
            receipt.busy = None
            busy.set()
        self._counters_of(receipt.topic).consumed += 1

    async def ack_in_time(self, message: PoppedMessage) -> None:
        """Acknowledge a message, again and again as long as its receipt is good.

        Raises the last error when that ends, or at once one that repeating cannot mend.
        """
        while True:
            try:
                await self.ack(message)
                return
            except RocketMQError as error:
                if message.receipt.state is State.COMMIT:
                    return  # another task has done it meanwhile
                rest = message.receipt.expires_at - trio.current_time()
                if not error.retryable or rest <= ACK_RETRY_PAUSE:
                    raise
                logger.info(
                    "group %s: message %s could not be acknowledged, to be tried again: %s",
                    self._group,
                    message.message_id,
                    error,
                    extra=about(group=self._group, message_id=message.message_id),
                )
            await trio.sleep(ACK_RETRY_PAUSE)

    async def batch_ack(self, targets: Sequence[PoppedMessage | Receipt]) -> None:
        """Acknowledge messages; all brokers are tried.

        Then the first error is raised, otherwise one for the receipts that are not
        good.
        """
        if not isinstance(targets, Iterable):
            raise WrongTypeError(f"messages is {targets!r:.200}; give a list of messages")
        asked = [receipt_of(target) for target in targets]
        if any(receipt.busy is not None for receipt in asked):
            for target in targets:
                await self._free(target)
            asked = [receipt_of(target) for target in targets]
        now, group = elapsed(), self._group
        work: dict[str, dict[Receipt, None]] = {}
        problems: list[str] = []
        for receipt in asked:
            problem = receipt.problem(now, group)
            if problem is not None:
                problems.append(problem)
                continue
            name = receipt.handle.broker_name
            if name not in work:
                work[name] = {}
            work[name][receipt] = None
        busy = {name: trio.Event() for name in work}
        for name, receipts in work.items():
            for receipt in receipts:
                receipt.busy = busy[name]

        async def acknowledge(name: str) -> None:
            await self._ack_at(name, work[name], busy[name])

        await answers_of_all(work, acknowledge)
        if problems:
            raise ReceiptHandleError("; ".join(problems))

    async def _ack_at(
        self, broker_name: str, receipts: Collection[Receipt], busy: trio.Event
    ) -> None:
        """Acknowledge at one broker; the receipts are `busy` until it is done."""
        acks = [(receipt.topic, self._group, receipt.handle) for receipt in receipts]
        topics = Counter([topic for topic, _group, _handle in acks])
        try:
            if not self._observers:
                await batch_ack_messages(self._client, broker_name, acks)
            else:
                ack = self._operation(OperationKind.ACK, next(iter(topics), None))
                if len(topics) > 1:
                    ack.topic = None
                ack.address = self._client.broker_address(broker_name)
                with observed(self._observers, ack):
                    await batch_ack_messages(self._client, broker_name, acks)
            for receipt in receipts:
                receipt.acknowledged()
            if self._deliveries is not None:
                for receipt in receipts:
                    self._deliveries.acknowledged(receipt)
            for topic, number in topics.items():
                self._counters_of(topic).consumed += number
        finally:
            for receipt in receipts:
                receipt.busy = None
            busy.set()

    async def postpone(self, message: PoppedMessage) -> Receipt:
        """Make a failed message visible again when the group's retry policy says.

        Returns its new receipt.
        """
        message.receipt.check(self._group)
        return await self.change_invisible_duration(
            message, delay_ms(self._policy_of_group, message.failed_before) / 1000
        )

    async def give_up(self, message: PoppedMessage) -> None:
        """The program has failed on a message: postpone it if it is still ours.

        Otherwise, and after an error, it comes again by itself. In order it waits for
        the end of its invisible duration: a growing delay would hold up its queue.
        """
        if self._config.fifo or not message.receipt.is_good:
            return
        with trio.move_on_after(GIVE_UP_LIMIT, shield=True):
            try:
                await self.postpone(message)
            except RocketMQError as error:
                logger.info(
                    "group %s: message %s failed and could not be postponed, it comes again when "
                    "its time is over: %s",
                    self._group,
                    message.message_id,
                    error,
                    extra=about(group=self._group, message_id=message.message_id),
                )

    async def change_invisible_duration(
        self, target: PoppedMessage | Receipt, seconds: float
    ) -> Receipt:
        """Make a message visible again `seconds` from now; returns its new receipt."""
        receipt = await self._free(target)
        receipt.check(self._group)
        receipt.busy = busy = trio.Event()
        invisibility = Invisibility()
        try:
            handle = await change_invisible_time(
                self._client, receipt.topic, self._group, receipt.handle, round(seconds * 1000)
            )
            new = receipt.replace(handle, invisibility.ends(seconds))
            if self._deliveries is not None:
                self._deliveries.replaced(receipt, new)
            return new
        finally:
            receipt.busy = None
            busy.set()
