"""How much a batch takes: shares, turns, and batches that wait for enough."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from rocketmq_sdk.spark.plan.limits import Gate, limited, waiting
from rocketmq_sdk.spark.plan.offsets import QueueKey

PLACES = st.dictionaries(
    st.integers(0, 9), st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1
)


def key(number: int) -> QueueKey:
    return QueueKey("T", "b", number)


@given(PLACES, st.integers(1, 3000), st.integers(0, 50))
def test_a_share_is_never_more_than_waits_and_all_shares_fill_the_limit(
    places: dict[int, tuple[int, int]], most: int, turn: int
) -> None:
    start = {key(number): begin for number, (begin, _) in places.items()}
    end = {key(number): begin + wait for number, (begin, wait) in places.items()}
    cut = limited(start, end, most, turn=turn)
    assert cut.keys() == end.keys()
    assert all(start[queue] <= cut[queue] <= end[queue] for queue in cut)
    assert waiting(start, cut) == min(most, waiting(start, end))


@example({0: (0, 2), 1: (0, 1), 2: (0, 1)}, 1)
@given(PLACES, st.integers(1, 20))
def test_every_queue_moves_within_as_many_turns_as_there_are_queues(
    places: dict[int, tuple[int, int]], most: int
) -> None:
    start = {key(number): 0 for number in places}
    end = {key(number): wait for number, (_, wait) in places.items()}
    moved = dict(start)
    for turn in range(len(places)):
        moved = limited(moved, end, most, turn=turn)
    assert all(moved[queue] > 0 for queue, stop in end.items() if stop)


@given(PLACES, st.integers(1, 400))
def test_batches_come_to_the_end(places: dict[int, tuple[int, int]], most: int) -> None:
    at = {key(number): 0 for number in places}
    end = {key(number): wait for number, (_, wait) in places.items()}
    turns = 0
    while at != end:
        at = limited(at, end, most, turn=turns)
        turns += 1
    assert turns == -(-sum(end.values()) // most)


def test_a_queue_that_ends_before_it_begins_keeps_its_end() -> None:
    start, end = {key(0): 10, key(1): 0}, {key(0): 4, key(1): 100, key(2): 7}
    assert limited(start, end, 5, turn=0) == {key(0): 4, key(1): 5, key(2): 7}
    assert waiting(start, end) == 100


def test_a_gate_opens_for_enough_or_after_the_delay() -> None:
    gate = Gate(100, 60.0)
    assert not gate.opens(99, now=0)
    assert gate.opens(100, now=1)
    assert not gate.opens(99, now=60)
    assert gate.opens(1, now=61)
    assert not gate.opens(0, now=200)
    assert gate.opens(1, now=200)
