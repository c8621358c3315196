"""Counters by queue and group: total, last minute, hour and day.

`BrokerStatsManager` of Apache RocketMQ 5.5.0. Every message is counted, hence plain
slots and one look-up. Windows cost nothing between reads: `tick` counts steps of ten
seconds, and a sum samples its own past only when it is touched in a later step than
before. That is exact, because nothing changed in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.names import is_system_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.broker_embedded.tables.figures import Figures

TICK_SECONDS: Final = 10
MINUTE: Final = 0
HOUR: Final = 1
DAY: Final = 2
_STEPS: Final = (1, 60, 360)
_POINTS: Final = (7, 7, 25)
_Sample = tuple[int, int, int, int]
"""A step, and the times, messages and bytes that were counted up to it."""


class Window(NamedTuple):
    """The counts between the first and the last sample of a window.

    The samples are `seconds` apart.
    """

    times: int
    messages: int
    bytes: int
    seconds: int

    @staticmethod
    def joined(windows: Iterable[Window]) -> Window:
        """Several counters as one."""
        parts = list(windows)
        return Window(
            sum(part.times for part in parts),
            sum(part.messages for part in parts),
            sum(part.bytes for part in parts),
            max((part.seconds for part in parts), default=0),
        )


class Counts:
    """Calls, messages and bytes since the start, with samples of the past."""

    __slots__ = ("_samples", "_tick", "bytes", "messages", "times")

    def __init__(self, tick: int) -> None:
        self.times = 0
        self.messages = 0
        self.bytes = 0
        self._tick = tick
        self._samples: tuple[deque[_Sample], ...] = tuple(
            deque(((tick, 0, 0, 0),), maxlen=most) for most in _POINTS
        )

    def add(self, tick: int, messages: int, size: int, times: int = 1) -> None:
        """Count one call, or several at once."""
        if tick != self._tick:
            self._catch_up(tick)
        self.times += times
        self.messages += messages
        self.bytes += size

    def _catch_up(self, tick: int) -> None:
        """Take the samples due since the last touch; nothing was counted meanwhile."""
        for step, most, samples in zip(_STEPS, _POINTS, self._samples, strict=True):
            last = tick - tick % step
            first = max(self._tick - self._tick % step + step, last - (most - 1) * step)
            samples.extend(
                (at, self.times, self.messages, self.bytes) for at in range(first, last + 1, step)
            )
        self._tick = tick

    def window(self, which: int, tick: int) -> Window:
        """The samples of MINUTE, HOUR or DAY, from the oldest to the newest."""
        if tick != self._tick:
            self._catch_up(tick)
        samples = self._samples[which]
        (begin, *before), (end, *after) = samples[0], samples[-1]
        times, messages, size = (new - old for new, old in zip(after, before, strict=True))
        return Window(times, messages, size, (end - begin) * TICK_SECONDS)

    def join(self, other: Counts, tick: int) -> None:
        """Become the sum of both, as if one counter had counted all."""
        for counts in (self, other):
            if tick != counts._tick:
                counts._catch_up(tick)
        self.times += other.times
        self.messages += other.messages
        self.bytes += other.bytes
        self._samples = tuple(
            deque(_sums(mine, theirs), maxlen=mine.maxlen)
            for mine, theirs in zip(self._samples, other._samples, strict=True)
        )


def _sums(mine: Iterable[_Sample], theirs: Iterable[_Sample]) -> Iterator[_Sample]:
    """The samples of two counters added up.

    Between its samples a counter has the value of the one before, and 0 before the
    first.
    """
    series = [{at: counts for at, *counts in samples} for samples in (mine, theirs)]
    values = [[0, 0, 0], [0, 0, 0]]
    for at in sorted(series[0].keys() | series[1].keys()):
        values = [known.get(at, value) for known, value in zip(series, values, strict=True)]
        times, messages, size = (sum(pair) for pair in zip(*values, strict=True))
        yield at, times, messages, size


class DayStart(NamedTuple):
    """Messages put and got since the start, when a day began."""

    put: int
    got: int


class GroupAction(IntEnum):
    """What a group does with messages besides getting them.

    It sends them back, acknowledges them, or takes them out with a checkpoint.
    """

    SEND_BACK = 0
    ACKNOWLEDGE = 1
    CHECK_OUT = 2


class _Total(IntEnum):
    """What a sum over the whole broker counts."""

    PUT = 0
    GET = 1
    ACKNOWLEDGE = 2
    CHECK = 3


class GroupCounts:
    """One group's counts for one topic: gets by queue, and other actions."""

    __slots__ = ("actions", "queues")

    def __init__(self) -> None:
        self.queues: dict[int, Counts] = {}
        self.actions: dict[GroupAction, Counts] = {}

    def count(self, action: GroupAction, tick: int, messages: int, times: int = 1) -> None:
        """It did so with some messages, in so many requests."""
        counts = self.actions.get(action)
        if counts is None:
            counts = self.actions[action] = Counts(tick)
        counts.add(tick, messages, 0, times)

    @property
    def messages(self) -> int:
        """Messages that the group got."""
        return sum(counts.messages for counts in self.queues.values())

    @property
    def sent_back(self) -> int:
        """Messages that the group sent back."""
        counts = self.actions.get(GroupAction.SEND_BACK)
        return 0 if counts is None else counts.messages


class BrokerStats:
    """All counters. `advance` must be called every `TICK_SECONDS` seconds."""

    __slots__ = (
        "_day",
        "_gone",
        "_topics",
        "dead_letters",
        "figures",
        "groups",
        "mornings",
        "pull_found",
        "pull_missed",
        "put_failed",
        "put_messages",
        "put_times",
        "tick",
    )

    def __init__(self) -> None:
        self.tick = 0
        self._day: int | None = None
        self.mornings = (DayStart(0, 0), DayStart(0, 0))
        """The totals when yesterday and today began; 0 for days before the start."""
        self.put_times = 0
        self.put_messages = 0
        self.put_failed = 0
        self.pull_found = 0
        self.pull_missed = 0
        self.dead_letters = 0
        self.figures: Figures | None = None
        """What metrics ask for; None where nobody exports them."""
        self._topics: dict[str, dict[int, Counts]] = {}
        self._gone: dict[tuple[_Total, bool], Counts] = {}
        """What was counted for topics and groups that were deleted.

        Sums of the broker go on with it; the second member of a key says whether it is
        of system topics.
        """
        self.groups: dict[tuple[str, str], GroupCounts] = {}

    def advance(self, day: int) -> None:
        """Ten seconds are over; `day` is the number of the broker's local day."""
        self.tick += 1
        if day != self._day:
            if self._day is not None:
                self.mornings = (self.mornings[1], DayStart(self.put_messages, self.got_messages))
            self._day = day

    def put(self, topic: str, queue_id: int, messages: int, size: int, times: int = 1) -> None:
        """A put that succeeded, or several into one queue."""
        self.put_times += times
        self.put_messages += messages
        try:
            counts = self._topics[topic][queue_id]
        except KeyError:
            counts = self._topics.setdefault(topic, {}).setdefault(queue_id, Counts(self.tick))
        counts.add(self.tick, messages, size, times)

    def got(
        self, topic: str, group: str, queue_id: int, messages: int, size: int, times: int = 1
    ) -> None:
        """A pull or pop that found messages, or several from one queue."""
        self.pull_found += times
        queues = self._group(topic, group).queues
        counts = queues.get(queue_id)
        if counts is None:
            counts = queues[queue_id] = Counts(self.tick)
        counts.add(self.tick, messages, size, times)

    def sent_back(self, topic: str, group: str) -> None:
        """A message that a group sent back."""
        self._group(topic, group).count(GroupAction.SEND_BACK, self.tick, 1)

    def acknowledged(self, topic: str, group: str, messages: int = 1, times: int = 1) -> None:
        """Messages that a pop consumer acknowledged, in so many requests."""
        self._group(topic, group).count(GroupAction.ACKNOWLEDGE, self.tick, messages, times)

    def checkpoint(self, topic: str, group: str, messages: int = 1) -> None:
        """Checkpoints that were written for pops."""
        self._group(topic, group).count(GroupAction.CHECK_OUT, self.tick, messages)

    def _group(self, topic: str, group: str) -> GroupCounts:
        counts = self.groups.get((topic, group))
        if counts is None:
            counts = self.groups[topic, group] = GroupCounts()
        return counts

    @property
    def put_bytes(self) -> int:
        """Bytes of all records that were put."""
        return sum(counts.bytes for counts in self._total(_Total.PUT))

    @property
    def got_messages(self) -> int:
        """Messages that all groups got."""
        return sum(counts.messages for counts in self._total(_Total.GET))

    def remove_topic(self, topic: str) -> None:
        """Forget a topic that was deleted; the broker's own sums keep it."""
        for counts in self._topics.pop(topic, _NOTHING).values():
            self._bury(_Total.PUT, topic, counts)
        for key in [key for key in self.groups if key[0] == topic]:
            self._bury_group(key)
        if self.figures is not None:
            self.figures.forget_topic(topic)

    def remove_group(self, group: str) -> None:
        """Forget a group that was deleted; the broker's own sums keep it."""
        for key in [key for key in self.groups if key[1] == group]:
            self._bury_group(key)
        if self.figures is not None:
            self.figures.forget_group(group)

    def _bury_group(self, key: tuple[str, str]) -> None:
        gone = self.groups.pop(key)
        for counts in gone.queues.values():
            self._bury(_Total.GET, key[0], counts)
        for action, total in _TOTALS.items():
            if action in gone.actions:
                self._bury(total, key[0], gone.actions[action])

    def _bury(self, total: _Total, topic: str, counts: Counts) -> None:
        grave = self._gone.setdefault((total, is_system_topic(topic)), Counts(self.tick))
        grave.join(counts, self.tick)

    # --- looking

    def group_rate(self, topic: str, group: str) -> float:
        """Messages per second that a group got from a topic in the last minute."""
        counts = self.groups.get((topic, group))
        if counts is None:
            return 0.0
        window = self._window(counts.queues.values(), MINUTE)
        return window.messages / window.seconds if window.seconds else 0.0

    def find(self, name: str, key: str) -> tuple[Window, Window, Window, str] | None:
        """Minute, hour and day of one of Apache's items, and the member that it means.

        None when nothing was counted under the key.
        """
        item = _ITEMS.get(name)
        if item is None:
            return None
        select, member = item
        counters = list(select(self, key))
        if not counters:
            return None
        minute, hour, day = (self._window(counters, which) for which in (MINUTE, HOUR, DAY))
        return minute, hour, day, member

    def _window(self, counters: Iterable[Counts], which: int) -> Window:
        return Window.joined(counts.window(which, self.tick) for counts in counters)

    def _of_topic(self, topic: str) -> Iterable[Counts]:
        return self._topics.get(topic, _NOTHING).values()

    def _of_queue(self, key: str) -> Iterator[Counts]:
        topic, _, queue_id = key.rpartition("@")
        counts = self._topics.get(topic, _NOTHING).get(_number(queue_id))
        if counts is not None:
            yield counts

    def _got(self, key: str) -> Iterator[Counts]:
        topic, _, group = key.rpartition("@")
        counts = self.groups.get((topic, group))
        if counts is not None:
            yield from counts.queues.values()

    def _got_from_queue(self, key: str) -> Iterator[Counts]:
        place, _, group = key.rpartition("@")
        topic, _, queue_id = place.rpartition("@")
        counts = self.groups.get((topic, group))
        found = None if counts is None else counts.queues.get(_number(queue_id))
        if found is not None:
            yield found

    def _one_of_group(self, action: GroupAction) -> Callable[[str], Iterator[Counts]]:
        def select(key: str) -> Iterator[Counts]:
            topic, _, group = key.rpartition("@")
            counts = self.groups.get((topic, group))
            found = None if counts is None else counts.actions.get(action)
            if found is not None:
                yield found

        return select

    def _total(self, total: _Total, *, system: bool = True) -> Iterator[Counts]:
        """All counters of one kind, `system` topics among them or not."""
        if total is _Total.PUT:
            for topic, queues in self._topics.items():
                if system or not is_system_topic(topic):
                    yield from queues.values()
        for (topic, _group), counts in self.groups.items():
            if not system and is_system_topic(topic):
                continue
            if total is _Total.GET:
                yield from counts.queues.values()
            for action, meant in _TOTALS.items():
                if meant is total and action in counts.actions:
                    yield counts.actions[action]
        for (kind, of_system), gone in self._gone.items():
            if kind is total and (system or not of_system):
                yield gone


_NOTHING: Final[dict[int, Counts]] = {}
_TOTALS: Final = {GroupAction.ACKNOWLEDGE: _Total.ACKNOWLEDGE, GroupAction.CHECK_OUT: _Total.CHECK}
_Select = Callable[[BrokerStats, str], Iterable[Counts]]
_ITEMS: Final[Mapping[str, tuple[_Select, str]]] = {
    "TOPIC_PUT_NUMS": (BrokerStats._of_topic, "messages"),
    "TOPIC_PUT_SIZE": (BrokerStats._of_topic, "bytes"),
    "QUEUE_PUT_NUMS": (BrokerStats._of_queue, "messages"),
    "QUEUE_PUT_SIZE": (BrokerStats._of_queue, "bytes"),
    "GROUP_GET_NUMS": (BrokerStats._got, "messages"),
    "GROUP_GET_SIZE": (BrokerStats._got, "bytes"),
    "QUEUE_GET_NUMS": (BrokerStats._got_from_queue, "messages"),
    "QUEUE_GET_SIZE": (BrokerStats._got_from_queue, "bytes"),
    "SNDBCK_PUT_NUMS": (
        lambda stats, key: stats._one_of_group(GroupAction.SEND_BACK)(key),
        "messages",
    ),
    "GROUP_ACK_NUMS": (
        lambda stats, key: stats._one_of_group(GroupAction.ACKNOWLEDGE)(key),
        "messages",
    ),
    "GROUP_CK_NUMS": (
        lambda stats, key: stats._one_of_group(GroupAction.CHECK_OUT)(key),
        "messages",
    ),
    "BROKER_PUT_NUMS": (lambda stats, _key: stats._total(_Total.PUT), "messages"),
    "BROKER_GET_NUMS": (lambda stats, _key: stats._total(_Total.GET), "messages"),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": (
        lambda stats, _key: stats._total(_Total.PUT, system=False),
        "messages",
    ),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": (
        lambda stats, _key: stats._total(_Total.GET, system=False),
        "messages",
    ),
    "BROKER_ACK_NUMS": (lambda stats, _key: stats._total(_Total.ACKNOWLEDGE), "messages"),
    "BROKER_CK_NUMS": (lambda stats, _key: stats._total(_Total.CHECK), "messages"),
}
"""The counters of Apache's items by name, and the member that each means."""
NOT_COUNTED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "GROUP_GET_LATENCY",
            "TOPIC_PUT_LATENCY",
            "CONSUMER_REGISTER_TIME",
            "PRODUCER_REGISTER_TIME",
        ),
        "times are measured for the whole broker and shown by its runtime information",
    ),
    **dict.fromkeys(
        (
            "DLQ_PUT_NUMS",
            "GROUP_GET_FROM_DISK_NUMS",
            "GROUP_GET_FROM_DISK_SIZE",
            "BROKER_GET_FROM_DISK_NUMS",
            "BROKER_GET_FROM_DISK_SIZE",
        ),
        "Apache's broker names it and never counts it either",
    ),
    **dict.fromkeys(
        ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME"),
        "Apache's broker writes it to its log only; consumer progress shows the same",
    ),
    **dict.fromkeys(
        (
            "COMMERCIAL_SEND_TIMES",
            "COMMERCIAL_SNDBCK_TIMES",
            "COMMERCIAL_RCV_TIMES",
            "COMMERCIAL_RCV_EPOLLS",
            "COMMERCIAL_SEND_SIZE",
            "COMMERCIAL_RCV_SIZE",
            "COMMERCIAL_PERM_FAILURES",
            "SNDBCK2DLQ_TIMES",
        ),
        "it is kept by the owner of an account, which clients of a service name",
    ),
    "CHANNEL_ACTIVITY": "connections are listed by consumerConnection and producerConnection",
}
"""Items of Apache's that are not counted, and why; asking for one says so."""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
