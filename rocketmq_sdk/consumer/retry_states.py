"""The states of a message in a consumer group, as one table for each kind of consumer.

Consumers decide by these tables, the documentation is drawn from them, and tests walk
them. Rules of Apache RocketMQ 5.4.0: `AbstractSendMessageProcessor.consumerSendMsgBack`
and `ConsumeMessageConcurrentlyService` for sending back, `ConsumeMessageOrderlyService`
for queues in order, `PopReviveService` and the proxy for invisible durations.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class State(Enum):
    """The state of a message in a group."""

    READY = "Ready"
    """It can be delivered."""
    INFLIGHT = "Inflight"
    """A consumer has it."""
    WAITING_RETRY = "WaitingRetry"
    """It failed and waits for its next delivery."""
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
    """One row: in `state`, `event` leads to `next`; `note` explains how."""

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
"""The states of a message of a push consumer."""

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
"""The states of a message of a simple consumer."""

TABLE: Final = {"push consumer": PUSH, "simple consumer": SIMPLE}


def next_state(table: tuple[Transition, ...], state: State, event: Event) -> State:
    """The state that an event leads to.

    Raises `ValueError` when the event cannot happen in that state.
    """
    for transition in table:
        if transition.state is state and transition.event is event:
            return transition.next
    raise ValueError(f"a message that is {state.value} cannot meet {event.value!r}")


def failure(reconsume_times: int, most: int, event: Event = Event.FAILED) -> State:
    """The state after a failed or timed out delivery of a push consumer.

    `reconsume_times` deliveries failed before, and `most` retries are allowed.
    """
    return next_state(
        PUSH, State.INFLIGHT, Event.ATTEMPTS_EXHAUSTED if reconsume_times >= most else event
    )


def received(failed_before: int, most: int) -> State:
    """The state after a receive of a simple consumer.

    `failed_before` deliveries failed before, and `most` retries are allowed.
    """
    return next_state(
        SIMPLE, State.READY, Event.ATTEMPTS_EXHAUSTED if failed_before > most else Event.RECEIVED
    )


def states(table: tuple[Transition, ...]) -> frozenset[State]:
    """All states in a table."""
    return frozenset(state for transition in table for state in (transition.state, transition.next))


def is_final(state: State) -> bool:
    """Whether nothing more happens to a message in this state."""
    return state in _FINAL


def drawing(table: tuple[Transition, ...]) -> str:
    """A table as Markdown, for the documentation."""
    rows = [
        f"| {row.state.value} | {row.event.value} | {row.next.value} | {row.note} |"
        for row in table
    ]
    return "\n".join(["| state | event | next | how |", "|---|---|---|---|", *rows])
