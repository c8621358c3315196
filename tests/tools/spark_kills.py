"""Streams killed with -9, by one command:
`python -m tools.spark_kills --rows 2000000 --kills 10`, in the directory `tests`. With
`--brokers 2` one of two brokers hangs and is restarted at random meanwhile. Each stream
makes all lives longer: `--targets plain` leaves out the one with a shuffle.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from support.spark_kills import rounds

TARGETS = ("plain", "shuffled")


def main() -> None:
    """Kill, count, and fail when a row is missing or, where that is promised, there
    twice.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--brokers", type=int, choices=(1, 2), default=1)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--log", type=Path, help="a file for what the streams log")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    begin = time.monotonic()
    found = rounds(
        arguments.rows,
        arguments.kills,
        arguments.seed,
        targets=tuple(arguments.targets),
        brokers=arguments.brokers,
        tell=lambda line: print(f"  {line}", flush=True),
        log=arguments.log,
    )
    print(f"{time.monotonic() - begin:.0f} s: {found}")
    rows = arguments.rows
    good = found.file_rows == found.file_distinct == rows
    good = good and found.topic_deduplicated.get("plain", rows) == rows
    good = good and all(count == rows for count in found.topic_distinct.values())
    if found.kills < arguments.kills:
        raise SystemExit(
            f"only {found.kills} of {arguments.kills} lives were killed before everything was "
            "written; take more rows"
        )
    raise SystemExit(0 if good else "rows are missing or there twice")


if __name__ == "__main__":
    main()
