"""What metrics of a broker and OpenTelemetry of a client cost.

Processor time of a message with 256 sends in flight, over TCP: of two brokers, one of
them with metrics; of two producers, one of them observed. They take turns, each second
time in the other order; a time is the least of some slices, a cost the median of the
ratios of neighbours, so what else runs hardly matters. Beside it what OpenTelemetry's
SDK takes by itself: a span with as many attributes that begins and ends. And a scrape
of a broker with 10,000 queues: how long it takes, and how long others wait at most.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import trio

from benchmarks.processor import processor_seconds
from benchmarks.sending import in_flight
from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, EmbeddedBroker, Producer
from rocketmq_sdk.broker_embedded.metrics.exporter import Exporter
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.model.enums import ConsumeType, MessageModel
from rocketmq_sdk.protocol.bodies.topics import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.harness import Report
    from benchmarks.workers import Broker

SLICES: Final = 24
PAIRS: Final = 60
_MESSAGES: Final = 2000
_TOPICS: Final = 100
_QUEUES: Final = 100
_SCRAPES: Final = 10
_HOST: Final = b"\x7f\x00\x00\x01\x00\x00\x00\x00"


async def _of_brokers(plain: Broker, measured: Broker, report: Report, messages: int) -> None:
    async with (
        Producer("plain", namesrv=plain) as first,
        Producer("measured", namesrv=measured) as second,
    ):
        sides = ((first, plain), (second, measured))
        for producer, _broker in sides:
            await Admin(client=producer.client).topics.create("cost", queues=4)
            await in_flight(producer, "cost", 2 * messages, 256)

        async def served(side: int) -> float:
            producer, broker = sides[side]
            before = processor_seconds(broker.process)
            await in_flight(producer, "cost", messages, 256)
            return (processor_seconds(broker.process) - before) / messages * 1e6

        without, with_metrics, cost = await _in_turns(served, PAIRS)
    report.add("broker without metrics, 256 in flight", "us", without)
    report.add("broker with metrics, 256 in flight", "us", with_metrics)
    report.add("cost of metrics", "%", cost)


async def _in_turns(
    measure: Callable[[int], Awaitable[float]], pairs: int
) -> tuple[float, float, float]:
    """Of what takes turns the least of each, and by how much percent the second is
    dearer.
    """
    costs: tuple[list[float], list[float]] = ([], [])
    for number in range(pairs):
        for side in (0, 1) if number % 2 else (1, 0):
            costs[side].append(await measure(side))
    ratio = statistics.median(second / first for first, second in zip(*costs, strict=True))
    return min(costs[0]), min(costs[1]), (ratio - 1) * 100


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


async def _of_clients(broker: Broker, report: Report, messages: int) -> None:
    from rocketmq_sdk import otel

    kinds = {
        "API alone": (None, 1.0),
        "1 % by the ratio": (1.0, 0.01),
        "1 % by the SDK's sampler": (0.01, 1.0),
        "all": (1.0, 1.0),
    }
    async with Producer("plain", namesrv=broker) as plain:
        await Admin(client=plain.client).topics.create("cost", queues=4)
        for number, (name, (part, ratio)) in enumerate(kinds.items()):
            uninstall = otel.instrument(tracer_provider=_telemetry(part), ratio=ratio)
            observed = Producer(f"observed{number}", namesrv=broker)
            uninstall()
            async with observed:
                await in_flight(observed, "cost", messages, 256)

                async def spent(side: int, both: tuple[Producer, ...] = (plain, observed)) -> float:
                    began = time.process_time() + processor_seconds(broker.process)
                    await in_flight(both[side], "cost", messages, 256)
                    ended = time.process_time() + processor_seconds(broker.process)
                    return (ended - began) / messages * 1e6

                _without, with_spans, cost = await _in_turns(spent, SLICES)
            report.add(f"client and broker, {name}", "us", with_spans)
            report.add(f"cost of OpenTelemetry, {name}", "%", cost)


def _of_the_sdk(report: Report, count: int) -> None:
    """A span of the SDK as a send has it: nobody sends anything."""
    from opentelemetry.trace import SpanKind

    tracer = _telemetry(1.0).get_tracer("floor")
    attributes: dict[str, Any] = {f"messaging.attribute.{number}": "value" for number in range(9)}
    took = []
    for _ in range(SLICES):
        began = time.process_time()
        for _ in range(count):
            span = tracer.start_span("send cost", kind=SpanKind.PRODUCER, attributes=attributes)
            span.end()
        took.append((time.process_time() - began) / count * 1e6)
    report.add("a span of the SDK alone", "us", min(took))


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
    messages = max(500, int(_MESSAGES * scale))
    trio.run(_of_a_scrape, report)
    _of_the_sdk(report, messages)
    with broker_process() as plain, broker_process("--metrics", "127.0.0.1:0") as measured:
        trio.run(_of_brokers, plain, measured, report, messages)
        trio.run(_of_clients, plain, report, messages)
