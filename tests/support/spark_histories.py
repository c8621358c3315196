"""A cluster as a model, and a stream that is planned and read against it.

The planner, the puller and everything between them are the real ones; what brokers and
the name server answer is made here. Each message has a number, so that afterwards it
can be said of each whether it was read once, was told to be lost, or neither.
"""

from __future__ import annotations

import json
import logging
import random
import re
from collections import defaultdict
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import trio

from rocketmq_sdk.client.api.pull import PulledRecords
from rocketmq_sdk.client.namespace import Namespace
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import ConnectError, TopicNotFoundError
from rocketmq_sdk.model.enums import PullStatus
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.route import MASTER_ID
from rocketmq_sdk.protocol.message_codec import encode_record
from rocketmq_sdk.spark.cluster import bridge, view
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.retry import UnreachableError
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.plan.loss import DataLossError, GoneError
from rocketmq_sdk.spark.plan.offsets import BatchEnd, QueueKey, from_json, to_json
from rocketmq_sdk.spark.plan.ranges import plan, ranges_between
from rocketmq_sdk.spark.read import pulls
from rocketmq_sdk.spark.read.planner import StreamPlanner
from rocketmq_sdk.spark.read.pulls import PullPlan, joined, pull_ranges
from rocketmq_sdk.spark.rows.records import Record, read_records, record_starts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    import pytest

    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.spark.plan.ranges import Task
    from rocketmq_sdk.spark.read.pulls import Piece

TOPIC, BROKERS, QUEUES = "T", ("a", "b"), 3
_HOST = bytes(8)


@attrs.define
class Queue:
    """What a broker stores in one queue; `begin` is the first offset still there."""

    numbers: list[int] = attrs.field(factory=list)
    begin: int = 0

    @property
    def end(self) -> int:
        return len(self.numbers)


@attrs.define
class Cluster:
    """Two brokers with a topic; the one called a has a slave."""

    queues: dict[QueueKey, Queue]
    readable: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(BROKERS, QUEUES))
    made: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(BROKERS, QUEUES))
    away: set[str] = attrs.field(factory=set)
    silent: set[str] = attrs.field(factory=set)
    unrouted: bool = False
    lag: int = 0
    """How many of the newest messages of each queue the slave does not have."""
    most: int = 1000
    """The most messages of one answer; a few make pulls leave together."""
    lots: random.Random = attrs.field(factory=random.Random)

    def is_registered(self, broker: str) -> bool:
        return broker not in self.away or broker == "a"

    def ids(self, broker: str) -> dict[int, str]:
        """The addresses of a broker at the name server, by id."""
        found = {} if broker in self.away else {MASTER_ID: f"{broker}:master"}
        return {**found, 1: "a:slave"} if broker == "a" else found

    def bounds(self, queue: QueueKey, address: str) -> tuple[int, int]:
        stored = self.queues[queue]
        lag = self.lag if address.endswith("slave") else 0
        return stored.begin, max(stored.begin, stored.end - lag)


class Peer:
    """What a client knows of the cluster; a new one knows nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, dict[int, str]] = {}
        self.namespace = Namespace("")
        self.brokers = SimpleNamespace(subscribe_address=self._replica)

    def broker_address(self, broker: str) -> str | None:
        return self._known.get(broker, {}).get(MASTER_ID)

    def _replica(self, broker: str) -> Any:
        known = self._known.get(broker)
        return SimpleNamespace(address=known[min(known)]) if known else None

    async def route(self, topic: str, *, refresh: bool = False) -> Any:
        await trio.sleep(0.001)
        cluster = self._cluster
        named = [broker for broker in BROKERS if cluster.is_registered(broker)]
        if cluster.unrouted or not named:
            raise TopicNotFoundError(ResponseCode.TOPIC_NOT_EXIST, "no route")
        self._known = {broker: cluster.ids(broker) for broker in named}
        queues = [
            MessageQueue(topic, broker, number)
            for broker in named
            for number in range(cluster.readable[broker])
        ]
        return SimpleNamespace(subscribe_queues=lambda _topic: queues)


@asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> AsyncIterator[list[Peer]]:
    """The bridge lends the last of some peers; a cluster answers its requests."""
    peers = [Peer(cluster)]

    @asynccontextmanager
    async def lent(_connection: ClusterAccess) -> AsyncIterator[Peer]:
        yield peers[-1]

    async def reach(address: str) -> str:
        broker, role = address.split(":")
        if role == "master" and broker in cluster.silent:
            await trio.sleep(3)
            raise ConnectError("no answer")
        await trio.sleep(0.001)
        if role == "master" and broker in cluster.away:
            raise ConnectError("refused")
        return broker

    async def topic_stats(_client: Peer, address: str, topic: str) -> Any:
        broker = await reach(address)
        table = {}
        for number in range(cluster.made[broker]):
            least, most = cluster.bounds(QueueKey(topic, broker, number), address)
            place = SimpleNamespace(min_offset=least, max_offset=most)
            table[MessageQueue(topic, broker, number)] = place
        return SimpleNamespace(offset_table=table)

    async def cluster_info(_client: Peer) -> Any:
        await trio.sleep(0.001)
        table = {
            broker: SimpleNamespace(broker_addrs=cluster.ids(broker))
            for broker in BROKERS
            if cluster.is_registered(broker)
        }
        return SimpleNamespace(broker_addr_table=table)

    async def pull_records(_client: Peer, address: str, header: Any, _time: float) -> PulledRecords:
        broker = await reach(address)
        queue, offset = QueueKey(header.topic, broker, header.queue_id), header.queue_offset
        least, most = cluster.bounds(queue, address)
        if least <= offset < most:
            end = min(offset + min(header.max_msg_nums, cluster.most), most)
            numbers = cluster.queues[queue].numbers
            body = b"".join(_record(queue, at, numbers[at]) for at in range(offset, end))
            return PulledRecords(PullStatus.FOUND, end, least, most, 0, body)
        if offset == most:
            return PulledRecords(PullStatus.NO_NEW_MESSAGE, offset, least, most, 0, b"")
        further = least if offset < least else most
        return PulledRecords(PullStatus.OFFSET_ILLEGAL, further, least, most, 0, b"")

    class Asked:
        """Pulls that leave together: some have no answer, or bring less than others."""

        def __init__(self, _client: Peer, sample: Command, _fields: Sequence[str]) -> None:
            self._fields = sample.ext_fields

        async def ask(
            self, address: str, values: Sequence[tuple[str, str]], timeout: float
        ) -> list[SimpleNamespace | None]:
            return [await self._answer(address, *texts, timeout) for texts in values]

        async def _answer(
            self, address: str, offset: str, count: str, timeout: float
        ) -> SimpleNamespace | None:
            kind = cluster.lots.random()
            header = SimpleNamespace(
                topic=self._fields["topic"],
                queue_id=int(self._fields["queueId"]),
                queue_offset=int(offset),
                max_msg_nums=1 if kind > 0.9 else int(count),
            )
            try:
                found = await pull_records(peers[-1], address, header, timeout)
            except ConnectError:
                return None
            code = 0 if found.status is PullStatus.FOUND else ResponseCode.PULL_NOT_FOUND
            return None if kind < 0.1 else SimpleNamespace(code=code, found=found)

    monkeypatch.setattr(pulls, "Together", Asked)
    monkeypatch.setattr(pulls, "pulled_records", lambda answer, _address, _header: answer.found)
    monkeypatch.setattr(bridge, "client", lent)
    monkeypatch.setattr(view, "topic_stats", topic_stats)
    monkeypatch.setattr(view, "cluster_info", cluster_info)
    monkeypatch.setattr(pulls, "pull_records", pull_records)
    yield peers


def _record(queue: QueueKey, offset: int, number: int) -> bytes:
    return encode_record(
        queue.topic.encode(),
        b"%d" % number,
        b"",
        queue_id=queue.queue_id,
        flag=0,
        queue_offset=offset,
        physical_offset=number,
        sys_flag=0,
        born_timestamp=0,
        born_host=_HOST,
        store_timestamp=0,
        store_host=_HOST,
        reconsume_times=0,
        prepared_offset=0,
    )


class Losses(logging.Handler):
    """What the log says is lost."""

    _FOUND = re.compile(
        r"the queue (\S+)/(\S+)/(\d+) should be read (from|up to) offset (\d+)(?: on)?, but .*?"
        r"(?:begin|ends) at (\d+)"
    )
    _LATE = re.compile(r"(\w+)/(\w+)/(\d+) from offset (\d+)")

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[tuple[QueueKey, str, int, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        found = self._FOUND.search(record.getMessage())
        if found is not None:
            topic, broker, number, kind, expected, there = found.groups()
            queue = QueueKey(topic, broker, int(number))
            if kind == "up to" and record.module == "planner":
                kind = "made again"
            self.told.append((queue, kind, int(expected), int(there)))
        for topic, broker, number, there in self._LATE.findall(record.getMessage()):
            self.told.append((QueueKey(topic, broker, int(number)), "from", 0, int(there)))


class History:
    """One random history: what happens to the cluster, and the query that reads it."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, *, losses: bool) -> None:
        self.lots = random.Random(seed)
        self._monkeypatch = monkeypatch
        self._losses = losses
        keys = [QueueKey(TOPIC, broker, number) for broker in BROKERS for number in range(QUEUES)]
        self.cluster = Cluster({key: Queue() for key in keys}, lots=self.lots)
        self.options = {
            "namesrvAddr": "unused:1",
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "failOnDataLoss": str(not losses),
            "retryTimeout": "20s",
            "onBrokerAway": self.lots.choice(["wait", "skip"]),
        }
        if self.lots.random() < 0.5:
            self.options["maxOffsetsPerTrigger"] = str(self.lots.randrange(5, 60))
        self.settings = parse(self.options, Use.STREAM)
        self.sent = 0
        self.read: defaultdict[int, int] = defaultdict(int)
        self.lost: set[int] = set()
        self.start: dict[QueueKey, int] | None = None
        self.ahead: dict[str, Any] | None = None
        """The end of a batch that is written down and not done."""
        self._former: defaultdict[QueueKey, list[int]] = defaultdict(list)
        """Messages of queues that were made again."""
        self._held: dict[QueueKey, int] = {}
        """Where queues that were made again may not end yet, or nobody could tell."""
        self._handled = 0

    # --- what happens

    def append(self, most: int = 40) -> None:
        """Send messages to some queue."""
        queue = self.lots.choice(list(self.cluster.queues))
        if queue.broker in self.cluster.away or queue.queue_id >= self.cluster.made[queue.broker]:
            return
        for _ in range(self.lots.randrange(1, most)):
            stored = self.cluster.queues[queue]
            if queue in self._held and stored.end + 1 >= self._held[queue]:
                return
            stored.numbers.append(self.sent)
            self.sent += 1

    def happen(self) -> None:
        """One thing happens to the cluster."""
        lots, cluster = self.lots, self.cluster
        broker = lots.choice(BROKERS)
        usual: list[Callable[[], object]] = [self.append] * 8 + [
            lambda: cluster.away.add(broker),
            lambda: cluster.away.discard(broker),
            lambda: cluster.silent.add(broker),
            lambda: cluster.silent.clear(),
            lambda: setattr(cluster, "lag", lots.randrange(30)),
            lambda: setattr(cluster, "most", lots.choice([1, 3, 3, 1000])),
            lambda: cluster.readable.update({broker: lots.randrange(1, QUEUES + 1)}),
            lambda: self._make_queues(broker),
            lambda: setattr(cluster, "unrouted", True),
            lambda: setattr(cluster, "unrouted", False),
        ]
        if self._losses:
            usual += [self._expire, self._make_again]
        lots.choice(usual)()

    def _make_queues(self, broker: str) -> None:
        """Fewer or more queues in all: those beyond are told nothing of."""
        made = self.lots.randrange(1, QUEUES + 1)
        self.cluster.made[broker] = made
        self.cluster.readable[broker] = min(self.cluster.readable[broker], made)

    def _expire(self) -> None:
        queue = self.lots.choice(list(self.cluster.queues.values()))
        queue.begin = self.lots.randint(queue.begin, queue.end)
        if self.start is None:  # a query that has not begun misses nothing
            self.lost |= set(queue.numbers[: queue.begin])

    def _make_again(self) -> None:
        """The topic is deleted and made again at a broker.

        Not while a batch or the end of a run is planned, as nobody can tell then what
        offsets mean.
        """
        broker = self.lots.choice(BROKERS)
        if self.ahead is not None or self._frozen or broker in self.cluster.away:
            return
        for queue, stored in self.cluster.queues.items():
            if queue.broker == broker:
                reached = max((self.start or {}).get(queue, 0), self._held.get(queue, 0))
                self.cluster.queues[queue] = Queue()
                if reached:
                    self._former[queue] += stored.numbers
                    self._held[queue] = reached
                else:  # offset 0 is what the query waits for, as before
                    self.lost |= set(stored.numbers)

    # --- the query

    def planner(self) -> StreamPlanner:
        """A new one, on a machine with any number of cores."""
        return StreamPlanner(self.settings, self.lots.choice([1, 2, 16]))

    async def trigger(self, plans: StreamPlanner, *, calm: bool = False) -> bool:
        """One batch, which may die on the way; whether there was anything to do."""
        lots = self.lots
        if self._begins:
            self._begins, self._frozen = False, lots.random() < 0.3
            if self._frozen:
                await plans.freeze()
        if self.start is None:
            self.start = await plans.initial()
        if self.ahead is None:
            once = not self._frozen and lots.random() < 0.2
            end = await plans.next_end(self.start, everything=once)
            if end is None and self._frozen:
                raise _Ended
            if end is None:
                return False
            self.ahead = json.loads(json.dumps(end.to_json()))
            if not calm and lots.random() < 0.2:
                raise _Died
        tasks = self._tasks(plans)
        assert self._tasks(self.planner()) == tasks or not self._was_started, "planned otherwise"
        if not calm and lots.random() < 0.3:
            self.happen()
        rows: list[int] = []
        for task in tasks:
            rows += await self._rows(task)
            if not calm and lots.random() < 0.1:
                raise _Died
        for number in rows:
            self.read[number] += 1
        self.start = from_json(self.ahead)
        self.start = from_json(to_json(self.start))
        self.ahead, self._was_started = None, True
        return True

    _was_started = False
    _begins = True
    _frozen = False
    """Whether the run ends where the queues ended when it began (`AvailableNow`)."""

    def _tasks(self, plans: StreamPlanner) -> list[Task]:
        assert self.start is not None
        end = BatchEnd.from_json(self.ahead, source="the end")
        ranges = ranges_between(plans.begins(self.start, end), end.offsets)
        assert end.tasks is not None
        return plan(ranges, end.tasks)

    async def _rows(self, task: Task) -> list[int]:
        found: list[int] = []

        async def put(pieces: Sequence[Piece]) -> None:
            for piece in joined(pieces):
                rows = [
                    Record(*row)  # type: ignore[arg-type]
                    for row in read_records(piece.records, record_starts(piece.records))
                ]
                found.extend(
                    int(row.body) for row in rows if piece.begin <= row.queue_offset < piece.end
                )

        await pull_ranges(put, PullPlan.of(self.settings, ClusterAccess("unused:1")), task)
        return found

    # --- what is told

    def hear(self, losses: Losses) -> None:
        """Note which messages the log gives up."""
        for queue, kind, expected, there in losses.told[self._handled :]:
            stored = self.cluster.queues[queue].numbers
            if kind == "from":
                self.lost |= set(stored[expected:there])
            else:
                self.lost |= set(self._former[queue])
            if kind == "made again":  # a task that finds out cannot tell the planner
                self._held.pop(queue, None)
        self._handled = len(losses.told)

    def wrong(self) -> list[str]:
        """What was read twice, or neither read nor told."""
        found = [f"{number} was read {n} times" for number, n in self.read.items() if n > 1]
        return found + [
            f"{number} is missing"
            for number in range(self.sent)
            if not self.read[number] and number not in self.lost
        ]

    async def run(self, steps: int) -> list[str]:
        """Live through it, then let all be well until nothing is left to read."""
        losses = Losses()
        logger = logging.getLogger("rocketmq_sdk.spark")
        logger.addHandler(losses)
        try:
            async with served(self._monkeypatch, self.cluster) as peers:
                plans = self.planner()
                for step in range(steps + 60):
                    calm = step >= steps
                    if calm:
                        self._be_well()
                    else:
                        self.happen()
                    await trio.sleep(self.lots.choice([0, 0.1, 1, 6]) if not calm else 12)
                    try:
                        await self.trigger(plans, calm=calm)
                    except (_Died, _Ended, UnreachableError, view.NoSuchTopicError):
                        peers.append(Peer(self.cluster))
                        plans, self._begins = self.planner(), True
                    except (DataLossError, GoneError) as error:
                        raise AssertionError(f"nothing was lost: {error}") from error
                    self.hear(losses)
        finally:
            logger.removeHandler(losses)
        return self.wrong()

    def _be_well(self) -> None:
        cluster = self.cluster
        cluster.away.clear()
        cluster.silent.clear()
        cluster.unrouted, cluster.lag = False, 0
        cluster.made = dict.fromkeys(BROKERS, QUEUES)
        cluster.readable = dict.fromkeys(BROKERS, QUEUES)


class _Ended(Exception):  # noqa: N818 - of the run
    """A run with `AvailableNow` has nothing left to do."""


class _Died(Exception):  # noqa: N818 - of the driver
    """The driver dies here."""
