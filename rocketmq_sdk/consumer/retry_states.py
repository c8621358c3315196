"""What becomes of a message in a consumer group: two state machines as tables, one for
push consumers and one for simple consumers.

The page on retries is drawn from these tables, the consumers ask them, the tests walk
them. Rules of Apache RocketMQ 5.4.0: `AbstractSendMessageProcessor.consumerSendMsgBack`
and `ConsumeMessageConcurrentlyService` for what is sent back,
`ConsumeMessageOrderlyService` for queues in order, `PopReviveService` and the proxy for
invisible times.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class State(Enum):
    """Where a message stands in a group."""

    READY = "Ready"
    """It can be delivered."""
    INFLIGHT = "Inflight"
    """A consumer has it."""
    WAITING_RETRY = "WaitingRetry"
    """It failed and waits for its interval."""
    COMMIT = "Commit"
    """It is done."""
    DLQ = "DLQ"
    """It is in the group's dead letter topic."""


class Event(Enum):
    """What happens to a message."""

    RECEIVED = "received"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    INTERVAL_OVER = "interval over"
    ATTEMPTS_EXHAUSTED = "attempts exhausted"
    POSTPONED = "postponed"
    LOST = "consumer lost"


class Transition(NamedTuple):
    """One row: in `state`, `event` leads to `next`; `note` says how, and what
    counts.
    """

    state: State
    event: Event
    next: State
    note: str


_FINAL: Final = frozenset((State.COMMIT, State.DLQ))

PUSH: Final = (
    Transition(
        State.READY, Event.RECEIVED, State.INFLIGHT, "pulled or popped, and handed to the listener"
    ),
    Transition(
        State.INFLIGHT,
        Event.SUCCEEDED,
        State.COMMIT,
        "the offset may pass it, or its handle is acknowledged",
    ),
    Transition(
        State.INFLIGHT,
        Event.FAILED,
        State.WAITING_RETRY,
        "sent back, its queue suspended (in order), or made invisible for longer (pop)",
    ),
    Transition(
        State.INFLIGHT,
        Event.TIMED_OUT,
        State.WAITING_RETRY,
        "the listener took longer than the consume timeout; not for queues in order",
    ),
    Transition(
        State.INFLIGHT,
        Event.ATTEMPTS_EXHAUSTED,
        State.DLQ,
        "it failed, and the group allows no further attempt",
    ),
    Transition(
        State.INFLIGHT,
        Event.LOST,
        State.READY,
        "the next owner starts at the committed offset; popped: visible when its time is over",
    ),
    Transition(
        State.WAITING_RETRY, Event.INTERVAL_OVER, State.READY, "one attempt more is counted"
    ),
)
"""A message of a push consumer."""

SIMPLE: Final = (
    Transition(
        State.READY,
        Event.RECEIVED,
        State.INFLIGHT,
        "invisible to others for the invisible duration",
    ),
    Transition(
        State.READY,
        Event.ATTEMPTS_EXHAUSTED,
        State.DLQ,
        "a receive found it, and the group allows no further attempt",
    ),
    Transition(
        State.INFLIGHT,
        Event.SUCCEEDED,
        State.COMMIT,
        "acknowledged before its invisible duration is over",
    ),
    Transition(
        State.INFLIGHT,
        Event.POSTPONED,
        State.INFLIGHT,
        "a new invisible duration begins now, with a new receipt handle",
    ),
    Transition(
        State.INFLIGHT,
        Event.TIMED_OUT,
        State.READY,
        "the invisible duration is over; one attempt more is counted",
    ),
    Transition(
        State.INFLIGHT, Event.LOST, State.READY, "the same as timed out; nobody needs to notice"
    ),
)
"""A message of a simple consumer."""

TABLE: Final = {"push consumer": PUSH, "simple consumer": SIMPLE}


def next_state(table: tuple[Transition, ...], state: State, event: Event) -> State:
    """Where an event leads. Raises `ValueError` when it cannot happen in that state."""
    for transition in table:
        if transition.state is state and transition.event is event:
            return transition.next
    raise ValueError(f"a message that is {state.value} cannot meet {event.value!r}")


def failure(reconsume_times: int, most: int, event: Event = Event.FAILED) -> State:
    """What a failed or timed out delivery of a push consumer leads to, when
    `reconsume_times` deliveries failed before and `most` may be retries.
    """
    return next_state(
        PUSH, State.INFLIGHT, Event.ATTEMPTS_EXHAUSTED if reconsume_times >= most else event
    )


def received(failed_before: int, most: int) -> State:
    """What a receive of a simple consumer leads to, when `failed_before` deliveries
    failed and `most` may be retries.
    """
    return next_state(
        SIMPLE, State.READY, Event.ATTEMPTS_EXHAUSTED if failed_before > most else Event.RECEIVED
    )


def states(table: tuple[Transition, ...]) -> frozenset[State]:
    """All states that a table names."""
    return frozenset(state for transition in table for state in (transition.state, transition.next))


def is_final(state: State) -> bool:
    """Whether nothing happens to a message any more."""
    return state in _FINAL


def drawing(table: tuple[Transition, ...]) -> str:
    """A table as Markdown, for the documentation."""
    rows = [
        f"| {row.state.value} | {row.event.value} | {row.next.value} | {row.note} |"
        for row in table
    ]
    return "\n".join(["| state | event | next | how |", "|---|---|---|---|", *rows])
