"""Pops and notifications that wait for a message (`PopLongPollingService`).

A request waits for a topic and a group, for one queue or for any. A message that
arrives wakes the one of a group's waiting pops that has waited longest and whose filter
lets it through; the next message wakes the next. (Notifications are woken the other way
round, as with Apache.) A message put into the group's pop retry topic wakes too, by its
property ORIGIN_GROUP. A woken request runs again from its beginning and may wait once
more; its deadline, and the time when an ordered queue becomes free, wake it as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.pull.long_polling import HeldPull, PullHolder
from rocketmq_sdk.model.properties import ORIGIN_GROUP, property_in_text
from rocketmq_sdk.names import RETRY_PREFIX

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.pull.long_polling import Rerun
    from rocketmq_sdk.broker_embedded.store.messages import Arrival, MessageFilter
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.protocol.header import Header
    from rocketmq_sdk.remoting.channel import Channel

ANY_QUEUE = -1
LOOK_AGAIN = 1.0
"""Seconds until a request looks again when something came while it looked."""
_TOTAL = 1 << 31


class HeldPop(HeldPull):
    """One request that waits.

    `queue_id` -1 means any queue; with `ordered`, retries are not for it.
    """

    __slots__ = ("expires", "group", "ordered", "outdated")

    def __init__(
        self,
        channel: Channel,
        request: Command,
        topic: str,
        group: str,
        queue_id: int,
        message_filter: MessageFilter | None,
        deadline: float,
        header: Header | None = None,
        *,
        ordered: bool = False,
    ) -> None:
        super().__init__(channel, request, topic, queue_id, 0, message_filter, deadline, header)
        self.group = group
        self.ordered = ordered
        self.expires = deadline
        self.outdated = False
        """Its group wants other messages since it came."""
        self.key = (topic, group, queue_id)
        self.wanted = (ordered, self.wanted)

    def wake_at(self, moment: float) -> None:
        """Look again at a moment (monotonic seconds), even before the deadline."""
        self.deadline = min(self.expires, moment)


class PopHolder(PullHolder):
    """Holds pops until a message arrives for them or their time is over.

    Add `on_arrival` to the store's list of listeners.
    """

    __slots__ = ("_groups", "_last_first")

    def __init__(self, clock: Clock, rerun: Rerun, *, last_first: bool = False) -> None:
        super().__init__(clock, rerun, limit=_TOTAL)
        self._last_first = last_first
        self._groups: dict[str, dict[str, set[int]]] = {}

    def waiting(self, topic: str, group: str, queue_id: int) -> int:
        """How many requests wait for a queue, or for any."""
        return sum(map(len, self._queues.get((topic, group, queue_id), {}).values()))

    def hold(self, pull: HeldPull) -> None:
        """Keep a request until it is woken."""
        assert isinstance(pull, HeldPop)
        self._groups.setdefault(pull.topic, {}).setdefault(pull.group, set()).add(pull.queue_id)
        super().hold(pull)

    def on_arrival(self, arrival: Arrival) -> None:
        """Wake one request of each group that the message is for."""
        if not self._queues:
            return
        topic = arrival.topic
        if topic.startswith(RETRY_PREFIX):
            self._on_retry(topic, arrival)
        groups = self._groups.get(topic)
        if groups is not None:
            for group in list(groups):
                if not self._wake_one(topic, group, ANY_QUEUE, arrival):
                    self._wake_one(topic, group, arrival.queue_id, arrival)

    def _on_retry(self, topic: str, arrival: Arrival) -> None:
        group = property_in_text(arrival.properties, ORIGIN_GROUP)
        if group is None or not topic.startswith(group, len(RETRY_PREFIX)):
            return
        original = topic[len(RETRY_PREFIX) + len(group) + 1 :]
        for queue_id in sorted(self._groups.get(original, {}).get(group, ())):
            if self._wake_one(original, group, queue_id, None, retried=True):
                return

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """Something may be there in a queue, or (-1) in any of them.

        Wakes a request of the group that waits for any queue, else one that waits for
        that queue, or one of each.
        """
        if self._wake_one(topic, group, ANY_QUEUE, None):
            return
        queues = self._groups.get(topic, {}).get(group, ())
        for number in sorted(queues) if queue_id == ANY_QUEUE else (queue_id,):
            self._wake_one(topic, group, number, None)

    def _pass_on(self, pull: HeldPull) -> None:
        """Wake another request: what has woken this one is still there."""
        assert isinstance(pull, HeldPop)
        if not self.closing:
            self.wake(pull.topic, pull.group, pull.queue_id)

    def wake_outdated(self, group: str, topic: str) -> None:
        """A group's filter for a topic changed: wake its requests.

        They must not take or skip messages by their old expressions.
        """
        for queue_id in sorted(self._groups.get(topic, {}).get(group, ())):
            for pop in self._all_of((topic, group, queue_id)):
                assert isinstance(pop, HeldPop)
                pop.outdated = True
                self._wake(pop)

    def _wake_one(
        self,
        topic: str,
        group: str,
        queue_id: int,
        arrival: Arrival | None,
        *,
        retried: bool = False,
    ) -> bool:
        found: HeldPop | None = None
        for same in self._queues.get((topic, group, queue_id), {}).values():
            pop = next(reversed(same) if self._last_first else iter(same))
            assert isinstance(pop, HeldPop)
            if retried and pop.ordered:
                continue
            if found is not None and (pop.number > found.number) != self._last_first:
                continue
            if arrival is None or pop.lets_through(arrival):
                found = pop
        if found is None:
            return False
        self._wake(found)
        return True

    def _drop(self, pull: HeldPull) -> None:
        super()._drop(pull)
        if pull.key not in self._queues and isinstance(pull, HeldPop):
            groups = self._groups.get(pull.topic, {})
            queues = groups.get(pull.group)
            if queues is not None:
                queues.discard(pull.queue_id)
                if not queues:
                    del groups[pull.group]
                    if not groups:
                        del self._groups[pull.topic]
