"""Random histories of queues, planned and read against a model: every row exactly once,
or told to be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from support.spark_histories import History

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize("losses", [False, True], ids=["nothing is lost", "some is lost"])
def test_every_row_is_read_once_or_told_lost(losses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    read = lost = 0
    for seed in range(15):
        history = History(seed, monkeypatch, losses=losses)

        async def live(history: History = history) -> Sequence[str]:
            return await history.run(40)

        wrong = trio.run(live, clock=MockClock(autojump_threshold=0))
        assert wrong == [], f"seed {seed}: {wrong[:10]}"
        read, lost = read + len(history.read), lost + len(history.lost)
    assert read > 1_500
    assert (lost > 20) is losses
