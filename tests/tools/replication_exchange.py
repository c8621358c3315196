"""Replication with Apache's broker by command:
`python -m tools.replication_exchange --messages 100000`, in the directory `tests`.
Exit code 0 when all bytes are equal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import trio

from support import java
from support.replication_exchange import apache_behind_ours, ours_behind_apache


def main() -> int:
    """Both directions, one after the other."""
    parser = argparse.ArgumentParser(
        description="Copy logs between our broker and Apache's, and compare every byte."
    )
    parser.add_argument("--messages", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        began = time.perf_counter()
        (directory / "master").mkdir()
        with java.apache_cluster(directory / "master") as cluster:
            size = trio.run(
                partial(ours_behind_apache, cluster, directory / "slave", options.messages)
            )
        told = f"{options.messages:,} messages"
        print(
            f"our slave behind Apache's master: {told}, {size:,} bytes equal, "
            f"{time.perf_counter() - began:.0f} s",
            flush=True,
        )
        began = time.perf_counter()
        (directory / "other").mkdir()
        size = trio.run(partial(apache_behind_ours, directory / "other", options.messages))
        print(
            f"Apache's slave behind our master: {told}, {size:,} bytes equal, "
            f"{time.perf_counter() - began:.0f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
