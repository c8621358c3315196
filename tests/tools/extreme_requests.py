"""Extreme values to every request of broker and name server, beside a well-behaved
client: `python -m tools.extreme_requests --requests 100000` in the directory `tests`.

The requests are of every code that there is, with a row or without one. The good client
goes on for 60 s behind them. Exit code 0 when none of its calls failed or took the
broker a second (without the time in which it or the client waited for a processor,
which is told as well), every request was answered in words, the broker stayed within
its memory (what it took at first, and five quarters of `connectionMemoryLimit`), logged
no traceback and no table that could not be saved, stopped cleanly, and has messages,
offsets and route of the good client after a restart.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from support.extreme_run import run, what_is_kept
from support.hostile import resident_bytes
from support.processes import broker_process

LIMIT = 256 * 1024 * 1024
"""The default of `connectionMemoryLimit`."""
BASE = 32 * 1024 * 1024
"""What code and tables take that a new process has not loaded yet."""


def main() -> int:
    """Run it on a store that is removed at the end."""
    parser = argparse.ArgumentParser(description="Attack a broker with extreme values.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--after", type=float, default=60.0, help="seconds to look on")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="extreme-"))
    try:
        with broker_process(root) as broker:
            assert broker.process is not None
            bound = resident_bytes(broker.process.pid) + BASE + LIMIT * 5 // 4
            attack = partial(
                run, broker, requests=options.requests, seed=options.seed, after=options.after
            )
            report = trio.run(attack)
            code = broker.stop()
            text = "".join(broker.log)
            broker.start()
            report.failures += trio.run(what_is_kept, broker, report)
            broker.stop()
        if report.good.most > bound:
            report.failures.append(f"{report.good.most} bytes of memory, {bound} are allowed")
        for bad in ("Traceback", "could not be saved", "could not be written"):
            if bad in text:
                at = text.index(bad)
                report.failures.append(f"the log says: {text[max(0, at - 500) : at + 5000]}")
        print(report, "; exit code", code)
        for failure in report.failures[:20]:
            print("FAILED", failure[:400])
        if report.failures:
            print("The broker said last:", text[-3000:], sep="\n")
        good = not report.failures and max(report.good.taken) < 1.0 and code == 0
        return 0 if good else 1
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
