"""`rocketmq bench producer|consumer`: how fast a cluster takes and gives messages.

The options are those of `producer.sh` and `consumer.sh` of Apache's benchmark
(`org.apache.rocketmq.example.benchmark.Producer` and `Consumer`), with their defaults;
`--duration`, `--interval` and `--in-flight` are added.
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import string
import sys
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.cli.operate.command import Command, Session, positive, seconds, truth, whole
from rocketmq_sdk.cli.operate.connection import connection_arguments
from rocketmq_sdk.clock import SystemClock
from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.names import check_send_topic
from rocketmq_sdk.remoting.credentials import Credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rocketmq_sdk.cli.operate.output import Row
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.producer.producer import Producer

TOPIC: Final = "BenchmarkTest"
PRODUCERS: Final = "benchmark_producer"
CONSUMERS: Final = "benchmark_consumer"
IN_FLIGHT: Final = 1000
"""Sends under way with `-y`."""
PAUSE: Final = 3.0
"""Seconds that a sender rests after a failure, as Apache's does."""
_STEP: Final = math.log(1.02)


class Times:
    """Milliseconds that something took, in buckets of 2 %."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self._sum = 0.0
        self._longest = 0.0

    def add(self, milliseconds: float) -> None:
        """One took so long; clocks of two machines may give less than nothing."""
        took = max(milliseconds, 0.001)
        self._buckets[math.ceil(math.log(took) / _STEP)] += 1
        self.count += 1
        self._sum += took
        self._longest = max(self._longest, took)

    def part(self, share: float) -> float | None:
        """The time within which a share of them ended."""
        wanted, seen = share * self.count, 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(math.exp(bucket * _STEP), self._longest)
        return None

    def row(self, name: str) -> Row:
        """Mean, percentiles and the longest, in milliseconds."""
        return {
            f"{name}Mean": round(self._sum / self.count, 3) if self.count else None,
            **{
                f"{name}P{label}": None if (found := self.part(share)) is None else round(found, 3)
                for label, share in (("50", 0.5), ("99", 0.99), ("999", 0.999))
            },
            f"{name}Max": round(self._longest, 3) if self.count else None,
        }


class Tally:
    """What was done since the start, and since the last line."""

    def __init__(self, session: Session, *names: str) -> None:
        self._out = session.out
        self._names = names
        self._began = self._last = trio.current_time()
        self.failures: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        """The first failure of each name, in words."""
        self._failed_before = 0
        self.times = {name: Times() for name in names}
        self._since = {name: Times() for name in names}

    @property
    def done(self) -> int:
        """How many were done well."""
        return self.times[self._names[0]].count

    @property
    def failed(self) -> int:
        """How many failed."""
        return self.failures.total()

    def add(self, *milliseconds: float) -> None:
        """One was done, with its times in the order of their names."""
        for name, took in zip(self._names, milliseconds, strict=True):
            self.times[name].add(took)
            self._since[name].add(took)

    def _row(self, span: float, times: dict[str, Times], failed: int) -> Row:
        count = times[self._names[0]].count
        row: Row = {
            "seconds": round(span, 3),
            "messages": count,
            "rate": round(count / span, 1) if span > 0 else 0.0,
            "failed": failed,
        }
        for name, found in times.items():
            row |= found.row(name)
        return row

    def tell(self) -> None:
        """A line about what was done since the line before."""
        now = trio.current_time()
        row = self._row(now - self._last, self._since, self.failed - self._failed_before)
        self._last, self._failed_before = now, self.failed
        self._since = {name: Times() for name in self._names}
        if self._out.as_json:
            self._out.row({"kind": "interval", **row})
            return
        first = self._names[0]
        self._out.line(
            f"{row['rate']:>12,}/s  failed {row['failed']}  "
            + "  ".join(f"{key} {row[first + key] or 0} ms" for key in ("Mean", "P99", "Max"))
        )

    def end(self) -> int:
        """The whole; the exit code."""
        row = self._row(trio.current_time() - self._began, self.times, self.failed)
        reasons = {name: str(count) for name, count in self.failures.most_common()}
        if self._out.as_json:
            self._out.row({"kind": "total", **row, "failures": reasons})
        else:
            self._out.row(row | ({"failures": reasons} if reasons else {}))
        for name, text in self.first.items():
            print(f"rocketmq: {name}: {text}", file=sys.stderr)
        if not self.done and not self.failed:
            print("rocketmq: nothing was there to be done", file=sys.stderr)
        return int(self.failed > 0 or not self.done)


@asynccontextmanager
async def _until_ctrl_c(session: Session, tally: Tally) -> AsyncIterator[trio.CancelScope]:
    """A block that a signal or `--duration` ends, with a line each `--interval`."""
    options = session.options

    async def listen(scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _number in signals:
                scope.cancel()

    async def report() -> None:
        while True:
            await trio.sleep(options.interval)
            tally.tell()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen, nursery.cancel_scope)
        nursery.start_soon(report)
        with trio.move_on_after(options.duration or math.inf):
            yield nursery.cancel_scope
        nursery.cancel_scope.cancel()


# Producer


def _switch(
    parser: argparse.ArgumentParser, short: str, name: str, help_text: str, default: bool = False
) -> None:
    """`-k`, `-k true` or `-k false`; Apache's want the word."""
    shown = f"{help_text} (default: {str(default).lower()})"
    parser.add_argument(
        short,
        name,
        nargs="?",
        const=True,
        default=default,
        type=truth,
        metavar="true|false",
        help=shown,
    )


def _shared_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", default=TOPIC, metavar="TOPIC", help=f"default: {TOPIC}")
    _switch(parser, "-m", "--msgTraceEnable", "write traces")
    _switch(parser, "-a", "--aclEnable", "sign requests, with -ak and -sk or --credentials")
    parser.add_argument("-ak", "--accessKey", metavar="KEY", help="with -a")
    parser.add_argument("-sk", "--secretKey", metavar="KEY", help="with -a; others can see it")
    parser.add_argument("--duration", type=seconds, metavar="SECONDS", help="end after them")
    parser.add_argument(
        "--interval", type=seconds, default=10.0, metavar="SECONDS", help="between lines (10)"
    )


def _producer_arguments(parser: argparse.ArgumentParser) -> None:
    _shared_arguments(parser)
    parser.add_argument(
        "-w", "--threadCount", type=positive, default=64, metavar="N", help="senders (64)"
    )
    parser.add_argument(
        "-s", "--messageSize", type=positive, default=128, metavar="BYTES", help="of a body (128)"
    )
    _switch(parser, "-k", "--keyEnable", "give each message a key")
    parser.add_argument(
        "-p", "--propertySize", type=whole, default=0, metavar="BYTES", help="of properties (0)"
    )
    parser.add_argument(
        "-l", "--tagCount", type=whole, default=0, metavar="N", help="how many tags (0: none)"
    )
    parser.add_argument(
        "-q", "--messageQuantity", type=whole, default=0, metavar="N", help="in all (0: no end)"
    )
    _switch(parser, "-d", "--delayEnable", "delay messages")
    parser.add_argument(
        "-e", "--delayLevel", type=positive, default=1, metavar="LEVEL", help="with -d (1)"
    )
    _switch(parser, "-y", "--asyncEnable", "one sender with many sends under way")
    parser.add_argument(
        "--in-flight",
        type=positive,
        default=IN_FLIGHT,
        metavar="N",
        help=f"sends under way with -y ({IN_FLIGHT})",
    )


def properties(size: int, start: int) -> dict[str, str]:
    """Properties of more than `size` characters, as Apache's benchmark makes them."""
    found: dict[str, str] = {}
    number = total = 0
    while size and total <= size:
        pairs = {f"prop{number}": f"hello{start}", f"prop{number + 1}": str(start)}
        found |= pairs
        total += sum(len(name) + len(value) for name, value in pairs.items())
        number, start = number + 2, start + 2
    return found


def message_maker(options: argparse.Namespace) -> Callable[[], Message]:
    """What makes the messages that the options ask for."""
    clock, dice = SystemClock(), random.Random()
    letters = string.ascii_letters + string.digits
    body = "".join(dice.choices(letters, k=options.messageSize)).encode()

    def make() -> Message:
        now = clock.now_ms()
        return Message(
            options.topic,
            body,
            keys=str(now // 1000) if options.keyEnable else (),
            tags=f"tag{now % options.tagCount}" if options.tagCount else None,
            properties=properties(options.propertySize, dice.randrange(100)),
            delay_level=options.delayLevel if options.delayEnable else None,
        )

    return make


class _Senders:
    """Everybody who sends."""

    def __init__(self, producer: Producer, tally: Tally, options: argparse.Namespace) -> None:
        self._producer = producer
        self._tally = tally
        self._make = message_maker(options)
        self._left = options.messageQuantity or math.inf
        self._options = options

    def _next(self) -> bool:
        self._left -= 1
        return self._left >= 0

    async def run(self) -> None:
        """Send until everything is sent."""
        options = self._options
        async with trio.open_nursery() as nursery:
            if options.asyncEnable:
                slots = trio.Semaphore(options.in_flight)
                while self._next():
                    await slots.acquire()
                    nursery.start_soon(self._one, slots)
            else:
                for _ in range(options.threadCount):
                    nursery.start_soon(self._many)

    async def _one(self, slots: trio.Semaphore) -> None:
        try:
            await self._send()
        finally:
            slots.release()

    async def _many(self) -> None:
        while self._next():
            if not await self._send():
                await trio.sleep(PAUSE)

    async def _send(self) -> bool:
        began = trio.current_time()
        try:
            await self._producer.send(self._make())
        except RocketMQError as error:
            name = type(error).__name__
            self._tally.failures[name] += 1
            self._tally.first.setdefault(name, str(error))
            return False
        self._tally.add((trio.current_time() - began) * 1000)
        return True


async def _produce(session: Session) -> int:
    from rocketmq_sdk.producer.producer import Producer

    options = session.options
    check_send_topic(options.topic)
    tally = Tally(session, "ms")
    async with (
        Producer(
            PRODUCERS,
            client=session.admin.client,
            compress_over=2**31 - 1,
        ) as producer,
        _until_ctrl_c(session, tally),
    ):
        await _Senders(producer, tally, options).run()
    return tally.end()


# Consumer


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate from 0 to 1")
    return rate


def _consumer_arguments(parser: argparse.ArgumentParser) -> None:
    _shared_arguments(parser)
    parser.add_argument(
        "-w",
        "--threadCount",
        type=positive,
        default=20,
        metavar="N",
        help="messages that are worked on at the same time (20)",
    )
    parser.add_argument(
        "-g", "--group", default=CONSUMERS, metavar="GROUP", help=f"default: {CONSUMERS}"
    )
    _switch(parser, "-p", "--groupPrefixEnable", "add a number to the group's name", True)
    parser.add_argument("-f", "--filterType", choices=["TAG", "SQL92"], help="with -e")
    parser.add_argument("-e", "--expression", metavar="FILE", help="whose text is the filter")
    parser.add_argument(
        "-r", "--failRate", type=_rate, default=0.0, metavar="RATE", help="share that fails (0)"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="end when so many are consumed")


def _filter(options: argparse.Namespace) -> str | tuple[str, str]:
    """What to subscribe to. Raises `ConfigurationError`."""
    if options.filterType is None or options.expression is None:
        return "*"
    try:
        text = Path(options.expression).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"-e {options.expression} cannot be read: {error}") from error
    return (text, "SQL92") if options.filterType == "SQL92" else text


async def _consume(session: Session) -> int:
    from rocketmq_sdk.consumer.outcome import ConsumeLater
    from rocketmq_sdk.consumer.push.consumer import PushConsumer

    options = session.options
    tally, dice = Tally(session, "born", "stored"), random.Random()
    clock = session.admin.client.clock
    group = options.group
    if options.groupPrefixEnable:
        group += f"_{clock.now_ms() % 100}"
    enough = trio.Event()

    async def listener(message: ReceivedMessage) -> None:
        now = clock.now_ms()
        tally.add(now - message.born_timestamp, now - message.store_timestamp)
        if options.limit is not None and tally.done >= options.limit:
            enough.set()
        if dice.random() < options.failRate:
            tally.failures["as asked by -r"] += 1
            raise ConsumeLater("as asked by -r")

    async with (
        PushConsumer(
            group,
            client=session.admin.client,
            subscriptions={options.topic: _filter(options)},
            listener=listener,
            concurrency=options.threadCount,
        ),
        _until_ctrl_c(session, tally),
    ):
        await enough.wait()
    return tally.end()


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _producer_arguments(actions.add_parser("producer", help="send as fast as possible"))
    _consumer_arguments(actions.add_parser("consumer", help="consume as fast as possible"))
    for action in actions.choices.values():
        connection_arguments(action)


async def _run(session: Session) -> int:
    return await (_produce if session.options.action == "producer" else _consume)(session)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Settings of the client. Raises `ConfigurationError`."""
    settings: dict[str, Any] = {"enable_trace": options.msgTraceEnable}
    keys = options.accessKey, options.secretKey
    if (any(keys) and not all(keys)) or (any(keys) and not options.aclEnable):
        raise ConfigurationError("-a, -ak and -sk go together; better: --credentials FILE")
    if all(keys):
        settings["credentials"] = Credentials(*keys)
    return settings


COMMANDS: Final = (Command("bench", "measure a cluster", _run, _arguments, True, _settings),)
