"""The crash suite by command:
`python -m tools.crash_points --points 10000 [--first SEED] [--of KIND]`, in the
directory `tests`. Exit code 0 when all passed.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING

from support.broker_crash import run_broker_seed
from support.crash import run_seed
from support.crash_pair import run_pair_seed
from support.pop_lives import run_seed as run_pop_seed
from support.seeded import run_alone
from support.timer_crash import run_timer_seed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType

LONGEST = 120.0
"""Seconds that a point may take: it stands still in a thread then, where virtual time
does not help.
"""

RUNS: dict[str, Callable[[int], Awaitable[int]]] = {
    "stores": run_seed,
    "pairs": run_pair_seed,
    "timers": run_timer_seed,
    "brokers": run_broker_seed,
    "pops-killed": partial(run_pop_seed, power_cut=False, merge=False),
    "pops": partial(run_pop_seed, power_cut=True, merge=False),
    "pops-merged-killed": partial(run_pop_seed, power_cut=False, merge=True),
    "pops-merged": partial(run_pop_seed, power_cut=True, merge=True),
}


def _stand_still(_number: int, frame: FrameType | None) -> None:
    where = "".join(traceback.format_stack(frame, 6))
    raise TimeoutError(f"it stood still for {LONGEST:.0f} s:\n{where}")


def _alone(run_one: Callable[[int], Awaitable[int]], seed: int) -> int:
    """One point, which may not stand still. Raises what it ends with."""
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        return run_alone(run_one, seed)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _root(error: BaseException) -> BaseException:
    """What an error of the loop itself came from."""
    while not isinstance(error, TimeoutError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _run(first: int, points: int, stop_at: int, run_one: Callable[[int], Awaitable[int]]) -> int:
    failed = crashes = 0
    began = time.perf_counter()
    for seed in range(first, first + points):
        try:
            crashes += _alone(run_one, seed)
        except Exception as error:  # noqa: BLE001 - every point counts, whatever it ends with
            failed += 1
            root = _root(error)
            print(f"seed {seed}: {type(root).__name__}: {str(root)[:1000]}", flush=True)
            if failed >= stop_at:
                break
        if (seed - first + 1) % 1000 == 0:
            print(
                f"{seed - first + 1:,} points, {crashes:,} crashes, {failed} failed, "
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )
    print(
        f"{points:,} points, {crashes:,} crashes, {failed} failed, "
        f"{time.perf_counter() - began:.1f} s"
    )
    return 1 if failed else 0


def main() -> int:
    """Run the points one after the other in virtual time."""
    parser = argparse.ArgumentParser(
        description="Crash a store at seeded points and check what is left."
    )
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--stop-at", type=int, default=20, metavar="FAILURES")
    parser.add_argument("--of", choices=RUNS, default="stores", help="what to crash")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, _stand_still)
    return _run(options.first, options.points, options.stop_at, RUNS[options.of])


if __name__ == "__main__":
    sys.exit(main())
