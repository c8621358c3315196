"""Lives of a cluster under troubles, by the thousand:
`python -m tools.simulate --lives 1000 [--first SEED] [--processes 2] [--duration 3600]
[--slaves 1] [--power-cuts]`, in the directory `tests`. Exit code 0 when all rules held
in all.

Each life is a cluster of three masters, an ordered group of two members, a producer
with keys and one with transactions, for one virtual hour. A seed that fails is printed
with what was against the rules; `--only SEED` runs it alone and prints its troubles.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from support.cluster_life import run_life


def live(seed: int, size: dict[str, Any]) -> tuple[int, list[str], int, float]:
    """One life: what was wrong, how many requests there were, processor seconds."""
    began = time.process_time()
    try:
        life = run_life(seed, **size)
    except Exception as error:  # noqa: BLE001 - every life counts, whatever it ends with
        return seed, [f"{type(error).__name__}: {error}"], 0, time.process_time() - began
    return seed, life.value, len(life.trace), time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--duration", type=float, default=3600.0)
    parser.add_argument("--masters", type=int, default=3)
    parser.add_argument("--slaves", type=int, default=0)
    parser.add_argument("--power-cuts", action="store_true")
    options = parser.parse_args()
    size: dict[str, Any] = {
        "duration": options.duration,
        "masters": options.masters,
        "slaves": options.slaves,
    }
    if options.power_cuts:
        size |= {"power_cuts": True, "settings": {"flush_disk_type": "SYNC_FLUSH"}}
    if options.only is not None:
        life = run_life(options.only, **size)
        print("\n".join([*life.trace.notes, f"digest {life.trace.digest}", *life.value]))
        return 1 if life.value else 0
    began, failed, requests, used = time.perf_counter(), 0, 0, 0.0
    seeds = range(options.first, options.first + options.lives)
    with ProcessPoolExecutor(options.processes) as pool:
        for number, (seed, problems, count, seconds) in enumerate(
            pool.map(partial(live, size=size), seeds, chunksize=4), 1
        ):
            requests, used = requests + count, used + seconds
            if problems:
                failed += 1
                print(f"seed {seed}: {'; '.join(problems)[:500]}", flush=True)
            if number % 100 == 0 or number == options.lives:
                print(
                    f"{number:,} lives, {failed} failed, {requests:,} lines of traces, "
                    f"{used / number:.2f} processor seconds each, "
                    f"{time.perf_counter() - began:.0f} s",
                    flush=True,
                )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
