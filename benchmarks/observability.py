"""What metrics of a broker and OpenTelemetry of a client cost.

Processor time of a message with 256 sends in flight over TCP, client and broker
together, in one process and one thread: so nothing but what is measured differs between
two sides, and what else the machine does changes neither how many messages arrive
together nor where the code lies. Sides take turns of some milliseconds, each second
time in the other order, so that both have the same neighbours; a time is what the
cheapest twentieth of its turns cost at most, a cost the median of the ratios of
neighbours, with its standard error. Beside it what OpenTelemetry's SDK takes by itself
where a program makes a bare span with the same attributes for each send. And a scrape
of a broker with 10,000 queues: how long it takes, and how long others wait at most.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal

import trio

from benchmarks.sending import BODY, in_flight
from rocketmq_sdk import Admin, EmbeddedBroker, Message, Producer
from rocketmq_sdk.broker_embedded.metrics.exporter import Exporter
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.cli.garbage import short_collections
from rocketmq_sdk.model.enums import ConsumeType, MessageModel
from rocketmq_sdk.protocol.bodies.topics import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.harness import Report
    from rocketmq_sdk.producer.gathered import AccumulatedHandle
    from rocketmq_sdk.producer.handle import SendHandle

SLICES: Final = 150
PAIRS: Final = 600
ANYWHERE: Final[dict[str, Any]] = {"listen": "127.0.0.1:0", "namesrv_listen": "127.0.0.1:0"}
_MESSAGES: Final = 512
_TOPICS: Final = 100
_QUEUES: Final = 100
_SCRAPES: Final = 10
_HOST: Final = b"\x7f\x00\x00\x01\x00\x00\x00\x00"


async def _of_brokers(directory: str, report: Report, messages: int) -> None:
    async with (
        EmbeddedBroker(Path(directory, "plain"), **ANYWHERE) as plain,
        EmbeddedBroker(Path(directory, "measured"), metrics=0, **ANYWHERE) as measured,
        Producer("plain", namesrv=plain.namesrv_address) as first,
        Producer("measured", namesrv=measured.namesrv_address) as second,
        short_collections(),
    ):
        producers = (first, second)
        for producer in producers:
            await Admin(client=producer.client).topics.create("cost", queues=4)
            await in_flight(producer, "cost", 16 * messages, 256)

        async def spent(side: int) -> float:
            began = time.process_time()
            await in_flight(producers[side], "cost", messages, 256)
            return (time.process_time() - began) / messages * 1e6

        costs = await _in_turns(spent, PAIRS)
    report.add("client and broker, 256 in flight", "us", _cheapest(costs[0]))
    report.add("the same with metrics", "us", _cheapest(costs[1]))
    _add_cost(report, "metrics", costs)


Costs = tuple[list[float], list[float]]


async def _in_turns(measure: Callable[[int], Awaitable[float]], pairs: int) -> Costs:
    """What two sides cost that take turns."""
    costs: Costs = ([], [])
    for number in range(pairs):
        for side in (0, 1) if number % 2 else (1, 0):
            costs[side].append(await measure(side))
    return costs


def _add_cost(report: Report, name: str, costs: Costs) -> None:
    """By how much the second side is dearer than the first one."""
    ratios = [second / first for first, second in zip(*costs, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    # That of a median, as if the ratios were distributed normally.
    error = 1.2533 * (high - low) / 1.349 / len(ratios) ** 0.5
    report.add(f"cost of {name}", "%", (middle - 1) * 100)
    report.add(f"standard error of the cost of {name}", "%", error * 100)


def _cheapest(costs: list[float]) -> float:
    return statistics.quantiles(costs, n=20)[0]


def _telemetry(part: float | None) -> Any:
    """A provider of OpenTelemetry's SDK that records a part of all traces, or None."""
    if part is None:
        return None
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    class Nowhere(SpanExporter):
        def export(self, _spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(part)))
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    return provider


async def _of_clients(directory: str, report: Report, messages: int) -> None:
    from rocketmq_sdk import otel

    kinds: dict[str, tuple[float | None, float, Literal["batch", "message"]]] = {
        "API alone": (None, 1.0, "batch"),
        "1 % by the ratio": (1.0, 0.01, "batch"),
        "1 % by the SDK's sampler": (0.01, 1.0, "batch"),
        "all": (1.0, 1.0, "batch"),
        "1 % by the ratio, a span for each message": (1.0, 0.01, "message"),
        "1 % by the SDK's sampler, a span for each message": (0.01, 1.0, "message"),
        "all, a span for each message": (1.0, 1.0, "message"),
    }
    async with (
        EmbeddedBroker(Path(directory, "traced"), **ANYWHERE) as broker,
        Producer("plain", namesrv=broker.namesrv_address) as plain,
        short_collections(),
    ):
        await Admin(client=plain.client).topics.create("cost", queues=4)

        async def by_plain(each: Callable[[], None] = _nothing) -> None:
            await _in_flight(plain, messages, each)

        for recorded in (0.01, 1.0):
            bare = partial(by_plain, _bare_span(recorded))
            costs = await _in_turns(_processor(messages, by_plain, bare), SLICES)
            _add_cost(report, f"a bare span of the SDK, {recorded:.0%} recorded", costs)
        for number, (name, (part, ratio, spans)) in enumerate(kinds.items()):
            uninstall = otel.instrument(tracer_provider=_telemetry(part), ratio=ratio, spans=spans)
            observed = Producer(f"observed{number}", namesrv=broker.namesrv_address)
            uninstall()
            async with observed:
                await in_flight(observed, "cost", 8 * messages, 256)
                by_observed = partial(_in_flight, observed, messages, _nothing)
                measure = _processor(messages, by_plain, by_observed)
                costs = await _in_turns(measure, SLICES)
            _add_cost(report, f"OpenTelemetry, {name}", costs)


def _processor(
    messages: int, *sides: Callable[[], Awaitable[None]]
) -> Callable[[int], Awaitable[float]]:
    """Measures what a message costs, by side."""

    async def spent(side: int) -> float:
        began = time.process_time()
        await sides[side]()
        return (time.process_time() - began) / messages * 1e6

    return spent


def _nothing() -> None:
    pass


async def _in_flight(producer: Producer, count: int, each: Callable[[], None]) -> None:
    """`in_flight` with something to do before each send."""
    handles: deque[SendHandle | AccumulatedHandle] = deque()
    for _ in range(count):
        each()
        handles.append(producer.submit(Message("cost", BODY)))
        if len(handles) >= 256:
            await handles.popleft()
            while handles and handles[0].done:
                handles.popleft()
    for handle in handles:
        await handle


def _bare_span(part: float) -> Callable[[], None]:
    """What begins and ends a span with the attributes of a send."""
    from opentelemetry.trace import SpanKind

    tracer = _telemetry(part).get_tracer("floor")
    before: dict[str, Any] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "127.0.0.1@12345#1234567890",
        "messaging.destination.name": "cost",
        "messaging.message.body.size": 100,
        "messaging.rocketmq.message.type": "normal",
        "messaging.message.id": "0" * 32,
    }
    after = {
        "messaging.destination.partition.id": "1",
        "server.address": "127.0.0.1",
        "server.port": 10911,
    }

    def span() -> None:
        made = tracer.start_span("send cost", kind=SpanKind.PRODUCER, attributes=before)
        made.set_attributes(after)
        made.end()

    return span


async def _filled(broker: EmbeddedBroker) -> tuple[float, float]:
    """`_scrape` while a group is behind in half of 10,000 queues."""
    from rocketmq_sdk.broker_embedded.members.client_channel import ClientChannel
    from rocketmq_sdk.codes import LanguageCode
    from rocketmq_sdk.model.enums import ConsumeFrom
    from rocketmq_sdk.protocol.bodies.members import ConsumerData
    from rocketmq_sdk.protocol.subscription import build_subscription

    core, names = broker.core, [f"topic{number}" for number in range(_TOPICS)]
    for name in names:
        core.topics.update(TopicConfig(name, _QUEUES, _QUEUES, 6))
        for queue_id in range(_QUEUES):
            for _ in range(2):
                message = MessageToStore(name, queue_id, b"x" * 100, "", born_host=_HOST)
                broker.store.put(message)
            core.offsets.commit("group", name, queue_id, 0 if queue_id % 2 else 2)
            core.offsets.note_pulled("group", name, queue_id, 1)
    data = ConsumerData(
        "group",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFrom.LAST_OFFSET,
        tuple(build_subscription(name, "*", sub_version=1) for name in names),
    )
    core.groups.get("group")
    producer = Producer("any", namesrv=broker)
    async with producer:
        await producer.warm_up(names[0])
        channel = next(iter(broker.server.channels.values()))
        now, now_ms = core.clock.monotonic(), core.clock.now_ms()
        client = ClientChannel(channel, "me", LanguageCode.PYTHON, 493, now, now_ms)
        broker.parts.members.consumers.register(channel, client, data, notifies=False)
        return await _scrape(broker)


class _Turns(trio.abc.Instrument):
    """The processor time of the longest turn of the loop."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._began: float | None = None

    def after_io_wait(self, _timeout: float) -> None:
        self._began = time.thread_time()

    def before_io_wait(self, _timeout: float) -> None:
        if self._began is not None:
            self.longest = max(self.longest, time.thread_time() - self._began)


async def _scrape(broker: EmbeddedBroker) -> tuple[float, float]:
    """Milliseconds of processor time that a scrape takes, and its longest turn."""
    exporter = broker._exporter
    assert isinstance(exporter, Exporter)
    took: list[float] = []
    longest: list[float] = []
    for _ in range(_SCRAPES):
        turns, before = _Turns(), time.thread_time()
        trio.lowlevel.add_instrument(turns)
        await exporter.metrics()
        took.append(time.thread_time() - before)
        trio.lowlevel.remove_instrument(turns)
        longest.append(turns.longest)
    return min(took) * 1000, min(longest) * 1000


async def _of_a_scrape(report: Report) -> None:
    async with EmbeddedBroker(metrics=0, memory_limit=1 << 30) as broker:
        took, longest = await _filled(broker)
    report.add("scrape of 10,000 queues, processor time", "ms", took)
    report.add("longest turn of the loop meanwhile", "ms", longest)


def run(report: Report, scale: float) -> None:
    """One round."""
    messages = max(256, int(_MESSAGES * scale))
    trio.run(_of_a_scrape, report)
    with TemporaryDirectory(prefix="rocketmq-bench-") as directory:
        trio.run(_of_brokers, directory, report, messages)
        trio.run(_of_clients, directory, report, messages)
