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
def test_a_kill_loses_nothing_and_doubles_nothing() -> None:
    rows = 60_000
    found = rounds(rows, 1, seed=5)
    assert found.kills == 1
    assert (found.file_rows, found.file_distinct) == (rows, rows)
    assert found.topic_distinct == {"plain": rows}
    assert found.topic_deduplicated == {"plain": rows}
