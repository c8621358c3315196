"""Receiving popped messages: which broker is asked for which topic, and waiting.

A pop asks one broker for any queue of one topic. With one place to ask, the pop itself
waits there. With several, each is asked once without waiting, in turns. When none has
messages, all are asked for a notification (NOTIFICATION, 200054), and then they are
popped again. A place that does not answer is set apart (`hung_places`). Apache's simple
consumer waits at one place for the whole time, and a message at another one waits with
it.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import trio

from rocketmq_sdk.client.api.pop import notification, pop_message
from rocketmq_sdk.consumer.pop.receipt import Invisibility, PoppedMessage, Receipt
from rocketmq_sdk.consumer.simple.hung_places import HungPlaces
from rocketmq_sdk.errors import RequestTimeoutError, RocketMQError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import PopStatus
from rocketmq_sdk.protocol.headers.pop import NotificationRequestHeader, PopMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.client.api.pop import Undecodable
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.protocol.receipt_handle import ReceiptHandle
    from rocketmq_sdk.protocol.subscription import SubscriptionData

logger = logging.getLogger("rocketmq_sdk.consumer")

ANY_QUEUE: Final = -1
INIT_AT_END: Final = 1
"""`initMode`: without a position, begin at the newest message (`ConsumeInitMode.MAX`).
"""
INIT_AT_BEGINNING: Final = 0
BROKERS_CLOCK: Final = 0
"""A born time of 0, which brokers replace by their own time.

With the client's time, brokers would answer at once to a client whose clock is half a
second behind.
"""
ERROR_PAUSE: Final = 1.0
"""Seconds until places that could not be asked are tried again within one receive."""
LONGEST_POLL: Final = 30.0
"""The longest time that one request asks a broker to wait, in seconds.

A receive that waits longer asks again, so that it notices a broker that has silently
gone away.
"""
LEAST_WAIT: Final = 0.05
"""Seconds before its deadline at which a receive ends when it has nothing."""
MAX_POP: Final = 32
"""The most messages that a broker returns for one pop."""


class ReceivePlace(NamedTuple):
    """One topic at one broker, where messages of a subscription can be popped."""

    topic: str
    broker_name: str


class Popped(NamedTuple):
    """What one pop returned.

    Messages with receipts, handles of messages that only share the hash of a tag, and
    messages that cannot be decoded.
    """

    messages: list[PoppedMessage]
    unwanted: Sequence[ReceiptHandle] = ()
    undecodable: Sequence[PoppedMessage] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the pop returned nothing at all."""
        return not (self.messages or self.unwanted or self.undecodable)


class Receiver:
    """Pops for one consumer; any number of tasks may receive at a time."""

    def __init__(
        self,
        client: Client,
        group: str,
        subscriptions: dict[str, SubscriptionData],
        *,
        margin: float,
        fifo: bool,
        init_mode: int,
    ) -> None:
        self.last_pop: float | None = None
        self.rests: dict[ReceivePlace, int] = {}
        """How many more messages places had when they answered last."""
        self.complaints: dict[ReceivePlace, str] = {}
        """What places answered last that could not be popped."""
        self._client = client
        self._group = group
        self._subscriptions = subscriptions
        self._margin = margin
        self._fifo = fifo
        self._init_mode = init_mode
        self._turn = 0
        self._attempts: dict[ReceivePlace, list[str]] = {}
        self._changed = trio.Event()
        self._hung: HungPlaces[ReceivePlace, Popped] = HungPlaces(self._probe, self.wake)

    def run_in(self, nursery: trio.Nursery) -> None:
        """Let pops that take long end in a nursery; call it before a receive."""
        self._hung.nursery = nursery

    def wake(self) -> None:
        """Routes or subscriptions have changed: waiting receives look again."""
        self._changed.set()
        self._changed = trio.Event()

    def places(self) -> list[ReceivePlace]:
        """All places, in the same order for all receives."""
        found: dict[ReceivePlace, None] = {}
        for topic in self._subscriptions:
            for broker_name in self._client.routes.readable_brokers(topic):
                if self._client.broker_address(broker_name) is not None:
                    found[ReceivePlace(topic, broker_name)] = None
        return list(found)

    async def receive(
        self, most: int, invisible_ms: int, deadline: float
    ) -> tuple[ReceivePlace, Popped] | None:
        """Messages of one place, or None when none arrive before the deadline.

        Raises the last error when no place could be asked.
        """
        while True:
            changed = self._changed
            late = self._take_arrived()
            if late is not None:
                return late
            places = self._in_turn()
            remaining = max(deadline - trio.current_time(), 0.0)
            if len(places) == 1 and not self._hung.apart:
                began = trio.current_time()
                popped = await self._pop(
                    places[0], most, invisible_ms, min(remaining, LONGEST_POLL)
                )
                if not popped.is_empty:
                    return places[0], popped
                now = trio.current_time()
                if deadline - now < LEAST_WAIT:
                    return None
                if (
                    now - began < ERROR_PAUSE
                ):  # a broker that cannot hold the request answers at once
                    await trio.sleep(min(deadline - now, ERROR_PAUSE))
                continue
            good = [place for place in places if place not in self._hung.apart]
            if good:
                found = await self._ask_each(good, most, invisible_ms)
                if found is not None:
                    return found
            await self._wait_for_news(places, changed, deadline)
            if trio.current_time() >= deadline:
                return None

    async def _wait_for_news(
        self, places: list[ReceivePlace], changed: trio.Event, deadline: float
    ) -> None:
        """Return when some place may have messages, or at the deadline.

        Raises the error of a place when none has answered for a while.
        """
        good = [place for place in places if place not in self._hung.apart]
        if good or not places:
            with trio.move_on_at(deadline):
                await self._wait(good, changed, deadline)
            return
        with trio.move_on_at(min(deadline, trio.current_time() + self._margin)):
            await changed.wait()
            return
        errors = [self._hung.apart[place] for place in places if place in self._hung.apart]
        if len(errors) == len(places):
            raise errors[-1]

    def _take_arrived(self) -> tuple[ReceivePlace, Popped] | None:
        """What pops have brought that no receive waited for."""
        arrived = self._hung.arrived
        while arrived:
            place, popped = arrived.popleft()
            messages = [message for message in popped.messages if message.receipt.is_good]
            left = popped._replace(messages=messages)
            if place.topic in self._subscriptions and not left.is_empty:
                return place, left
        return None

    async def _probe(self, place: ReceivePlace) -> None:
        """Ask a place something that takes no messages."""
        header = NotificationRequestHeader(
            consumer_group=self._group,
            topic=place.topic,
            queue_id=ANY_QUEUE,
            poll_time=0,
            born_time=BROKERS_CLOCK,
            order=self._fifo,
        )
        await notification(self._client, place.broker_name, header, ERROR_PAUSE)

    def _in_turn(self) -> list[ReceivePlace]:
        places = self.places()
        if len(places) > 1:
            first = self._turn % len(places)
            self._turn += 1
            places = places[first:] + places[:first]
        return places

    async def _ask_each(
        self, places: list[ReceivePlace], most: int, invisible_ms: int
    ) -> tuple[ReceivePlace, Popped] | None:
        failures: list[RocketMQError] = []
        for number, place in enumerate(places):
            if (
                # Given up, or found hung, while the places in front were asked.
                place.topic not in self._subscriptions or place in self._hung.apart
            ):
                continue
            try:
                popped = await self._hung.pop(
                    place, partial(self._pop, place, most, invisible_ms, 0.0)
                )
            except RocketMQError as error:
                failures.append(error)
                logger.info(
                    "group %s: %s at %s could not be popped: %s",
                    self._group,
                    place.topic,
                    place.broker_name,
                    error,
                    extra=about(topic=place.topic, group=self._group),
                )
                if isinstance(error, RequestTimeoutError):
                    rest = [each for each in places[number + 1 :] if each not in self._hung.apart]
                    await self._hung.sift(rest)
                continue
            if not popped.is_empty:
                return place, popped
        if len(failures) == len(places) and not self._hung.apart:
            raise failures[-1]
        return None

    async def _pop(self, place: ReceivePlace, most: int, invisible_ms: int, wait: float) -> Popped:
        subscription = self._subscriptions[place.topic]
        header = PopMessageRequestHeader(
            consumer_group=self._group,
            topic=place.topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=min(most, MAX_POP),
            invisible_time=invisible_ms,
            poll_time=round(wait * 1000),
            born_time=BROKERS_CLOCK,
            init_mode=self._init_mode,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=self._fifo,
            attempt_id=self._take_attempt(place),
        )
        tags = subscription.tags_set if subscription.is_tag_type else frozenset[str]()
        found, invisibility = False, Invisibility()
        try:
            result = await pop_message(
                self._client,
                place.broker_name,
                header,
                wait + self._margin,
                tags=tags,
                kind=PoppedMessage,
            )
            found = result.status is PopStatus.FOUND
        except RocketMQError as error:
            self.complaints[place] = str(error)
            if error.route_stale:
                self._client.routes.request_refresh(place.topic)
            raise
        finally:
            if header.attempt_id is not None and not found:
                self._attempts.setdefault(place, []).append(header.attempt_id)
        self.last_pop = trio.current_time()
        self.rests[place] = result.rest_count
        if self.complaints:
            self.complaints.pop(place, None)
        if not found:
            return Popped([])
        until = invisibility.ends(result.invisible_time / 1000)
        topic, group = place.topic, self._group
        messages = cast("list[PoppedMessage]", result.messages)
        for message, handle in zip(messages, result.handles, strict=True):
            message._receipt = Receipt(topic, handle, until, group)
        if self._client.namespace:
            for message in messages:
                message.topic = self._client.namespace.unwrap(message.topic)
        return Popped(
            messages,
            result.unwanted,
            self._undecodable(place, result.undecodable, until) if result.undecodable else (),
        )

    def _undecodable(
        self, place: ReceivePlace, found: Sequence[Undecodable], until: float
    ) -> list[PoppedMessage]:
        messages = []
        for message, handle, reason in found:
            assert isinstance(message, PoppedMessage)
            message._receipt = Receipt(place.topic, handle, until, self._group)
            messages.append(message)
            logger.warning(
                "group %s: the message of topic %s at broker %s, queue %d, offset %d cannot be "
                "decoded: %s. It comes again when its time is over, "
                "until its attempts are used up; install what is missing.",
                self._group,
                place.topic,
                place.broker_name,
                message.queue_id,
                message.offset,
                reason,
                extra=about(topic=place.topic, group=self._group, queue=message.queue_id),
            )
        return messages

    def _take_attempt(self, place: ReceivePlace) -> str | None:
        """The attempt id of an ordered pop.

        It is that of an earlier pop that got no messages, so that a lost answer does
        not block the queue, otherwise a new one. Never that of another pop under way:
        the broker would give both the same messages.
        """
        if not self._fifo:
            return None
        open_attempts = self._attempts.get(place)
        return open_attempts.pop() if open_attempts else self._client.ids.next_id()

    async def _wait(self, places: list[ReceivePlace], changed: trio.Event, deadline: float) -> None:
        """Return when some place may have messages, or the places have changed."""
        async with trio.open_nursery() as nursery:

            async def ask(place: ReceivePlace) -> None:
                await self._wait_at(place, deadline)
                nursery.cancel_scope.cancel()

            for place in places:
                nursery.start_soon(ask, place)
            await changed.wait()
            nursery.cancel_scope.cancel()

    async def _wait_at(self, place: ReceivePlace, deadline: float) -> None:
        while True:
            remaining = min(max(deadline - trio.current_time(), 0.0), LONGEST_POLL)
            header = NotificationRequestHeader(
                consumer_group=self._group,
                topic=place.topic,
                queue_id=ANY_QUEUE,
                poll_time=round(remaining * 1000),
                born_time=BROKERS_CLOCK,
                order=self._fifo,
            )
            began = trio.current_time()
            try:
                answer = await notification(
                    self._client, place.broker_name, header, remaining + self._margin
                )
            except RocketMQError as error:
                logger.debug(
                    "group %s: %s at %s does not notify: %s",
                    self._group,
                    place.topic,
                    place.broker_name,
                    error,
                    extra=about(topic=place.topic, group=self._group),
                )
                await trio.sleep(ERROR_PAUSE)
                return
            if answer.has_msg:
                return
            if answer.polling_full or trio.current_time() - began < ERROR_PAUSE:
                await trio.sleep(ERROR_PAUSE)
                return
