"""Consuming by pop: the part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.part import Part, SavedTable, Service
from rocketmq_sdk.broker_embedded.pop.ack import AckProcessor
from rocketmq_sdk.broker_embedded.pop.change_invisible import ChangeInvisibleTimeProcessor
from rocketmq_sdk.broker_embedded.pop.notification import NotificationProcessor
from rocketmq_sdk.broker_embedded.pop.peek import PeekProcessor
from rocketmq_sdk.broker_embedded.pop.plain_acks import PlainAcks
from rocketmq_sdk.broker_embedded.pop.polling import PopHolder
from rocketmq_sdk.broker_embedded.pop.popping import PopProcessor
from rocketmq_sdk.broker_embedded.pop.state import PopState
from rocketmq_sdk.broker_embedded.request import Asked, Cost, Request, Wait, Writes
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.names import revive_topic
from rocketmq_sdk.protocol.bodies.pop import BatchAckMessageRequestBody
from rocketmq_sdk.protocol.headers import pop as headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.filter.part import FilterPart
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.timers.part import TimerPart
    from rocketmq_sdk.remoting.channel import Channel

_ORDER_INTERVAL_MS: Final = 10_000


ACKS: Final = 4 * 1024 * 1024
"""Most bytes of a batch of acknowledgements; its entries are served in slices."""


class PopPart(Part):
    """Pops, acknowledgements, new invisible durations, and revival.

    A slave serves none of it; it shows what its master tells.
    """

    __slots__ = ("_acks", "_changes", "_core", "_notifier", "_popper", "state")

    def __init__(
        self, core: Core, timers: TimerPart, filters: FilterPart, members: MemberPart
    ) -> None:
        self._core = core
        self.state = PopState(core, timers)
        """What is lent to whom."""
        self._popper = PopProcessor(core, self.state, filters.subscriptions)
        self._notifier = NotificationProcessor(core, self.state, filters.subscriptions)
        self._acks = AckProcessor(core, self.state)
        self._changes = ChangeInvisibleTimeProcessor(core, self.state)
        self.state.waiting = PopHolder(core.clock, self._popper.rerun)
        self.state.notifications = PopHolder(core.clock, self._notifier.rerun, last_first=True)
        members.consumers.resubscribed.append(self.state.waiting.wake_outdated)
        core.offsets.on_reset.append(
            lambda group, topic, queue_id: self.state.waiting.wake(topic, group, queue_id)
        )

    def requests(self) -> Iterable[Request]:
        """Pops and what follows them."""
        return (*self._of_pops(), *self._of_acks())

    def _of_pops(self) -> Iterable[Request]:
        return (
            Request(
                RequestCode.POP_MESSAGE,
                self._popper.pop,
                needs.topic_and_group(Action.SUB),
                headers.PopMessageRequestHeader,
                raw=True,
                asked=Asked.MASTER,
                vip=False,
                wait=Wait.PULL,
                cost=Cost.MESSAGES,
                writes=Writes.LOG | Writes.OFFSETS,
            ),
            Request(
                RequestCode.PEEK_MESSAGE,
                PeekProcessor(self._core, self.state).peek,
                needs.topic_and_group(Action.SUB),
                headers.PeekMessageRequestHeader,
                raw=True,
                vip=False,
                wait=Wait.PULL,
                cost=Cost.MESSAGES,
            ),
            Request(
                RequestCode.NOTIFICATION,
                self._notifier.notify,
                needs.topic_and_group(Action.SUB),
                headers.NotificationRequestHeader,
                raw=True,
                asked=Asked.MASTER,
                vip=False,
                wait=Wait.PULL,
            ),
            Request(
                RequestCode.POLLING_INFO,
                self._notifier.polling_info,
                needs.topic_and_group(Action.GET),
                headers.PollingInfoRequestHeader,
                raw=True,
                vip=False,
                wait=Wait.PULL,
            ),
        )

    def _of_acks(self) -> Iterable[Request]:
        return (
            Request(
                RequestCode.ACK_MESSAGE,
                self._acks.ack,
                needs.topic_and_group(Action.SUB),
                headers.AckMessageRequestHeader,
                raw=True,
                together=PlainAcks(self._core, self.state, self._acks).serve,
                asked=Asked.MASTER,
                wait=Wait.ACK,
                writes=Writes.LOG | Writes.OFFSETS,
            ),
            Request(
                RequestCode.BATCH_ACK_MESSAGE,
                self._acks.batch_ack,
                needs.members_in(BatchAckMessageRequestBody, _acknowledged),
                body=BatchAckMessageRequestBody,
                raw=True,
                body_limit=ACKS,
                asked=Asked.MASTER,
                wait=Wait.ACK,
                cost=Cost.BODY,
                writes=Writes.LOG | Writes.OFFSETS,
            ),
            Request(
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                self._changes.change,
                needs.topic_and_group(Action.SUB),
                headers.ChangeInvisibleTimeRequestHeader,
                raw=True,
                asked=Asked.MASTER,
                wait=Wait.ACK,
                writes=Writes.LOG | Writes.OFFSETS,
            ),
        )

    def services(self) -> Iterable[Service]:
        """Waiting pops and notifications, the buffer of checkpoints, revival."""
        if self._core.config.current.is_slave:
            return ()
        state = self.state
        return (
            Service("pop polling", state.waiting.run, on_call=state.waiting.on_call),
            Service(
                "notifications of pop",
                state.notifications.run,
                on_call=state.notifications.on_call,
            ),
            Service("pop buffer", state.buffer.run, on_call=state.buffer.on_call),
            Service(
                "revival of popped messages",
                state.revive.run,
                trouble=state.revive.troubles,
                on_call=state.revive.on_call,
            ),
        )

    def saved_tables(self) -> Iterable[SavedTable]:
        """What ordered pops hold."""
        order = self.state.order
        return (
            SavedTable(
                "order info", lambda: _ORDER_INTERVAL_MS, order.persist, lambda: order.dirty
            ),
        )

    async def load(self) -> None:
        """Read what was lent, and listen to what pops and revival wait for."""
        state, store, config = self.state, self._core.store, self._core.config.current
        await state.load()
        if config.is_slave:
            return
        if store.needs is not None:
            store.needs.floors[state.records.topic] = state.revive.next_offset
            store.needs.places.append(state.records.places)
        topic, revive = revive_topic(config.broker_cluster_name), state.revive
        if any(
            store.max_offset(topic, queue_id) > revive.next_offset(queue_id)
            for queue_id in store.queue_ids(topic)
        ):
            revive.on_call.call()
        store.listen(revive.on_arrival, topic=topic)
        for holder in (state.waiting, state.notifications):
            store.listen(holder.on_arrival, waiting=holder.waiting_by_queue)

    def channel_closed(self, channel: Channel) -> None:
        """Drop the waiting pops of a closed connection."""
        self.state.waiting.channel_closed(channel)
        self.state.notifications.channel_closed(channel)

    def topic_deleted(self, topic: str) -> None:
        """Forget what is lent of a topic."""
        self.state.order.remove_topic(topic)
        self.state.buffer.remove_topic(topic)

    def group_deleted(self, group: str) -> None:
        """Forget what is lent to a group."""
        self.state.order.remove_group(group)
        self.state.buffer.remove_group(group)

    def release(self) -> None:
        """Answer the requests that wait; from now on pops get nothing."""
        self.state.release()

    async def close(self) -> None:
        """Bring what is in memory into the store and the offsets."""
        await self.state.close()


def _acknowledged(body: BatchAckMessageRequestBody) -> Iterable[tuple[str, Iterable[str]]]:
    for entry in body.acks:
        yield entry.consumer_group, (entry.topic,)
