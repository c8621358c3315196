"""The crash suite by command:
`python -m tools.crash_points --points 10000 [--first SEED] [--of KIND]`, in the
directory `tests`. Exit code 0 when all passed.

A point is a run of several lives, by its seed. A crash is a power cut or a kill in one
place with a recovery from it that is checked; a life of a store has `--forks` of them
beside the one that ends it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from support.broker_crash import run_broker_seed
from support.crash import run_seed
from support.crash_pair import run_pair_seed
from support.limited import StoodStillError, cause_of, limited
from support.pop_lives import run_seed as run_pop_seed
from support.seeded import run_alone
from support.timer_crash import run_timer_seed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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


def _run(
    first: int,
    points: int,
    stop_at: int,
    seconds: float,
    run_one: Callable[[int], Awaitable[int]],
) -> int:
    failed = crashes = done = 0
    began = time.perf_counter()
    for seed in range(first, first + points):
        if time.perf_counter() - began > seconds:
            break
        try:
            with limited(LONGEST, f"seed {seed}"):
                crashes += run_alone(run_one, seed)
        except (Exception, BaseExceptionGroup, StoodStillError) as error:
            # Every point counts, whatever it ends with.
            root = cause_of(error)
            if isinstance(root, KeyboardInterrupt):
                raise
            failed += 1
            done += 1
            print(f"seed {seed}: {type(root).__name__}: {str(root)[:1000]}", flush=True)
            if failed >= stop_at:
                break
        else:
            done += 1
        if done % 1000 == 0:
            _tell(done, crashes, failed, began)
    _tell(done, crashes, failed, began)
    return 1 if failed else 0


def _tell(done: int, crashes: int, failed: int, began: float) -> None:
    took = time.perf_counter() - began
    print(f"{done:,} points, {crashes:,} crashes, {failed} failed, {took:.1f} s", flush=True)


def main() -> int:
    """Run the points one after the other in virtual time."""
    parser = argparse.ArgumentParser(
        description="Crash a store at seeded points and check what is left."
    )
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--minutes", type=float, default=1e9, help="end earlier, after so long")
    parser.add_argument("--stop-at", type=int, default=20, metavar="FAILURES")
    parser.add_argument("--of", choices=RUNS, default="stores", help="what to crash")
    parser.add_argument("--forks", type=int, default=20, help="power cuts beside a store's life")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seconds = options.minutes * 60
    run_one = RUNS[options.of]
    if options.of == "stores":
        run_one = partial(run_seed, forks=options.forks)
    return _run(options.first, options.points, options.stop_at, seconds, run_one)


if __name__ == "__main__":
    sys.exit(main())
