"""Sends while 1,000 timers are due on a disk that takes 5 ms a read: `python -m
tools.slow_disk` in the directory `tests`.

The broker is the production's, with its threads and a directory, in a process of its
own; only its reads of files take longer, and nothing of them is cached by the system. A
client in another process sends all the time, first beside nothing, then while the
timers, whose messages are on the disk alone, become due. Exit code 0 when the second
p99 is at most three times the first, without what the machine did for others
meanwhile, and all timers were delivered.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFile
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.source import TcpChannelSource
from support.broker import send_request
from support.measured import Measured, for_seconds, measured, percentile, print_measured
from support.processes import PATIENCE

HOT = 256 * 1024
"""Bytes of the log that the broker keeps in memory (`hotBytes`)."""
DUE = "Due"
DELAY = 10
"""Seconds until the timers are due."""


async def serve(root: str, delay: float) -> None:
    """Be the broker until killed."""
    read, reads = OsFile.pread, 0

    def pread(self: OsFile, size: int, offset: int) -> bytes:
        nonlocal reads
        reads += 1
        time.sleep(delay)
        return read(self, size, offset)

    config, _ = BrokerConfig().with_settings({name: str(ms) for name, ms in PATIENCE.items()})
    async with EmbeddedBroker(
        root, listen=0, namesrv_listen=0, config=config, hot_bytes=HOT
    ) as broker:
        OsFile.pread = pread  # type: ignore[method-assign]
        OsFile.pread_nowait = lambda *_: None  # type: ignore[method-assign]
        print(broker.address, broker.namesrv_address, flush=True)
        while True:
            await trio.sleep(1)
            print(reads, flush=True)


async def compare(pid: int, places: list[str], timers: int) -> tuple[Measured, Measured, int]:
    """Sends beside nothing and beside timers that are due; how many were delivered."""
    arguments = ["-m", "tools.slow_disk", "--measure", *places, str(pid), "--seconds"]
    async with trio.open_nursery() as nursery:
        channel = await TcpChannelSource().open_channel(places[0], Dispatcher(), nursery)
        alone = await measured(pid, [*arguments, str(DELAY)])
        for number in range(timers):
            text = f"TIMER_DELAY_SEC\x01{DELAY}\x02"
            command = send_request(DUE, b"%d" % number, properties=text, queue_id=0)
            assert (await channel.call(command, 30.0)).code == 0
        for _ in range(2 * HOT // 4000):
            await channel.call(send_request("Filler", bytes(4000)), 30.0)
        beside = await measured(pid, [*arguments, str(3 * DELAY)])
        found = await channel.call(_end_of(DUE), 30.0)
        nursery.cancel_scope.cancel()
    return alone, beside, int(found.ext_fields["offset"])


def _end_of(topic: str) -> Command:
    return Command(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": topic, "queueId": "0"})


def main() -> int:
    """Run both and compare."""
    parser = argparse.ArgumentParser(description="Sends while timers are due on a slow disk.")
    parser.add_argument("--timers", type=int, default=1000)
    parser.add_argument("--read", type=float, default=0.005, help="seconds of each read")
    parser.add_argument("--serve", help="only be the broker, in this directory")
    parser.add_argument("--measure", nargs=3, help="only measure: broker, name server, process")
    parser.add_argument("--seconds", type=float, default=float(DELAY))
    options = parser.parse_args()
    if options.serve:
        trio.run(serve, options.serve, options.read)
        return 0
    if options.measure:
        *places, pid = options.measure
        print_measured(places, int(pid), for_seconds(options.seconds), only_send=True)
        return 0
    root = Path(tempfile.mkdtemp(prefix="slow-"))
    command = [sys.executable, "-m", "tools.slow_disk", "--serve", str(root)]
    command += ["--read", str(options.read)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    try:
        places = process.stdout.readline().split()
        alone, beside, delivered = trio.run(partial(compare, process.pid, places, options.timers))
    finally:
        process.kill()
        reads = process.stdout.read().split()[-1]
        process.wait()
        shutil.rmtree(root)
    print("alone: ", alone)
    print(f"beside {options.timers} due timers: ", beside)
    print(f"{delivered} timers were delivered, with {reads} reads of {options.read * 1e3:g} ms")
    # What is quicker than a millisecond is noise of the machine.
    before, then = (percentile(each.taken, 0.99) for each in (alone, beside))
    fine = then <= 3 * max(before, 0.001) and delivered == options.timers
    return 0 if fine and not beside.failures else 1


if __name__ == "__main__":
    sys.exit(main())
