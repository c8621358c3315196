"""Runs that are the same each time."""

from __future__ import annotations

import random
from typing import Any, cast

import trio


def seed_everything(seed: int) -> None:
    """Let trio's choice among tasks that can run, and all other draws, depend on a
    seed.
    """
    random.seed(seed)
    scheduler = cast("Any", trio)._core._run
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r.seed(seed)
