"""A broker killed with SIGKILL under load, again and again:
`python -m tools.kill_rounds --rounds 200 [--flush SYNC_FLUSH]`, in the directory
`tests`. Exit code 0 when nothing acknowledged was lost.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from support.kill_rounds import run_rounds


def main() -> int:
    """Run the rounds in a directory that is removed at the end."""
    parser = argparse.ArgumentParser(description="Kill a broker under load and count what it lost.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--each", type=int, default=20, help="rounds on one directory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flush", choices=["ASYNC_FLUSH", "SYNC_FLUSH"], default="ASYNC_FLUSH")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    root = Path(tempfile.mkdtemp(prefix="kill-rounds-"))
    try:
        run = partial(
            run_rounds,
            root,
            rounds=options.rounds,
            each=options.each,
            seed=options.seed,
            flush=options.flush,
        )
        return 0 if trio.run(run) else 1
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
