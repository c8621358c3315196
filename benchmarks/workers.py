"""The broker in a process of its own, for the benchmarks over TCP."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def broker_process(*arguments: str) -> Iterator[str]:
    """Start `rocketmq broker` on free ports; gives the address of its name server, kills it at the end."""
    command = [sys.executable, "-m", "rocketmq_sdk", "broker", "--namesrv-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = re.match(r"ready: name server (\S+), broker", line)
        if ready is None:
            raise RuntimeError(f"the broker did not start: {line!r}")
        yield ready.group(1)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
