"""Random histories of queues, planned and read against a model: every row exactly once,
or told to be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from support.spark_histories import History

if TYPE_CHECKING:
    from collections.abc import Sequence

BOTH = pytest.mark.parametrize("losses", [False, True], ids=["nothing is lost", "some is lost"])


def lived(seed: int, *, losses: bool) -> tuple[History, Sequence[str]]:
    """A history that is over, and what went wrong in it."""
    with pytest.MonkeyPatch.context() as patch:
        history = History(seed, patch, losses=losses)

        async def live() -> Sequence[str]:
            return await history.run(40)

        return history, trio.run(live, clock=MockClock(autojump_threshold=0))


@BOTH
@settings(max_examples=12)
@given(seed=st.integers(0, (1 << 32) - 1))
@example(seed=1)
def test_every_row_is_read_once_or_told_lost(losses: bool, seed: int) -> None:
    assert lived(seed, losses=losses)[1] == []


@BOTH
def test_much_is_read_and_lost_in_histories(losses: bool) -> None:
    histories = [lived(seed, losses=losses)[0] for seed in range(3)]
    assert sum(len(history.read) for history in histories) > 300
    assert (sum(len(history.lost) for history in histories) > 20) is losses
