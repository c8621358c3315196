"""What was for nothing is tried ever more seldom, and never given up."""

from __future__ import annotations

from rocketmq_sdk.protocol.shapes.tries import LONGEST_REST, Tries


def rests_of(tries: Tries, count: int) -> list[int]:
    """How long it rests after each of so many tries for nothing."""
    rests = []
    for _ in range(count):
        tries.use()
        rests.append(tries.resting)
        assert sum(iter(tries.let_go_by, False)) == rests[-1]
    return rests


def test_each_rest_is_twice_as_long_as_the_one_before() -> None:
    assert rests_of(Tries(3, 10), 6) == [0, 0, 10, 20, 40, 80]


def test_what_began_before_a_rest_makes_it_no_longer() -> None:
    tries = Tries(1, 10)
    for _ in range(5):
        tries.use()
    assert sum(iter(tries.let_go_by, False)) == 10
    assert rests_of(tries, 1) == [20]


def test_there_is_a_longest_rest() -> None:
    rests = rests_of(Tries(1, 1000), 100)
    assert rests[:7] == [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]
    assert set(rests[7:]) == {LONGEST_REST}


def test_what_has_worked_begins_anew() -> None:
    tries = Tries(3, 10)
    assert rests_of(tries, 5) == [0, 0, 10, 20, 40]
    tries.worked()
    assert rests_of(tries, 4) == [0, 0, 10, 20]
