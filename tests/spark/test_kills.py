"""Driver and JVM killed in the middle of streams: files have every row once, topics
every row, deduplicated once.
"""

from __future__ import annotations

import pytest

from support.spark_kills import rounds


@pytest.mark.xdist_group("spark")
@pytest.mark.real_time
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_kills_lose_nothing_and_double_nothing() -> None:
    rows = 200_000
    found = rounds(rows, 2, seed=5)
    assert found.kills == 2
    assert (found.file_rows, found.file_distinct) == (rows, rows)
    assert found.topic_distinct == {"plain": rows}
    assert found.topic_deduplicated == {"plain": rows}
