"""What only metrics ask for: counters and distributions by topic, group and kind.

`BrokerStats.figures` is None unless the broker exports metrics, so that nobody pays for
them otherwise. What is counted when, and the limits of the distributions, are those of
`BrokerMetricsManager`, `DefaultStoreMetricsManager`, `PopMetricsManager` and
`RemotingMetricsManager` of Apache RocketMQ 5.5.0. Of each there are at most `most` sets
of labels; what comes then is counted under `OVERFLOW`, as by OpenTelemetry.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from operator import sub
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rocketmq_sdk.model.properties import (
    DELAY,
    PRIORITY,
    SHARDING_KEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    property_in_text,
)
from rocketmq_sdk.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketmq_sdk.broker_embedded.store.append.run import Run

Key = TypeVar("Key")

NORMAL: Final = "normal"
FIFO: Final = "fifo"
DELAYED: Final = "delay"
TRANSACTIONAL: Final = "transaction"
PRIORITIZED: Final = "priority"
SHARDED: Final = f"{SHARDING_KEY}\x01".encode()
SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"
"""Under this name Apache's broker takes messages out of the queues of delay levels."""
_STARTS_LATER: Final = (
    "__STARTDELIVERTIME",
    DELAY,
    TIMER_DELIVER_MS,
    TIMER_DELAY_SEC,
    TIMER_DELAY_MS,
)

SIZE_BOUNDS: Final = (1024, 4096, 524288, 1048576, 2097152, 4194304)
"""Bytes of a record."""
RPC_BOUNDS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
"""Milliseconds of a request."""
CREATE_BOUNDS: Final = (10, 100, 1000, 3000, 5000)
"""Milliseconds to create a topic or a group."""
FINISH_BOUNDS: Final = (5, 60, 600, 3600, 43200, 86400)
"""Seconds from a half message to its commit."""
DELAY_BOUNDS: Final = (60, 600, 3600, 43200, 86400, 259200)
"""Seconds for which a timer message is to wait."""
SECONDS_BOUNDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)
"""Seconds of appends, syncs and turns of the loop; of this broker's own metrics."""


def kind_of(properties: str) -> str:
    """The kind of a message by its properties, as `BrokerMetricsManager` tells it."""
    # One of these stands in each text of a message that is not normal; a loop would
    # cost four times as much.
    if not (
        TRAN_MSG in properties
        or SHARDING_KEY in properties
        or DELAY in properties
        or "DELIVERTIME" in properties
        or "TIMER_" in properties
        or PRIORITY in properties
    ):
        return NORMAL
    if (property_in_text(properties, TRAN_MSG) or "").lower() == "true":
        return TRANSACTIONAL
    if property_in_text(properties, SHARDING_KEY) is not None:
        return FIFO
    if any(property_in_text(properties, name) is not None for name in _STARTS_LATER):
        return DELAYED
    if property_in_text(properties, PRIORITY) is not None:
        return PRIORITIZED
    return NORMAL


def is_counted(topic: str) -> bool:
    """Whether messages of a topic count as coming in and going out.

    Those of retry and dead letter topics do not.
    """
    return topic[:1] != "%" or not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


class Distribution:
    """How often values were within each of some limits, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One more than there are bounds: the last is of what is above all of them."""
        self.total: float = 0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, or one that came several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class Counter(Generic[Key]):
    """Sums by a set of labels."""

    __slots__ = ("_most", "overflow", "values")

    def __init__(self, most: int) -> None:
        self._most = most
        self.values: dict[Key, int] = {}
        self.overflow = 0

    def add(self, key: Key, number: int = 1) -> None:
        """Count something."""
        values = self.values
        if key in values:
            values[key] += number
        elif len(values) < self._most:
            values[key] = number
        else:
            self.overflow += number


class Distributions(Generic[Key]):
    """Distributions by a set of labels."""

    __slots__ = ("_most", "bounds", "overflow", "values")

    def __init__(self, bounds: Sequence[float], most: int) -> None:
        self._most = most
        self.bounds = bounds
        self.values: dict[Key, Distribution] = {}
        self.overflow: Distribution | None = None

    def of(self, key: Key) -> Distribution:
        """The distribution for a set of labels, made at first use."""
        found = self.values.get(key)
        if found is None:
            if len(self.values) < self._most:
                found = self.values[key] = Distribution(self.bounds)
            else:
                if self.overflow is None:
                    self.overflow = Distribution(self.bounds)
                found = self.overflow
        return found


class Traffic:
    """Messages and bytes."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0


class Incoming(Traffic):
    """Messages of one kind that came into one topic, their bytes, and their sizes."""

    __slots__ = ("sizes",)

    def __init__(self) -> None:
        super().__init__()
        self.sizes = Distribution(SIZE_BOUNDS)

    def put(self, messages: int, size: int) -> None:
        """Messages of one request, in records of so many bytes together."""
        self.messages += messages
        self.bytes += size
        self.sizes.add(size // messages)

    def put_records(self, positions: Sequence[int], end: int) -> None:
        """Messages by the positions of their records, of which the last ends at `end`.

        They follow each other in the log.
        """
        ends = [*positions[1:], end]
        if max(map(sub, ends, positions)) <= SIZE_BOUNDS[0]:
            number, total = len(positions), end - positions[0]
            self.messages += number
            self.bytes += total
            self.sizes.counts[0] += number
            self.sizes.total += total
        else:
            self.put_sizes(list(map(sub, ends, positions)), end - positions[0])

    def put_sizes(self, sizes: Sequence[int], total: int) -> None:
        """Messages by the sizes of their records, which are so many bytes together."""
        self.messages += len(sizes)
        self.bytes += total
        for one in sizes:
            self.sizes.add(one)


def sizes_of(units: Sequence[bytes]) -> Sequence[int]:
    """The sizes of records in their queue units: the third of five words of each."""
    words = array("I", b"".join(units))
    if sys.byteorder == "little":
        words.byteswap()
    return words[2::5]


class Figures:
    """All of them; the keys are the labels in the order of the docstrings."""

    __slots__ = (
        "appends",
        "committed",
        "created_groups",
        "created_topics",
        "dead_letters",
        "delays",
        "finished",
        "in_flight",
        "incoming",
        "most",
        "outgoing",
        "overflow_in",
        "overflow_out",
        "revive_in",
        "revive_out",
        "revive_retries",
        "rolled_back",
        "stalls",
        "syncs",
        "timers_in",
        "timers_out",
    )

    def __init__(self, most: int) -> None:
        self.most = most
        self.incoming: dict[tuple[str, str], Incoming] = {}
        """By topic and kind."""
        self.overflow_in = Incoming()
        self.outgoing: dict[tuple[str, str, str], Traffic] = {}
        """By topic, group, and whether from a retry topic: true, false, or empty where
        that is not told.
        """
        self.overflow_out = Traffic()
        self.in_flight: dict[tuple[str, str, int], int] = {}
        """Popped messages without an ack, by topic, group and queue id."""
        self.dead_letters: Counter[tuple[str, str]] = Counter(most)
        """By group and topic."""
        self.created_topics: Distributions[tuple[str, str]] = Distributions(CREATE_BOUNDS, most)
        """By status, and whether it is a system topic."""
        self.created_groups: Distributions[tuple[str]] = Distributions(CREATE_BOUNDS, most)
        """By status."""
        self.committed: Counter[tuple[str]] = Counter(most)
        self.rolled_back: Counter[tuple[str]] = Counter(most)
        self.finished: Distributions[tuple[str]] = Distributions(FINISH_BOUNDS, most)
        """Transactions by topic."""
        self.timers_in: Counter[tuple[str]] = Counter(most)
        self.timers_out: Counter[tuple[str]] = Counter(most)
        self.delays: Distributions[tuple[str]] = Distributions(DELAY_BOUNDS, most)
        """Timer messages by real topic."""
        self.revive_in: Counter[tuple[str, str, str, str]] = Counter(most)
        """By group, topic, kind of record and status."""
        self.revive_out: Counter[tuple[str, str, str, str]] = Counter(most)
        """By group, topic, queue id and kind of record."""
        self.revive_retries: Counter[tuple[str, str, str]] = Counter(most)
        """By group, topic and status."""
        self.appends = Distribution(SECONDS_BOUNDS)
        self.syncs = Distribution(SECONDS_BOUNDS)
        self.stalls = Distribution(SECONDS_BOUNDS)

    def into(self, topic: str, kind: str) -> Incoming:
        """What is to be counted for messages of a kind that come into a topic."""
        found = self.incoming.get((topic, kind))
        if found is None:
            if len(self.incoming) >= self.most:
                return self.overflow_in
            found = self.incoming[topic, kind] = Incoming()
        return found

    def put(self, topic: str, kind: str, messages: int, size: int) -> None:
        """Messages of one request came into a topic."""
        if is_counted(topic):
            self.into(topic, kind).put(messages, size)

    def put_text(self, topic: str, properties: str, messages: int, size: int) -> None:
        """Messages of one request with such properties came into a topic."""
        if is_counted(topic):
            self.into(topic, kind_of(properties)).put(messages, size)

    def delivered_late(self, topic: str, messages: int, size: int) -> None:
        """A delay level delivered messages: out of its own queue, and into a topic."""
        self.got(SCHEDULE_TOPIC, SCHEDULE_GROUP, messages, size)
        self.put(topic, DELAYED, messages, size)

    def put_run(self, run: Run, *, sharded: bool) -> None:
        """Messages were put together; `sharded` if some may have a sharding key."""
        lanes, positions = run.lanes, run.positions
        if not positions:
            return
        if sharded:
            self._put_sharded(run)
            return
        topic = lanes[0].topic
        if len(lanes) == 1 or {lane.topic for lane in lanes} == {topic}:
            self.into(topic, NORMAL).put_records(positions, run.end)
            return
        for lane in lanes:
            if lane.units:
                self.into(lane.topic, NORMAL).put_sizes(sizes_of(lane.units), lane.size)

    def _put_sharded(self, run: Run) -> None:
        put = run.messages[: len(run.positions)]
        for lane in run.lanes:
            own = [message[2] for message in put if message[0] is lane]
            for properties, size in zip(own, sizes_of(lane.units), strict=True):
                kind = NORMAL
                if SHARDED in properties:
                    kind = kind_of(properties.decode("utf-8", "replace"))
                self.put(lane.topic, kind, 1, size)

    def pulled(self, topic: str, group: str, messages: int, size: int) -> None:
        """A group pulled messages."""
        if is_counted(topic):
            self.got(topic, group, messages, size)

    def got(self, topic: str, group: str, messages: int, size: int, retry: str = "") -> None:
        """A group got messages."""
        key = (topic, group, retry)
        found = self.outgoing.get(key)
        if found is None:
            if len(self.outgoing) >= self.most:
                found = self.overflow_out
            else:
                found = self.outgoing[key] = Traffic()
        found.messages += messages
        found.bytes += size

    def popped(self, topic: str, group: str, queue_id: int, messages: int) -> None:
        """Messages of a queue are lent to a group."""
        key = topic, group, queue_id
        self.in_flight[key] = self.in_flight.get(key, 0) + messages

    def returned(self, topic: str, group: str, queue_id: int, messages: int = 1) -> None:
        """Messages that were lent are acknowledged, or come back."""
        key = topic, group, queue_id
        left = self.in_flight.get(key, 0) - messages
        if left > 0:
            self.in_flight[key] = left
        else:
            self.in_flight.pop(key, None)

    def timer_entered(self, topic: str, seconds: int) -> None:
        """A message waits in the wheel, for so many seconds."""
        self.timers_in.add((topic,))
        self.delays.of((topic,)).add(seconds)

    def transaction_committed(self, topic: str, seconds: int) -> None:
        """A half message of a topic was committed so many seconds after its birth."""
        self.committed.add((topic,))
        self.finished.of((topic,)).add(seconds)

    def forget_topic(self, topic: str) -> None:
        """A topic is gone; its counters end."""
        self._forget(0, topic, self.incoming, self.outgoing, self.in_flight)
        for by_topic in (self.committed, self.rolled_back, self.timers_in, self.timers_out):
            by_topic.values.pop((topic,), None)
        for distributions in (self.finished, self.delays):
            distributions.values.pop((topic,), None)
        self._forget(1, topic, *self._by_group())

    def forget_group(self, group: str) -> None:
        """A group is gone; its counters end."""
        self._forget(1, group, self.outgoing, self.in_flight)
        self._forget(0, group, *self._by_group())

    def _by_group(self) -> Iterator[dict[tuple[str, ...], int]]:
        for counter in (self.dead_letters, self.revive_in, self.revive_out, self.revive_retries):
            yield counter.values  # type: ignore[misc]

    @staticmethod
    def _forget(place: int, name: str, *tables: dict) -> None:  # type: ignore[type-arg]
        for table in tables:
            for key in [key for key in table if key[place] == name]:
                del table[key]
