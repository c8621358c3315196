"""Which waits are spun, by how the last ones went."""

from __future__ import annotations

import itertools

import pytest

from rocketmq_sdk.remoting import spinning as spinning_module
from rocketmq_sdk.remoting.spinning import LONGEST, MOST, QUICK, Spinning

SLOW = (QUICK + 1, MOST + 1)


class Clock:
    """Gives the time, and lets each turn take some."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def wait(spinning: Spinning, comes_after: float, size: int = 0) -> int | None:
    """How many turns a wait takes in the loop; None for one that is slept."""
    if not spinning.begin(size):
        return None
    turns = 1
    while spinning.goes_on(found=turns >= comes_after):
        turns += 1
    return turns


def spun(waits: itertools.cycle[int], number: int) -> int:
    """How many of so many waits are spun."""
    spinning = Spinning(Clock())
    return sum(wait(spinning, next(waits)) is not None for _ in range(number))


def test_what_is_quick_is_spun_and_what_is_not_hardly_ever() -> None:
    assert spun(itertools.cycle([1, QUICK]), 1000) == 1000
    for slow in SLOW:
        assert spun(itertools.cycle([slow]), 10_000) < 100
        # where every other one is in vain it is as good as never done
        assert spun(itertools.cycle([2, slow]), 10_000) < 500


@pytest.mark.parametrize("slow", SLOW)
def test_a_slow_wait_among_quick_ones_is_soon_forgotten(slow: int) -> None:
    assert spun(itertools.cycle([slow, *[2] * 99]), 1000) > 950
    assert spun(itertools.cycle([slow, *[2] * 9]), 1000) > 500


@pytest.mark.parametrize("slow", SLOW)
def test_after_a_hundred_slow_waits_quick_ones_are_spun_again(slow: int) -> None:
    spinning = Spinning(Clock())
    for _ in range(100):
        wait(spinning, slow)
    quick = [wait(spinning, 2) is not None for _ in range(1000)]
    assert all(quick[-100:])


def test_it_gives_up_after_so_many_turns_and_after_so_long() -> None:
    clock = Clock()
    assert wait(Spinning(clock), 1e9) == MOST
    spinning = Spinning(clock)
    assert spinning.begin()
    clock.now += LONGEST * 1.01  # in the first turn others do what was left to do
    assert spinning.goes_on(found=False)
    clock.now += LONGEST * 1.01
    assert not spinning.goes_on(found=False)
    assert not spinning.begin()  # others had the core: it was in vain


def test_what_comes_late_does_not_count_as_quick() -> None:
    clock = Clock()
    spinning = Spinning(clock)
    assert spinning.begin()
    assert spinning.goes_on(found=False)
    clock.now += LONGEST * 1.01
    assert not spinning.goes_on(found=True)
    assert not spinning.begin()


def test_beside_a_large_request_it_may_take_longer_up_to_four_times() -> None:
    batch, huge = 19_000, 1 << 20
    assert spun(itertools.cycle([2 * QUICK]), 1000) < 50
    spinning = Spinning(Clock())
    for _ in range(100):
        assert wait(spinning, 3 * QUICK, batch) == 3 * QUICK
    assert wait(Spinning(Clock()), 1e9, huge) == 4 * MOST


def test_a_turn_of_another_loop_counts_by_what_it_costs() -> None:
    spinning = Spinning(Clock())
    assert spinning.begin()
    looks = 1
    while spinning.goes_on(found=False, turns=0.5):
        looks += 1
    assert looks == 2 * MOST


def test_what_comes_at_once_is_no_reason_to_spin() -> None:
    """It would have been there without spinning: a few in vain are too many then."""
    spinning = Spinning(Clock())
    waits = itertools.cycle([50, *[1] * 19])
    number = sum(wait(spinning, next(waits)) is not None for _ in range(10_000))
    assert number < 300
    assert spun(itertools.cycle([50, *[2] * 19]), 1000) > 900


def test_turns_that_take_long_do_not_count_as_quick() -> None:
    """Others have the core, or the interpreter's lock."""
    clock = Clock()
    spinning = Spinning(clock)
    for turn_takes, spins in ((5e-6, True), (9e-6, True), (30e-6, False)):
        assert spinning.begin()
        clock.now += turn_takes
        for _ in range(8):
            assert spinning.goes_on(found=False)
            clock.now += turn_takes
        assert not spinning.goes_on(found=True)
        assert spinning.begin() is spins
        while spins and spinning.goes_on(found=True):
            pass


def test_each_turn_offers_the_core_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side may wait for it: it is woken where its message came from."""
    offered: list[None] = []
    monkeypatch.setattr(spinning_module, "_yield_core", lambda: offered.append(None))
    spinning = Spinning(Clock())
    assert wait(spinning, 9) == 9
    assert len(offered) == 8
    assert wait(spinning, 1) == 1
    assert len(offered) == 8
