"""Avoiding brokers that answered late or not at all.

Follows `MQFaultStrategy`, `LatencyFaultToleranceImpl` of Apache RocketMQ.

Pure policies: time comes as the argument `now`, in milliseconds like all times of this
module, and nothing here waits. There are three profiles. The default one sets apart
brokers that were not reached or did not answer, until they do again; it does not look
at latencies. Those of Apache's clients are off by default, as there. Today's (5.1.4 and
later) keeps a broker away for at most 30 s, does not take the broker of the failed
attempt again while there is another one, and falls back on reachable brokers.
The classic one (4.2 to 4.7) keeps a broker away for up to 600 s, accepts in a retry
only queues of the broker of the failed attempt, and falls back on one of the better
half of all brokers it knows (`pickOneAtLeast`).
"""

from __future__ import annotations

import random
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Literal

import attrs

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.producer.queue_selector import QueueIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rocketmq_sdk.model.queue import MessageQueue

FaultProfileName = Literal["unanswered", "today", "classic"]


class LastBrokerRule(Enum):
    """What the broker of the failed attempt means for the next choice."""

    MUST_DIFFER = auto()
    MUST_EQUAL = auto()
    SHOULD_DIFFER = auto()


@attrs.frozen(kw_only=True)
class FaultProfile:
    """One generation of fault avoidance.

    A latency of at least `latency_max[i]` keeps a broker away for
    `not_available_duration[i]`.
    """

    name: FaultProfileName
    latency_max: tuple[int, ...]
    not_available_duration: tuple[int, ...]
    isolation_latency: int
    """The latency that counts when an attempt failed."""
    last_broker_rule: LastBrokerRule
    pick_one_at_least: bool
    """Whether the fallback is one of the better half of known brokers.

    Else it is a reachable one.
    """
    start_may_go_back: bool
    """Whether a quick answer makes a broker available again at once."""

    def compute_not_available_duration(self, latency: int) -> int:
        """How long a broker that took `latency` is kept away."""
        for limit, duration in zip(
            reversed(self.latency_max), reversed(self.not_available_duration), strict=True
        ):
            if latency >= limit:
                return duration
        return 0


TODAY: Final = FaultProfile(
    name="today",
    latency_max=(50, 100, 550, 1800, 3000, 5000, 15000),
    not_available_duration=(0, 0, 2000, 5000, 6000, 10000, 30000),
    isolation_latency=10000,
    last_broker_rule=LastBrokerRule.MUST_DIFFER,
    pick_one_at_least=False,
    start_may_go_back=False,
)
CLASSIC: Final = FaultProfile(
    name="classic",
    latency_max=(50, 100, 550, 1000, 2000, 3000, 15000),
    not_available_duration=(0, 0, 30000, 60000, 120000, 180000, 600000),
    isolation_latency=30000,
    last_broker_rule=LastBrokerRule.MUST_EQUAL,
    pick_one_at_least=True,
    start_may_go_back=True,
)
UNANSWERED: Final = FaultProfile(
    name="unanswered",
    latency_max=(10000,),
    not_available_duration=(10000,),
    isolation_latency=10000,
    last_broker_rule=LastBrokerRule.SHOULD_DIFFER,
    pick_one_at_least=False,
    start_may_go_back=True,
)
PROFILES: Final = {profile.name: profile for profile in (UNANSWERED, TODAY, CLASSIC)}


def fault_profile(name: str | None) -> FaultProfile | None:
    """The profile of a name; None means no fault avoidance.

    Raises `ConfigurationError` for another name.
    """
    if name is None:
        return None
    for profile in PROFILES.values():
        if profile.name == name:
            return profile
    raise ConfigurationError(
        f"fault_profile is {name!r}; there are 'unanswered', 'today', 'classic' and None"
    )


class FaultItem:
    """What is known of one broker.

    `start_timestamp` is when it is available again, `check_stamp` when the detector
    looks at it next.
    """

    __slots__ = ("check_stamp", "current_latency", "name", "reachable", "start_timestamp")

    def __init__(self, name: str) -> None:
        self.name = name
        self.current_latency = 0
        self.start_timestamp = 0
        self.check_stamp = 0
        self.reachable = True

    def is_available(self, now: int) -> bool:
        """Whether its time away is over."""
        return now >= self.start_timestamp

    def __repr__(self) -> str:
        return (
            f"FaultItem({self.name!r}, latency={self.current_latency}, "
            f"start={self.start_timestamp}, reachable={self.reachable})"
        )


class LatencyFaultTolerance:
    """The table of brokers that were heard of.

    An unknown broker is available and reachable.
    """

    __slots__ = ("_index", "_items")

    def __init__(self) -> None:
        self._items: dict[str, FaultItem] = {}
        self._index = QueueIndex()

    @property
    def items(self) -> Iterable[FaultItem]:
        """All items."""
        return self._items.values()

    def update_fault_item(
        self,
        name: str,
        latency: int,
        not_available_duration: int,
        *,
        reachable: bool,
        now: int,
        start_may_go_back: bool = False,
    ) -> None:
        """Note how a broker did.

        Today's rule never ends a time away earlier than noted before; the classic one
        does.
        """
        item = self._items.get(name)
        if item is None:
            item = self._items[name] = FaultItem(name)
        item.current_latency = latency
        start = now + not_available_duration
        if start_may_go_back or (not_available_duration > 0 and start > item.start_timestamp):
            item.start_timestamp = start
        item.reachable = reachable

    def is_available(self, name: str, now: int) -> bool:
        """Whether a broker's time away is over."""
        item = self._items.get(name)
        return item is None or now >= item.start_timestamp

    def is_reachable(self, name: str) -> bool:
        """Whether a broker was reached when it was last tried."""
        item = self._items.get(name)
        return item is None or item.reachable

    def __len__(self) -> int:
        return len(self._items)

    def remove(self, name: str) -> None:
        """Forget a broker."""
        self._items.pop(name, None)

    def pick_one_at_least(self) -> str | None:
        """A random reachable broker, or None (today's `pickOneAtLeast`)."""
        reachable = [item.name for item in self._items.values() if item.reachable]
        return random.choice(reachable) if reachable else None

    def pick_of_better_half(self, now: int) -> str | None:
        """One of the better half of the table, in turn (the classic `pickOneAtLeast`).

        Available brokers come first, then by latency, then by start.
        """
        items = list(self._items.values())
        if not items:
            return None
        random.shuffle(items)
        items.sort(
            key=lambda item: (
                not item.is_available(now),
                item.current_latency,
                item.start_timestamp,
            )
        )
        half = len(items) // 2
        return items[self._index.next() % half if half else 0].name

    def due_for_detection(self, now: int, interval: int) -> list[str]:
        """Brokers that the detector should look at now.

        Each is due again `interval` later.
        """
        due = [item for item in self._items.values() if now >= item.check_stamp]
        for item in due:
            item.check_stamp = now + interval
        return [item.name for item in due]

    def mark_reachable(self, name: str) -> None:
        """The detector has reached a broker."""
        item = self._items.get(name)
        if item is not None:
            item.reachable = True


class MQFaultStrategy:
    """Chooses the queue of an attempt, with or without fault avoidance.

    `active` tells whether the choice, and news of brokers that do well, matter now.
    """

    __slots__ = ("active", "failures", "on_isolated", "profile", "tolerance")

    def __init__(self, profile: FaultProfile | None = None) -> None:
        self.profile = profile
        self.active = profile is not None and profile is not UNANSWERED
        self.tolerance = LatencyFaultTolerance()
        self.failures: dict[str, str] = {}
        """How the last attempt at a broker failed, for `health`."""
        self.on_isolated: Callable[[], None] | None = None
        """Called when an attempt has failed; for the detector."""

    def update_fault_item(
        self, broker_name: str, latency: int, *, isolation: bool, reachable: bool, now: int
    ) -> None:
        """Note how an attempt at a broker went; `isolation` when it failed."""
        profile = self.profile
        if profile is None:
            return
        if profile is UNANSWERED and not isolation:
            self.mark_good(broker_name)
            return
        duration = profile.compute_not_available_duration(
            profile.isolation_latency if isolation else latency
        )
        self.tolerance.update_fault_item(
            broker_name,
            latency,
            duration,
            reachable=reachable,
            now=now,
            start_may_go_back=profile.start_may_go_back,
        )
        if isolation:
            self.active = True
            if self.on_isolated is not None:
                self.on_isolated()

    def mark_good(self, broker_name: str) -> None:
        """A broker that was set apart has answered, or is no more."""
        if self.profile is UNANSWERED:
            self.tolerance.remove(broker_name)
            self.active = len(self.tolerance) > 0
        else:
            self.tolerance.mark_reachable(broker_name)

    def is_good(self, broker_name: str, now: int) -> bool:
        """Whether a broker is neither away nor unreachable."""
        tolerance = self.tolerance
        return tolerance.is_available(broker_name, now) and tolerance.is_reachable(broker_name)

    def select(
        self,
        queues: Sequence[MessageQueue],
        index: QueueIndex,
        *,
        last_broker: str | None = None,
        retry: bool = False,
        now: int,
    ) -> MessageQueue:
        """The queue for the next attempt, out of at least one.

        `last_broker` is the one that failed, `retry` whether there was an attempt
        before.
        """
        if self.profile is None:
            if last_broker is not None:
                found = _first(queues, index, lambda queue: queue.broker_name != last_broker)
                if found is not None:
                    return found
            return queues[index.next() % len(queues)]
        if self.profile is UNANSWERED:
            return self._select_answering(queues, index, last_broker, now)
        if self.profile.last_broker_rule is LastBrokerRule.MUST_EQUAL:
            return self._select_classic(queues, index, last_broker, now)
        return self._select_today(queues, index, last_broker, now, retry=retry)

    def _select_today(
        self,
        queues: Sequence[MessageQueue],
        index: QueueIndex,
        last_broker: str | None,
        now: int,
        *,
        retry: bool,
    ) -> MessageQueue:
        tolerance = self.tolerance
        if retry:
            index.reset()
        found = _first(
            queues,
            index,
            lambda queue: (
                queue.broker_name != last_broker and tolerance.is_available(queue.broker_name, now)
            ),
        )
        if found is None:
            found = _first(
                queues,
                index,
                lambda queue: (
                    queue.broker_name != last_broker and tolerance.is_reachable(queue.broker_name)
                ),
            )
        return queues[index.next() % len(queues)] if found is None else found

    def _select_answering(
        self, queues: Sequence[MessageQueue], index: QueueIndex, last_broker: str | None, now: int
    ) -> MessageQueue:
        found = _first(
            queues,
            index,
            lambda queue: queue.broker_name != last_broker and self.is_good(queue.broker_name, now),
        ) or _first(queues, index, lambda queue: queue.broker_name != last_broker)
        return queues[index.next() % len(queues)] if found is None else found

    def _select_classic(
        self, queues: Sequence[MessageQueue], index: QueueIndex, last_broker: str | None, now: int
    ) -> MessageQueue:
        tolerance = self.tolerance
        start = index.next()
        for step in range(len(queues)):
            queue = queues[(start + step) % len(queues)]
            if tolerance.is_available(queue.broker_name, now) and last_broker in (
                None,
                queue.broker_name,
            ):
                return queue
        best = tolerance.pick_of_better_half(now)
        if best is not None:
            of_best = [queue for queue in queues if queue.broker_name == best]
            if of_best:
                index.next()  # Apache's code takes any queue here and rewrites its broker and id
                return of_best[index.next() % len(of_best)]
            tolerance.remove(best)
        return queues[index.next() % len(queues)]


def _first(
    queues: Sequence[MessageQueue], index: QueueIndex, accept: Callable[[MessageQueue], bool]
) -> MessageQueue | None:
    """The first acceptable one of the next positions, each tried once."""
    for _ in range(len(queues)):
        queue = queues[index.next() % len(queues)]
        if accept(queue):
            return queue
    return None
