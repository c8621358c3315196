"""A demo on real data: publish, consume with two group members, check the result.

The result must equal a direct computation.

Each flight is one message, keyed by tail number (so the flights of one aircraft stay on
one queue, in order) and tagged by carrier. Two members of one consumer group start
first and share the queues. What they add up must equal what a plain loop over the file
adds up.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import time
from contextlib import AsyncExitStack
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.cli.progress import progress
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import ConfigurationError, TooManyRequestsError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.model.received import ReceivedMessage

GROUP = "flight-statistics"
QUEUES = 8
PATIENCE = 120.0
"""Seconds without any new message after which the demo gives up."""


@attrs.define
class CarrierTotals:
    """What is known of one carrier's flights."""

    flights: int = 0
    delays: int = 0
    delay_sum: int = 0

    def add(self, arrival_delay: str) -> None:
        self.flights += 1
        if arrival_delay != "NA":
            self.delays += 1
            self.delay_sum += int(arrival_delay)

    @property
    def mean_delay(self) -> float | None:
        return self.delay_sum / self.delays if self.delays else None


Totals = dict[str, CarrierTotals]


def _bundled() -> bytes:
    return (resources.files("rocketmq_sdk.cli") / "data" / "flights-2013-01.csv.gz").read_bytes()


def _rows(file: str | None) -> tuple[list[str], list[list[str]]]:
    """Column names and rows of a CSV file of flights."""
    try:
        raw = Path(file).read_bytes() if file else _bundled()
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{file} is neither CSV text in UTF-8 nor such a text compressed by gzip: {error}"
        ) from error
    reader: Iterator[list[str]] = csv.reader(io.StringIO(text, newline=""))
    columns = next(reader, [])
    for needed in ("carrier", "tailnum", "arr_delay"):
        if needed not in columns:
            raise ConfigurationError(
                f"{file or 'the data'} has no column {needed!r}; the demo needs carrier, tailnum "
                "and arr_delay"
            )
    rows = [row for row in reader if row]
    delay = columns.index("arr_delay")
    for number, row in enumerate(rows, 2):
        if len(row) != len(columns) or not (
            row[delay] == "NA" or row[delay].lstrip("-").isdecimal()
        ):
            raise ConfigurationError(
                f"{file}, line {number}: a row has {len(columns)} fields, and arr_delay is a "
                "number of minutes or NA"
            )
    return columns, rows


def direct_totals(columns: list[str], rows: list[list[str]]) -> Totals:
    """The same sums by a plain loop over the file."""
    carrier, delay = columns.index("carrier"), columns.index("arr_delay")
    totals: Totals = {}
    for row in rows:
        totals.setdefault(row[carrier], CarrierTotals()).add(row[delay])
    return totals


class _Member:
    """One member of the group: adds up what its share of the queues brings."""

    def __init__(
        self, delay_column: int, seen: set[str], arrived: trio.Event, expected: int
    ) -> None:
        self.consumed = 0
        self.totals: Totals = {}
        self._delay_column = delay_column
        self._seen = seen
        self._arrived = arrived
        self._expected = expected

    async def on_message(self, message: ReceivedMessage) -> None:
        self.consumed += 1
        if message.message_id in self._seen:
            return
        self._seen.add(message.message_id)
        row = next(csv.reader([message.body.decode("utf-8")]))
        assert message.tags is not None
        self.totals.setdefault(message.tags, CarrierTotals()).add(row[self._delay_column])
        if len(self._seen) == self._expected:
            self._arrived.set()


def _merge(members: list[_Member]) -> Totals:
    merged: Totals = {}
    for member in members:
        for carrier, totals in member.totals.items():
            into = merged.setdefault(carrier, CarrierTotals())
            into.flights += totals.flights
            into.delays += totals.delays
            into.delay_sum += totals.delay_sum
    return merged


def _encode(row: list[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(row)
    return line.getvalue().encode("utf-8")


async def _publish(
    producer: Producer, topic: str, columns: list[str], rows: list[list[str]]
) -> None:
    carrier, tail = columns.index("carrier"), columns.index("tailnum")
    with progress("published", len(rows)) as advance:
        for number, row in enumerate(rows, 1):
            message = Message(topic, _encode(row), tags=row[carrier], keys=[row[tail]])
            while True:
                try:
                    producer.submit(message, key=row[tail])
                    break
                except TooManyRequestsError:
                    await producer.flush()
            if number % 256 == 0:
                await trio.lowlevel.checkpoint()
                advance(number)
        await producer.flush()
        advance(len(rows))


async def _wait_consumed(seen: set[str], expected: int, arrived: trio.Event) -> None:
    with progress("consumed ", expected) as advance:
        before, since = -1, trio.current_time()
        while not arrived.is_set():
            with trio.move_on_after(0.2):
                await arrived.wait()
            advance(len(seen))
            if len(seen) != before:
                before, since = len(seen), trio.current_time()
            elif trio.current_time() - since > PATIENCE:
                return


async def _wait_shared(consumers: list[PushConsumer], topic: str) -> None:
    """Until each member owns queues of the topic and none is owned twice."""
    while True:
        owned = [
            [queue for queue in consumer.statistics().queues if queue.topic == topic]
            for consumer in consumers
        ]
        if all(owned) and sum(map(len, owned)) == QUEUES:
            return
        await trio.sleep(0.02)


@attrs.define
class Outcome:
    """What one run measured."""

    totals: Totals
    consumed_by: list[int]
    distinct: int
    publish_seconds: float
    total_seconds: float


async def _job(columns: list[str], rows: list[list[str]], namesrv: str | None) -> Outcome:
    topic = "flights" if namesrv is None else f"flights-{time.time_ns()}"
    seen: set[str] = set()
    arrived = trio.Event()
    members = [_Member(columns.index("arr_delay"), seen, arrived, len(rows)) for _ in range(2)]
    async with AsyncExitStack() as stack:
        source: str | EmbeddedBroker = (
            namesrv if namesrv is not None else await stack.enter_async_context(EmbeddedBroker())
        )
        producer = await stack.enter_async_context(
            Producer("flight-board", namesrv=source, send_timeout=PATIENCE)
        )
        await Admin(client=producer.client).topics.create(topic, queues=QUEUES)
        consumers = [
            await stack.enter_async_context(
                PushConsumer(
                    GROUP if namesrv is None else f"{GROUP}-{topic}",
                    namesrv=source,
                    subscriptions={topic: "*"},
                    listener=member.on_message,
                    consume_from=ConsumeFrom.FIRST_OFFSET,
                )
            )
            for member in members
        ]
        with trio.fail_after(PATIENCE):
            await _wait_shared(consumers, topic)
        began = trio.current_time()
        await _publish(producer, topic, columns, rows)
        published = trio.current_time()
        if rows:
            await _wait_consumed(seen, len(rows), arrived)
        ended = trio.current_time()
    return Outcome(
        _merge(members),
        [member.consumed for member in members],
        len(seen),
        published - began,
        ended - began,
    )


def _mean(totals: CarrierTotals) -> str:
    return "-" if totals.mean_delay is None else f"{totals.mean_delay:.3f}"


def _print_table(found: Totals) -> None:
    print(f"{'carrier':<8}{'flights':>9}{'mean arrival delay (min)':>26}{'without delay':>15}")
    for carrier, totals in sorted(found.items(), key=lambda item: -item[1].flights):
        without_delay = totals.flights - totals.delays
        print(f"{carrier:<8}{totals.flights:>9,}{_mean(totals):>26}{without_delay:>15,}")


def _print_json(outcome: Outcome, expected: Totals, count: int) -> int:
    """The findings as one JSON object; the exit code."""
    equal = outcome.totals == expected and outcome.distinct == count
    found: dict[str, object] = {
        "flights": count,
        "lost": count - outcome.distinct,
        "duplicates": sum(outcome.consumed_by) - outcome.distinct,
        "publishSeconds": round(outcome.publish_seconds, 3),
        "seconds": round(outcome.total_seconds, 3),
        "equal": equal,
        "carriers": {
            carrier: {
                "flights": totals.flights,
                "meanArrivalDelay": totals.mean_delay,
                "withoutDelay": totals.flights - totals.delays,
            }
            for carrier, totals in sorted(outcome.totals.items())
        },
    }
    print(json.dumps(found))
    return int(not equal)


def run_demo(file: str | None = None, namesrv: str | None = None, *, as_json: bool = False) -> int:
    """Run the demo and print its findings.

    0 when they equal the direct computation, else 1.
    """
    started = time.perf_counter()
    columns, rows = _rows(file)
    expected = direct_totals(columns, rows)
    outcome = trio.run(_job, columns, rows, namesrv)
    if as_json:
        return _print_json(outcome, expected, len(rows))
    _print_table(outcome.totals)
    count = len(rows)
    duplicates = sum(outcome.consumed_by) - outcome.distinct
    print(
        f"\npublished {count:,} flights in {outcome.publish_seconds:.2f} s "
        f"({count / max(outcome.publish_seconds, 1e-9):,.0f}/s)"
    )
    print(
        f"consumed by two members ({' + '.join(f'{part:,}' for part in outcome.consumed_by)}), "
        f"all within {outcome.total_seconds:.2f} s"
    )
    print(
        f"lost {count - outcome.distinct:,}, duplicates {duplicates:,}, everything took "
        f"{time.perf_counter() - started:.2f} s"
    )
    if outcome.totals == expected and outcome.distinct == count:
        print("the sums equal those computed directly from the file")
        return 0
    print("THE SUMS DIFFER from those computed directly from the file:")
    _print_table(expected)
    return 1
