"""Extreme values to every request of broker and name server, beside a well-behaved
client: `python -m tools.extreme_requests --requests 100000` in the directory `tests`.

Exit code 0 when no good call failed or took a second, every request was answered in
words, the broker stopped cleanly, and what it kept is there after a restart.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from support.extreme_run import run
from support.processes import broker_process


def main() -> int:
    """Run it on a store that is removed at the end."""
    parser = argparse.ArgumentParser(description="Attack a broker with extreme values.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="extreme-"))
    try:
        with broker_process(root) as broker:
            report = trio.run(partial(run, broker, requests=options.requests, seed=options.seed))
            code = broker.stop()
            text = "".join(broker.log)
            broker.start()
            broker.stop()
        print(report, "; exit code", code)
        for failure in report.failures[:20]:
            print("FAILED", failure)
        if "Traceback" in text:
            print(text[text.index("Traceback") - 500 :][:5000])
        good = not report.failures and report.percentile(1) < 1.0 and code == 0
        return 0 if good and "Traceback" not in text else 1
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
