"""The tables of what becomes of a message: whole, without dead ends, and what the page
on retries shows.
"""

from __future__ import annotations

import pytest

from rocketmq_sdk.consumer.retry_states import (
    PUSH,
    SIMPLE,
    TABLE,
    Event,
    State,
    Transition,
    drawing,
    failure,
    is_final,
    next_state,
    received,
    states,
)
from support.paths import DOCS

PAGE = DOCS / "retries.md"


@pytest.mark.parametrize("table", TABLE.values(), ids=TABLE.keys())
def test_every_state_is_reached_from_ready_and_leads_to_an_end(
    table: tuple[Transition, ...],
) -> None:
    leads = {state: {row.next for row in table if row.state is state} for state in states(table)}
    reached, todo = {State.READY}, [State.READY]
    while todo:
        for following in leads[todo.pop()] - reached:
            reached.add(following)
            todo.append(following)
    assert reached == states(table)
    for state, following in leads.items():
        assert bool(following) != is_final(state)


@pytest.mark.parametrize("table", TABLE.values(), ids=TABLE.keys())
def test_no_event_leads_two_ways(table: tuple[Transition, ...]) -> None:
    assert len({(row.state, row.event) for row in table}) == len(table)
    for row in table:
        assert next_state(table, row.state, row.event) is row.next
        assert row.note


@pytest.mark.parametrize("table", TABLE.values(), ids=TABLE.keys())
def test_what_cannot_happen_is_refused(table: tuple[Transition, ...]) -> None:
    possible = {(row.state, row.event) for row in table}
    for state in State:
        for event in Event:
            if (state, event) not in possible:
                with pytest.raises(ValueError, match="cannot meet"):
                    next_state(table, state, event)


def test_a_failure_is_a_retry_until_the_attempts_are_exhausted() -> None:
    for event in (Event.FAILED, Event.TIMED_OUT):
        assert [failure(times, 2, event) for times in range(4)] == [
            State.WAITING_RETRY,
            State.WAITING_RETRY,
            State.DLQ,
            State.DLQ,
        ]
    assert failure(0, 0) is State.DLQ


def test_a_receive_hands_out_until_the_attempts_are_exhausted() -> None:
    assert received(0, 0) is State.INFLIGHT
    assert received(16, 16) is State.INFLIGHT
    assert received(17, 16) is State.DLQ


@pytest.mark.parametrize(("name", "table"), [("push", PUSH), ("simple", SIMPLE)])
def test_the_page_shows_the_tables(name: str, table: tuple[Transition, ...]) -> None:
    assert drawing(table) in PAGE.read_text(), (
        f"draw the table of {name} consumers again into {PAGE.name}: retry_states.drawing()"
    )
