"""A group whose broker says POP, against a model of it: push consumers that pop, and
simple consumers that share their group.

The rules, besides that no message is lost: what is acknowledged never comes again;
nothing comes again before its invisible time, or after a failure its delay, is over;
each delivery has a higher attempt than the one before; nothing is in the dead letter
topic before its attempts are used up. A broker that was killed may break them for what
it had handed out before.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.client.api.members import set_message_request_mode
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.outcome import ConsumeLater
from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.retry_states import State
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.protocol.bodies.members import MessageRequestMode
from support.group_model import GROUP, LISTENER_SECONDS, MOST_RETRIES, TOPIC, Seen, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.model.received import ReceivedMessage
    from support.consuming import Switch

INVISIBLE: Final = 20.0
"""Seconds that popped messages are invisible."""
DELAY: Final = 10.0
"""The shortest delay behind a failure."""
BEHIND: Final = 0.1
"""Seconds by which a client may take the end of an invisible time for later than its
broker does: the answer was on its way for as long.
"""


@attrs.define
class Delivery:
    """One message in the hands of one member."""

    message: PoppedMessage
    attempt: int
    delayed_until: float | None = None
    """When it may come again because it failed."""
    unsure: bool = False
    """What the broker knows of it is not known: a change of its time was not
    answered.
    """

    @property
    def hidden_until(self) -> float:
        """Nobody else may have it before."""
        end = self.message.receipt.expires_at
        return end if self.delayed_until is None else min(end, self.delayed_until)


class PopSeen(Seen):
    """What the members of a popping group saw."""

    def __init__(self) -> None:
        super().__init__(ordered=False)
        self.slow: set[str] = set()
        """Messages that fail by taking longer than their invisible time."""
        self.deliveries: defaultdict[str, list[Delivery]] = defaultdict(list)
        self.used_up: set[str] = set()
        """Messages that failed with as many attempts as they have."""

    def _begin(self, message: PoppedMessage) -> Delivery:
        body, now = message.body.decode(), trio.current_time()
        attempt = message.delivery_attempt
        self.check(message.receipt.is_good, f"{body} was handed out behind the end of its time")
        for earlier in self.deliveries[body]:
            if earlier.unsure:
                continue
            self.check(
                earlier.message.receipt.state is not State.COMMIT,
                f"{body} was acknowledged and came again",
            )
            early = earlier.hidden_until - now
            self.check(early <= BEHIND, f"{body} came {early:.3f} s before its time was over")
            self.check(
                attempt > earlier.attempt,
                f"{body} came as attempt {attempt} behind attempt {earlier.attempt}",
            )
        delivery = Delivery(message, attempt)
        self.deliveries[body].append(delivery)
        if attempt > MOST_RETRIES:
            self.used_up.add(body)
        return delivery

    async def listen(self, message: ReceivedMessage) -> None:
        """The listener of push consumers."""
        assert isinstance(message, PoppedMessage)
        delivery, body = self._begin(message), message.body.decode()
        await trio.sleep(LISTENER_SECONDS)
        if self.failures_left[body]:
            self.failures_left[body] -= 1
            if body in self.slow:
                await trio.sleep(2 * INVISIBLE)  # is cancelled when its time is over
                self.check(False, f"{body} was left with its listener behind the end of its time")
            delivery.delayed_until = trio.current_time() + DELAY
            raise ConsumeLater("as the model wants it")
        self.done[body] += 1

    async def process(self, consumer: SimpleConsumer, message: PoppedMessage) -> None:
        """What simple consumers do: longer than the invisible time, which is extended
        meanwhile.
        """
        delivery, body = self._begin(message), message.body.decode()
        try:
            async with consumer.processing(message):
                await trio.sleep(1.5 * INVISIBLE)
                if self.failures_left[body]:
                    self.failures_left[body] -= 1
                    raise ValueError("as the model wants it")
        except ValueError:
            return
        except RocketMQError:
            delivery.unsure = True
            return
        self.done[body] += 1


class PoppingWorld(World):
    """One broker and one group that pops."""

    seen: PopSeen

    def __init__(self, nursery: trio.Nursery, *, network: bool) -> None:
        super().__init__(nursery, PopSeen(), network=network)

    async def start(self) -> None:
        await super().start()
        assert self.sender is not None
        await set_message_request_mode(
            self.sender.client, await self.sender._broker(), TOPIC, GROUP, MessageRequestMode.POP
        )

    def check_commits(self) -> None:
        """The broker moves the group on with each pop; what is not acknowledged comes
        by revival.
        """

    def consumer(self, switch: Switch) -> AbstractAsyncContextManager[object]:
        return PushConsumer(
            GROUP,
            namesrv=switch,
            subscriptions={TOPIC: "*"},
            listener=self.seen.listen,
            concurrency=4,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            max_reconsume_times=MOST_RETRIES,
            client_rebalance=False,
            pop_invisible_time=INVISIBLE,
        )

    # -- steps

    async def join_simple(self) -> None:
        """A simple consumer comes into the group."""
        if len(self._members) < 4:
            await self._join(self._simple)

    @asynccontextmanager
    async def _simple(self, switch: Switch) -> AsyncIterator[None]:
        options = {
            "consume_from": ConsumeFrom.FIRST_OFFSET,
            "max_reconsume_times": MOST_RETRIES,
            "min_invisible_duration": 1.0,
        }
        async with (
            SimpleConsumer(
                GROUP,
                namesrv=switch,
                subscriptions={TOPIC: "*"},
                **options,  # type: ignore[arg-type]  # of several types
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._receive, consumer)
            yield
            nursery.cancel_scope.cancel()

    async def _receive(self, consumer: SimpleConsumer) -> None:
        while True:
            try:
                messages = await consumer.receive(2, INVISIBLE, 5)
            except RocketMQError:
                await trio.sleep(1)
                continue
            async with trio.open_nursery() as nursery:
                for message in messages:
                    nursery.start_soon(self.seen.process, consumer, message)

    async def send_slow(self, queue: int) -> None:
        """A message whose first call outlasts its invisible time."""
        self.seen.slow.add(f"{queue}-{len(self.seen.sent[queue])}")
        await self.send(queue, 1, 1)

    async def kill(self, which: int) -> None:
        self._doubt_changes()
        await super().kill(which)

    async def cut_for(self, which: int, seconds: float) -> None:
        self._doubt_changes()
        await super().cut_for(which, seconds)

    async def break_connections(self) -> None:
        self._doubt_changes()
        await super().break_connections()

    async def refuse_acks(self, seconds: float) -> None:
        await self.refuse_for(seconds, RequestCode.BATCH_ACK_MESSAGE, RequestCode.ACK_MESSAGE)

    async def restart(self, *, killed: bool) -> None:
        self._doubt_changes()
        if killed:
            for deliveries in self.seen.deliveries.values():
                for delivery in deliveries:
                    delivery.unsure = True
        await super().restart(killed=killed)

    def _doubt_changes(self) -> None:
        # A change of the time whose answer is lost is asked for again by the receipt
        # that it has replaced, and then the message is out twice.
        for deliveries in self.seen.deliveries.values():
            for delivery in deliveries:
                delivery.unsure |= delivery.message.receipt.busy is not None

    # -- the end

    async def settle(self) -> None:
        """Whatever is out comes back now, if it may."""
        await trio.sleep(4 * INVISIBLE)
        early = self._dead() - self.seen.used_up
        self.seen.check(
            not early,
            f"in the dead letter topic before their attempts were used up: {sorted(early)}",
        )
