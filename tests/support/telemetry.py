"""What a program's telemetry has seen, held against OpenTelemetry's conventions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import error_attributes, messaging_attributes
from opentelemetry.semconv.attributes import exception_attributes, server_attributes
from opentelemetry.trace import StatusCode

from rocketmq_sdk import otel
from rocketmq_sdk.client import observers

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = {
    value
    for module in (messaging_attributes, error_attributes, server_attributes, exception_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
REQUIRED = {"messaging.system", "messaging.operation.name", "messaging.operation.type"}
OPERATION_TYPES = {each.value for each in messaging_attributes.MessagingOperationTypeValues}


class _Open(SpanProcessor):
    """Counts the spans that have begun and not ended."""

    def __init__(self) -> None:
        self.count = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.count += 1

    def on_end(self, span: ReadableSpan) -> None:
        self.count -= 1


def _of_events(span: ReadableSpan) -> list[Any]:
    return [event.attributes for event in span.events]


class Recorded:
    """What the program's telemetry has seen."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.open = _Open()
        self.provider = TracerProvider()
        self.provider.add_span_processor(self.open)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans that have ended, each checked."""
        found = list(self._exporter.get_finished_spans())
        for span in found:
            attributes = dict(span.attributes or {})
            assert attributes.keys() <= NAMES, attributes.keys() - NAMES
            assert attributes.keys() >= REQUIRED
            assert attributes["messaging.system"] == "rocketmq"
            assert attributes["messaging.operation.type"] in OPERATION_TYPES
            name, topic = (
                attributes["messaging.operation.name"],
                attributes.get("messaging.destination.name"),
            )
            assert span.name == (f"{name} {topic}" if topic else name)
            assert (span.status.status_code is StatusCode.ERROR) == ("error.type" in attributes)
            for each in (*(link.attributes for link in span.links), *_of_events(span)):
                assert (each or {}).keys() <= NAMES
        return found

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Points by the names of metrics: attributes, and value or count."""
        data = self.reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = [
                        (dict(point.attributes or {}), getattr(point, "value", None) or point.count)  # type: ignore[union-attr]
                        for point in metric.data.data_points
                        if getattr(point, "value", 1)
                    ]
        return found


@contextmanager
def recording(**options: Any) -> Iterator[Recorded]:
    """Telemetry of all clients that are made in the block; all spans have to end."""
    found = Recorded()
    uninstall = otel.instrument(
        tracer_provider=found.provider, meter_provider=found.meters, **options
    )
    yield found
    uninstall()
    assert not observers.installed()
    assert not found.open.count, "a span was begun and not ended"


def linked(span: ReadableSpan) -> set[int]:
    """The spans to which it has links."""
    return {link.context.span_id for link in span.links}


def id_of(span: ReadableSpan) -> int:
    """Its id."""
    assert span.context is not None
    return int(span.context.span_id)


def fake_send() -> dict[str, str]:
    """Attributes of a span of the program itself, so that it passes the checks."""
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
    }
