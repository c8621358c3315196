"""What a consumer is doing at the moment, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs
import trio

from rocketmq_sdk.model.queue import MessageQueue

SAMPLE_INTERVAL: Final = 10.0
SAMPLES: Final = 7
"""How many samples are kept: rates cover about one minute (`ConsumerStatsManager`)."""


@attrs.frozen
class QueueStatistics:
    """One owned queue.

    `offset` is what may be committed. `lag` is how many messages of the queue are at or
    after it, as of the last pull (None: no pull was answered yet). `last_pull` is when
    the last pull was sent, in seconds of trio's clock; `since_pull` is how many seconds
    ago that was. `locked` says whether the lock of a queue in order is held.
    """

    offset: int
    lag: int | None = None
    cached_messages: int = 0
    cached_bytes: int = 0
    in_flight: int = 0
    last_pull: float | None = None
    locked: bool | None = None
    since_pull: float | None = None


@attrs.frozen
class PopStatistics:
    """One place that a push consumer pops.

    What it holds, and when the last pop was sent, in seconds of trio's clock;
    `since_pop` is how many seconds ago that was. `lag` is the broker's estimate of how
    many more messages it had for the group after the last pop (None: no pop was
    answered yet).
    """

    lag: int | None = None
    cached_messages: int = 0
    cached_bytes: int = 0
    in_flight: int = 0
    last_pop: float | None = None
    since_pop: float | None = None


@attrs.frozen
class ConsumerStatistics:
    """Numbers of one consumer.

    `queues` are the queues it owns, including those of its retry topic.
    `cached_messages` and `cached_bytes` count what was pulled and is not done yet,
    `in_flight` what listeners work on. `waiting_for_retry` counts messages that could
    not be sent back to any broker and will be consumed again here (in order: suspended
    queues). The totals count from the start of the consumer. `last_rebalance` is when
    the queues were last computed, in seconds of trio's clock (None: not yet);
    `since_rebalance` is how many seconds ago that was.

    Trio's clock begins anywhere: its moments can be compared only with each other and,
    in a program on trio, with `trio.current_time()`. The `since_...` are for all.

    `by_queue` has each owned queue; `lag` is their sum where known. `popped` has each
    place that is popped because the broker says so (queue id -1: any queue of the
    broker). Nobody owns such queues, so they have no offset here. The rates are
    messages per second over about the last minute.
    """

    queues: tuple[MessageQueue, ...] = ()
    cached_messages: int = 0
    cached_bytes: int = 0
    in_flight: int = 0
    waiting_for_retry: int = 0
    consumed: int = 0
    failed: int = 0
    timed_out: int = 0
    last_rebalance: float | None = None
    by_queue: Mapping[MessageQueue, QueueStatistics] = attrs.field(factory=dict)
    popped: Mapping[MessageQueue, PopStatistics] = attrs.field(factory=dict)
    consumed_per_second: float = 0.0
    failed_per_second: float = 0.0
    pulled_per_second: float = 0.0
    since_rebalance: float | None = None

    @property
    def lag(self) -> int:
        """Messages not consumed yet in owned queues, or not popped yet.

        As far as brokers have told.
        """
        return sum(queue.lag or 0 for queue in self.by_queue.values()) + sum(
            place.lag or 0 for place in self.popped.values()
        )


@attrs.frozen
class SimpleStatistics:
    """Numbers of one simple consumer, counted from its start.

    `received` messages were returned by receives, `consumed` were acknowledged,
    `dead_letters` had used up their attempts and went to the dead letter topic.
    `extended` counts how often `processing` has extended an invisible duration.
    `receiving` is how many receives wait at the moment; `last_receive` is when a broker
    last answered one, in seconds of trio's clock (None: not yet), and `since_receive`
    how many seconds ago that was. `places` is how many pairs of topic and broker take
    turns. `lag` is the brokers' last estimate of how many more messages they had for
    the group. The rates are messages per second over about the last minute.
    """

    received: int = 0
    consumed: int = 0
    dead_letters: int = 0
    extended: int = 0
    receiving: int = 0
    last_receive: float | None = None
    places: int = 0
    lag: int = 0
    received_per_second: float = 0.0
    consumed_per_second: float = 0.0
    since_receive: float | None = None


def seconds_since(moment: float | None) -> float | None:
    """How long ago a moment of trio's clock is; None for None."""
    return None if moment is None else max(trio.current_time() - moment, 0.0)


class Counters:
    """Counts of what became of the messages of one topic; times in seconds."""

    __slots__ = ("consume_seconds", "consumed", "failed", "pull_seconds", "pulled", "pulls")

    def __init__(self) -> None:
        self.consumed = 0
        self.failed = 0
        self.consume_seconds = 0.0
        self.pulled = 0
        self.pulls = 0
        self.pull_seconds = 0.0

    def values(self) -> tuple[float, ...]:
        """All counters, in the order of `__slots__`."""
        return tuple(float(getattr(self, name)) for name in self.__slots__)


class Rates:
    """How counters changed over about the last minute, from samples."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, dict[str, tuple[float, ...]]]] = []

    def sample(self, now: float, counters: Mapping[str, Counters]) -> None:
        """Add a sample of the counters."""
        if len(self._samples) == SAMPLES:
            del self._samples[0]
        self._samples.append(
            (now, {topic: of_topic.values() for topic, of_topic in counters.items()})
        )

    def sampling(self, counters: Mapping[str, Counters]) -> Callable[[], float]:
        """A quick periodic job that takes samples."""

        def sample() -> float:
            self.sample(trio.current_time(), counters)
            return SAMPLE_INTERVAL

        return sample

    def change(self, now: float, topic: str, counters: Counters) -> tuple[float, Counters]:
        """Seconds since the oldest sample, and the growth of a topic's counters."""
        if not self._samples:
            return 0.0, Counters()
        then, before = self._samples[0]
        grown = Counters()
        old = before.get(topic, (0.0,) * len(Counters.__slots__))
        for name, value, was in zip(Counters.__slots__, counters.values(), old, strict=True):
            setattr(grown, name, value - was)
        return now - then, grown

    def per_second(self, now: float, counters: Mapping[str, Counters], name: str) -> float:
        """The rate of one counter over all topics; 0 before there are samples."""
        changes: Iterable[tuple[float, Counters]] = (
            self.change(now, topic, of_topic) for topic, of_topic in counters.items()
        )
        return sum(
            float(getattr(grown, name)) / seconds for seconds, grown in changes if seconds > 0
        )
