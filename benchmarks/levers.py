"""What each lever of speed is worth: processor time of a message without it.

A lever is switched off by a patch of the program that is measured, which puts back the
way that each message or request goes alone. Client and broker are told apart. With them
runs the code from before all of them (commit `BEFORE`), as it was. All programs stay
and take short turns, one after the other, so that each meets the same machine; the
figure is the median of the turns.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import trio

from benchmarks.against import HERE, checkout
from benchmarks.consume import backlog, consume
from benchmarks.processor import processor_seconds
from benchmarks.sending import batches, in_flight
from benchmarks.workers import Broker, broker_process
from rocketmq_sdk import Admin, EmbeddedBroker, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.harness import Report

BEFORE: Final = "88744f1"
"""The last commit in which each request went its way alone."""
TURNS: Final = 8
INDEX_SECONDS: Final = 1.2
"""What gathers for the index is done in this time."""


def _broker_sends() -> None:
    from rocketmq_sdk.broker_embedded.send.plain_sends import PlainSends

    _replace(PlainSends, "serve", lambda *_: [])


def _broker_pulls() -> None:
    from rocketmq_sdk.broker_embedded.pull.plain_pulls import PlainPulls

    _replace(PlainPulls, "serve", lambda *_: [])


def _index() -> None:
    from rocketmq_sdk.broker_embedded.store.index.entries import EntryMaker

    _replace(EntryMaker, "make_at_once", lambda *_: False)


def _alike() -> None:
    from rocketmq_sdk.broker_embedded.store.append import appender
    from rocketmq_sdk.broker_embedded.store.append.client_batch import ClientBatch
    from rocketmq_sdk.broker_embedded.store.index import entries

    _replace(ClientBatch, "_split_alike", lambda *_: False)
    for module in (appender, entries):
        _replace(module, "alike", lambda _properties, **_known: None)


def _client_sends() -> None:
    from rocketmq_sdk.producer.handle import SendHandle

    _replace(SendHandle, "is_plain", property(lambda _handle: False))


def _shapes() -> None:
    from rocketmq_sdk.protocol.header_json import decode_json_header
    from rocketmq_sdk.protocol.shapes.answers import AnswerShapes

    _replace(AnswerShapes, "cut", lambda *_: None)
    _replace(AnswerShapes, "learn", lambda _shapes, text: decode_json_header(text, b""))


def _send_shapes() -> None:
    from rocketmq_sdk.protocol import connection

    _replace(connection, "MANY", math.inf)


def _client_pulls() -> None:
    from rocketmq_sdk.consumer.pull.pull_run import PullRuns

    _replace(PullRuns, "begin", lambda *_: None)


def _exchange() -> None:
    from rocketmq_sdk.remoting.local import LocalChannel

    _replace(LocalChannel, "exchange", lambda *_: ())


def _replace(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} to switch off"
    setattr(owner, name, value)


LEVERS: Final[dict[str, Callable[[], None]]] = {
    "sends of a chunk served as one": _broker_sends,
    "sends of a tick written as one": _client_sends,
    "sends cut by their shape": _send_shapes,
    "answers cut by their shape": _shapes,
    "index entries by whole chunks": _index,
    "batches taken apart by columns": _alike,
    "pulls of a queue served as one": _broker_pulls,
    "pulls of a queue sent together": _client_pulls,
    "commands in process handed over as one": _exchange,
}
"""What puts the way back that each of them replaces."""

WORKS: Final[dict[str, tuple[str, ...]]] = {
    "256 in flight": tuple(LEVERS)[:5],
    "batches of 100": tuple(LEVERS)[4:6],
    "consumed by 32": tuple(LEVERS)[6:8],
    "in process, 64 in flight": (*tuple(LEVERS)[4:5], *tuple(LEVERS)[8:]),
}
"""The levers that matter to each kind of work."""


async def _work(name: str, broker: Broker, producer: Producer, group: str) -> int:
    """One turn; how many messages it had."""
    if name == "256 in flight":
        return 4_000 if await in_flight(producer, "levers", 4_000, 256) else 0
    if name == "batches of 100":
        return 8_000 if await batches(producer, "levers", 8_000, 100) else 0
    return 16_000 if await consume(broker, group, 16_000, 32) else 0


async def _serve(name: str, levers: str) -> None:
    """Do a turn for each line of standard input, and tell both sides' costs."""
    if name.startswith("in process"):
        async with (
            EmbeddedBroker(memory_limit=2**31) as broker,
            Producer("bench", namesrv=broker) as producer,
        ):
            await in_flight(producer, "levers", 4_000, 64)
            print("ready", flush=True)
            for _line in sys.stdin:
                spent = time.process_time()
                await in_flight(producer, "levers", 4_000, 64)
                await trio.sleep(INDEX_SECONDS)
                print(json.dumps([(time.process_time() - spent) / 4_000 * 1e6, 0.0]), flush=True)
        return
    groups, without = count(), (sys.executable, "-m", "benchmarks.levers", levers)
    # Another tree may have no such benchmark; it is measured as it is.
    as_it_is = (sys.executable, "-m", "rocketmq_sdk")
    with broker_process(program=without if levers else as_it_is) as other:
        await backlog(other, 16_000)
        async with Producer("bench", namesrv=other) as producer:
            await Admin(client=producer.client).topics.create("levers", queues=4)
            await _work(name, other, producer, "first")
            print("ready", flush=True)
            for _line in sys.stdin:
                spent, served = time.process_time(), processor_seconds(other.process)
                messages = await _work(name, other, producer, f"g{next(groups)}")
                client = time.process_time() - spent
                await trio.sleep(INDEX_SECONDS)
                broker_time = processor_seconds(other.process) - served
                costs = [client / messages * 1e6, broker_time / messages * 1e6]
                print(json.dumps(costs), flush=True)


def _program(work: str, levers: Sequence[str], tree: Path) -> subprocess.Popen[str]:
    """A program that does turns of one kind of work without some levers."""
    code = (
        f"import sys, rocketmq_sdk; sys.path.insert(0, {str(HERE)!r}); "
        f"from benchmarks.levers import main; main({work!r}, {';'.join(levers)!r})"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _turn(program: subprocess.Popen[str]) -> tuple[float, float]:
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    client, broker = json.loads(program.stdout.readline())
    return client, broker


def run(report: Report, scale: float) -> None:
    """One round."""
    shallow = not (HERE / ".git").exists()
    with nullcontext(None) if shallow else checkout(BEFORE) as before:
        for work, levers in WORKS.items():
            kinds: dict[str, tuple[tuple[str, ...], Path]] = {"now": ((), HERE)}
            kinds |= {f"without: {lever}": ((lever,), HERE) for lever in levers}
            kinds["without all of these"] = (levers, HERE)
            if before is not None:
                kinds["before"] = ((), before)
            with ExitStack() as stack:
                programs = {
                    kind: stack.enter_context(_program(work, *what)) for kind, what in kinds.items()
                }
                for kind, program in programs.items():
                    assert program.stdout is not None
                    if program.stdout.readline() != "ready\n":
                        raise RuntimeError(f"{work}, {kind}: the program has not started")
                costs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
                for _ in range(max(3, int(TURNS * scale))):
                    for kind, program in programs.items():
                        costs[kind].append(_turn(program))
                for program in programs.values():
                    assert program.stdin is not None
                    program.stdin.close()
            _add(report, work, costs)


def _add(report: Report, work: str, costs: dict[str, list[tuple[float, float]]]) -> None:
    """The medians of each kind, beside those of all levers together."""
    sides = ("process",) if work.startswith("in process") else ("client", "broker")
    for number, side in enumerate(sides):
        first = f"levers: {side}, {work}, now"
        for kind, rows in costs.items():
            value = statistics.median(row[number] for row in rows)
            name = f"levers: {side}, {work}, {kind}"
            report.add(name, "us", value, None if name == first else first)


def main(work: str, levers: str) -> None:
    """The client's program: does one kind of work without these levers."""
    for lever in filter(None, levers.split(";")):
        LEVERS[lever]()
    trio.run(_serve, work, levers)


def _broker(levers: str, arguments: Sequence[str]) -> int:
    """The broker's program."""
    from rocketmq_sdk.cli import main as rocketmq

    for lever in filter(None, levers.split(";")):
        LEVERS[lever]()
    return rocketmq(list(arguments))


if __name__ == "__main__":
    sys.exit(_broker(sys.argv[1], sys.argv[2:]))
