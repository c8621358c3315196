"""Whether a consumer is consuming and, if not, why, in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from rocketmq_sdk.client.troubles import one_line, route_reason
from rocketmq_sdk.consumer.statistics import PopStatistics, QueueStatistics
from rocketmq_sdk.model.queue import MessageQueue

SLOW_AFTER: Final = 60.0
"""Seconds after which a listener that has not returned is a reason."""


_NOTHING: Final[Mapping[MessageQueue, str]] = MappingProxyType({})


@attrs.frozen
class ConsumerHealth:
    """Whether a consumer consumes, and what stands in its way.

    `consuming` is true when new messages are delivered, at least from some queues.
    `reasons` name each hindrance, including those of single queues while others go on.
    An idle consumer without hindrances is consuming. The truth value of the object is
    `consuming`.
    """

    consuming: bool
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.consuming

    def __str__(self) -> str:
        state = "consuming" if self.consuming else "not consuming"
        return f"{state}: {'; '.join(self.reasons)}" if self.reasons else state


@attrs.frozen
class TopicView:
    """What is known of a subscribed topic.

    How many queues its route has, how many are owned here, how many members there are
    (0: not known), and why no name server answers for its route (empty: one does).
    """

    queues: int
    owned: int
    members: int
    route_problem: str = ""


@attrs.frozen
class QueueView:
    """An owned queue, and what keeps it from being pulled or consumed (if anything)."""

    statistics: QueueStatistics
    complaint: str = ""
    is_full: bool = False
    paused: bool = False


@attrs.frozen
class PopView:
    """A place that is popped, and what keeps it from being popped (empty: nothing)."""

    statistics: PopStatistics
    complaint: str = ""
    is_full: bool = False


@attrs.frozen(kw_only=True)
class ConsumerView:
    """What a consumer knows of itself at one moment."""

    suspended: bool
    taker: str = "that the listener has not done"
    topics: Mapping[str, TopicView]
    complaint: str
    queues: Mapping[MessageQueue, QueueView]
    pops: Mapping[MessageQueue, PopView]
    refused: Sequence[MessageQueue]
    untaken: Mapping[MessageQueue, str] = _NOTHING
    """Queues that should be owned and are not, and why."""
    busy_for: float
    is_saturated: bool
    suspended_queues: int
    last_failure: str | None
    waiting_for_retry: int
    name_servers: Sequence[str] = ()
    """A sentence for each one that did not answer."""


def health_of(view: ConsumerView) -> ConsumerHealth:
    """The health that follows from a view."""
    reasons: list[str] = []
    if view.suspended:
        reasons.append("it is suspended; resume() lets it go on")
    if view.complaint:
        reasons.append(f"the members of the group are not known: {one_line(view.complaint)}")
    reasons += _of_topics(view.topics)
    reasons += view.name_servers
    reasons += _of_pops(view)
    stopped: set[MessageQueue] = {queue for queue, popped in view.pops.items() if popped.complaint}
    for queue, seen in sorted(view.queues.items()):
        name = f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name}"
        if seen.complaint:
            reasons.append(f"{name} cannot be pulled: {one_line(seen.complaint)}")
        elif seen.is_full:
            reasons.append(
                f"{name} holds {seen.statistics.cached_messages} messages {view.taker}, so it is "
                "not pulled"
            )
        elif seen.paused and not view.suspended:
            reasons.append(f"{name} is paused; resume() lets it go on")
        if seen.statistics.locked is False:
            reasons.append(f"{name} waits for its lock at the broker")
        if seen.complaint or seen.paused or seen.statistics.locked is False:
            stopped.add(queue)
    for queue, why in sorted(view.untaken.items()):
        if queue not in view.queues:
            name = f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name}"
            reasons.append(f"{name} is not taken yet: {one_line(why)}")
    if view.refused:
        reasons.append(
            f"{len(view.refused)} queues are locked by other members, perhaps killed ones: their "
            "locks expire within a minute"
        )
    if view.busy_for > SLOW_AFTER:
        reasons.append(
            f"a listener has been running for {view.busy_for:.0f} s"
            + (", and no worker is free" if view.is_saturated else "")
        )
    if view.suspended_queues:
        failure = f"; the last failure: {one_line(view.last_failure)}" if view.last_failure else ""
        reasons.append(
            f"{view.suspended_queues} ordered queues rest behind a message that failed{failure}"
        )
    if view.waiting_for_retry:
        reasons.append(
            f"{view.waiting_for_retry} messages could be sent back to no broker and are tried "
            "again here"
        )
    blocked = view.is_saturated and view.busy_for > SLOW_AFTER
    # Where topics are popped, a pulled retry topic does not make the consumer healthy.
    places = {
        queue for queue in (*view.queues, *view.pops) if not view.pops or queue.topic in view.topics
    }
    consuming = not view.suspended and not blocked and bool(places - stopped)
    if not places and not reasons:
        reasons.append("it owns no queue yet")
    return ConsumerHealth(consuming, tuple(reasons))


def _of_pops(view: ConsumerView) -> Iterable[str]:
    for queue, seen in sorted(view.pops.items()):
        which = "" if queue.queue_id < 0 else f"queue {queue.queue_id} of "
        name = f"{which}{queue.topic} at {queue.broker_name}"
        if seen.complaint:
            yield f"{name} cannot be popped: {one_line(seen.complaint)}"
        elif seen.is_full:
            yield (
                f"{name} has given {seen.statistics.cached_messages} messages {view.taker}, so it "
                "is not popped"
            )


def _of_topics(topics: Mapping[str, TopicView]) -> Iterable[str]:
    for topic, seen in sorted(topics.items()):
        if seen.route_problem or not seen.queues:
            yield route_reason(topic, seen.route_problem, known=bool(seen.queues))
        elif not seen.owned and seen.members > 1:
            yield (
                f"the {seen.queues} queues of topic {topic} belong to others of the "
                f"{seen.members} members"
            )
