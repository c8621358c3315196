"""Six rounds of kills; `python -m tools.kill_rounds` runs 200."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.kill_rounds import run_rounds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("flush", "seed"), [("ASYNC_FLUSH", 11), ("SYNC_FLUSH", 12)])
async def test_nothing_acknowledged_is_lost_in_rounds_of_kills(
    flush: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run_rounds(tmp_path, rounds=3, each=2, seed=seed, flush=flush), (
        capsys.readouterr().out
    )
