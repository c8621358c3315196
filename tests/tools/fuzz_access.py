"""Hostile frames at a broker with access control on:
`python -m tools.fuzz_access --frames 1000000` in the directory `tests`.

Exit code 0 when nothing crashed and nothing was let in.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import trio

from support.access import NEEDS
from support.access_fuzz import attack


def main() -> int:
    """Attack and tell."""
    parser = argparse.ArgumentParser(description="Attack access control with hostile frames.")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report = trio.run(partial(attack, options.frames, options.seed, NEEDS))
    failures, report.failures = report.failures, []
    print(report)
    for failure in failures[:20]:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
