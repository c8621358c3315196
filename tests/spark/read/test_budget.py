"""Bytes that pieces share while they are pulled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.spark.read.budget import Budget, Share

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 1000


async def run(answers: Sequence[Sequence[int]]) -> int:
    """The most bytes in flight, of pieces that pull and are handed on in order."""
    budget, most = Budget(LIMIT), 0
    budget.guess = 100
    pulled = [trio.Event() for _ in answers]

    async def pull(number: int) -> None:
        nonlocal most
        share = Share(budget, number)
        for size in answers[number]:
            await share.ask()
            await trio.lowlevel.checkpoint()
            share.take(size)
            most = max(most, budget.used)
        pulled[number].set()

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            for number in range(len(answers)):
                nursery.start_soon(pull, number)
            for number, sizes in enumerate(answers):
                await pulled[number].wait()
                for size in sizes:
                    budget.give_back(size)
                budget.next_in_turn()
    assert budget.used == 0
    return most


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3000), max_size=6), max_size=8))
def test_pieces_always_end_whatever_they_bring(answers: list[list[int]]) -> None:
    trio.run(run, answers)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.just(100), max_size=12), max_size=8))
def test_what_is_in_flight_is_bounded(answers: list[list[int]]) -> None:
    """By the limit, and the piece whose turn it is: that one goes on in any case."""
    assert trio.run(run, answers) <= LIMIT + 1200
