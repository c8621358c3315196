"""Well-behaved clients beside very many others: `python -m tools.greedy_clients` in the
directory `tests`.

First the well-behaved client alone, then beside 10,000 idle connections and 1,000 that
misbehave (unfinished frames, answers that nobody reads, floods of small requests,
extreme values). It tells the times of both, what memory the broker held, and how much
of a core it took. The well-behaved client is a process of its own that does nothing but
to call and to look at the clock, by sockets that block: its times are the broker's. It
tells as well how late a plain sleep of it was: when that is much, the machine was busy
with something else. Those that misbehave are a third process, which yields to the two
others at once (`SCHED_IDLE`): elsewhere they would be other machines, and a process
that is only nice keeps its processor for milliseconds when the client or the broker
wakes up. How often they sent is told; when that is less than `LEAST` of what they were
to send, they were starved and the figures say nothing. Exit code 0 when they were not,
the second p99 is at most twice the first, no good call failed, and the broker stayed
within what it took at first, five quarters of the limit of connections, and `EACH`
bytes for each connection.

The processes need `ulimit -n 30000`; with fewer descriptors, fewer connections are
opened.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
from functools import partial
from random import Random
from struct import pack

import trio

from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.source import TcpChannelSource
from support.broker import pull_request, send_request
from support.extreme_requests import Extremes
from support.extreme_run import rows
from support.measured import GOOD_TOPIC, Measured, for_seconds, measured, print_measured
from support.processes import BrokerProcess, broker_process

KINDS = ("half a frame", "unread answers", "flood", "extremes")
SECONDS = 15.0
LIMIT = 256 * 1024 * 1024
"""`connectionMemoryLimit`."""
EACH = 16 * 1024
"""Bytes that a connection takes beside what is counted."""
LEAST = 0.8
"""The least share of the floods, one a second of each, that must be sent."""
_sent = dict.fromkeys(KINDS, 0)
"""How often each kind has sent something."""


async def misbehave(address: str, kind: str, number: int, requests: Extremes) -> None:
    """One connection that behaves badly until it is cut off, again and again."""
    host, port = address.rsplit(":", 1)
    chance = Random(number)
    while True:
        try:
            stream = await trio.open_tcp_stream(host, int(port))
        except OSError:
            await trio.sleep(1)
            continue
        try:
            await _one_life(stream, kind, chance, requests)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(stream)
        await trio.sleep(chance.uniform(0.5, 1.5))


async def _one_life(
    stream: trio.SocketStream, kind: str, chance: Random, requests: Extremes
) -> None:
    if kind == "half a frame":
        await _send(stream, kind, pack(">II", 15_000_000, 100))
        for _ in range(chance.randrange(20)):
            await _send(stream, kind, bytes(50_000))
            await trio.sleep(chance.uniform(0.5, 1.0))
        await trio.sleep(30)
    elif kind == "unread answers":
        pulls = encode_frame(pull_request(GOOD_TOPIC, 0)) * 20
        for _ in range(100):
            await _send(stream, kind, pulls)
            await trio.sleep(1)
    elif kind == "flood":
        small = encode_frame(Command(9999)) * 10
        for _ in range(1000):
            await _send(stream, kind, small)
            await stream.receive_some(65536)
            await trio.sleep(1)
    else:
        for _ in range(1000):
            await _send(stream, kind, encode_frame(requests.make().command))
            await stream.receive_some(65536)
            await trio.sleep(chance.uniform(10, 30))


async def _send(stream: trio.SocketStream, kind: str, data: bytes) -> None:
    await stream.send_all(data)
    _sent[kind] += 1


async def _fill(broker: BrokerProcess) -> None:
    """Some messages for those who pull and never read."""
    async with trio.open_nursery() as nursery:
        channel = await TcpChannelSource().open_channel(broker.address, Dispatcher(), nursery)
        for _ in range(200):
            await channel.call(send_request(GOOD_TOPIC, bytes(1000)), 30.0)
        nursery.cancel_scope.cancel()


async def _measured(broker: BrokerProcess, seconds: float) -> Measured:
    """Have it measured by a process of its own."""
    assert broker.process is not None
    arguments = ["-m", "tools.greedy_clients", "--seconds", str(seconds)]
    arguments += ["--measure", broker.address, broker.namesrv, str(broker.process.pid)]
    return await measured(broker.process.pid, arguments)


async def compare(
    broker: BrokerProcess, idle: int, bad: int, seconds: float
) -> tuple[Measured, Measured, dict[str, float]]:
    """What the well-behaved client sees alone, and beside the others, and how often a
    second each kind of them sent.
    """
    await _fill(broker)
    alone = await _measured(broker, seconds)
    command = [sys.executable, "-m", "tools.greedy_clients", "--attack", broker.address]
    command += ["--idle", str(idle), "--bad", str(bad)]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        await process.stdout.receive_some(1)  # all are connected
        await trio.sleep(2)
        beside = await _measured(broker, seconds)
        process.terminate()
        rates: dict[str, float] = json.loads(b"".join([data async for data in process.stdout]))
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
    return alone, beside, rates


async def attack(address: str, idle: int, bad: int) -> None:
    """Connect and misbehave until terminated; then tell how often a second."""
    host, port = address.rsplit(":", 1)
    of_broker, _ = await rows()
    extremes = Extremes(of_broker, 7)
    kept: list[trio.SocketStream] = []
    async with trio.open_nursery() as nursery:
        while len(kept) < idle:
            kept.append(await trio.open_tcp_stream(host, int(port)))
        for number in range(bad):
            kind = KINDS[number % len(KINDS)]
            nursery.start_soon(misbehave, address, kind, number, extremes)
        print("x", flush=True)
        began, before = trio.current_time(), dict(_sent)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            await anext(aiter(signals))
        took = trio.current_time() - began
        rates = {kind: (_sent[kind] - before[kind]) / took for kind in KINDS}
        os.write(1, json.dumps(rates).encode())
        nursery.cancel_scope.cancel()


def main() -> int:
    """Run both and compare."""
    parser = argparse.ArgumentParser(description="Well-behaved clients beside very many others.")
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--bad", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement")
    parser.add_argument("--attack", help="only misbehave, at this address")
    parser.add_argument("--measure", nargs=3, help="only measure: broker, name server, process")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.attack:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        trio.run(attack, options.attack, options.idle, options.bad)
        return 0
    if options.measure:
        *places, process = options.measure
        print_measured(places, int(process), for_seconds(options.seconds))
        return 0
    room = max(0, hard - 500 - options.bad)
    # A server takes 10,000 connections by default; the bad and the good need theirs.
    idle = min(options.idle, room, 10_000 - options.bad - 10)
    with broker_process(connectionMemoryLimit=LIMIT) as broker:
        alone, beside, rates = trio.run(
            partial(compare, broker, idle, options.bad, options.seconds)
        )
    bound = alone.most + LIMIT * 5 // 4 + EACH * (idle + options.bad)
    print("alone: ", alone)
    print(f"beside {idle} idle and {options.bad} bad connections: ", beside)
    print(f"{beside.most / 1e6:.0f} MB of {bound / 1e6:.0f}; {len(broker.log)} lines logged")
    print(
        "which sent", ", ".join(f"{rate:.0f} times a second {kind}" for kind, rate in rates.items())
    )
    for failure in beside.failures[:10]:
        print("FAILED", failure[:500])
    # What is quicker than a millisecond is noise of the machine.
    fine = beside.p99 <= 2 * max(alone.p99, 0.001) and beside.most <= bound
    starved = rates["flood"] < LEAST * options.bad / len(KINDS)
    return 0 if fine and not starved and not beside.failures else 1


if __name__ == "__main__":
    sys.exit(main())
