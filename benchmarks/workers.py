"""The broker in a process of its own, for the benchmarks over TCP."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Broker(str):
    """The address of a broker's name server, with the id of its process."""

    __slots__ = ("process",)

    process: int


@contextmanager
def broker_process(
    *arguments: str, program: Sequence[str] = (sys.executable, "-m", "rocketmq_sdk")
) -> Iterator[Broker]:
    """Start `rocketmq broker` on free ports with a store on disk, as Apache's has one.

    Yields the address of its name server, and kills the broker at the end.
    """
    command = [
        *program,
        "broker",
        "--namesrv-listen",
        "127.0.0.1:0",
        "--listen",
        "127.0.0.1:0",
        *arguments,
    ]
    directory = tempfile.mkdtemp(prefix="rocketmq-bench-")
    process = subprocess.Popen([*command, "--store", directory], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = re.match(r"ready: name server (\S+), broker", line)
        if ready is None:
            raise RuntimeError(f"the broker did not start: {line!r}")
        broker = Broker(ready.group(1))
        broker.process = process.pid
        yield broker
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        shutil.rmtree(directory, ignore_errors=True)
