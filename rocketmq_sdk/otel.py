"""OpenTelemetry for clients: spans and metrics, by its API alone.

    from rocketmq_sdk import otel

    otel.instrument()

Producers and consumers that are made from then on have spans for sends, receives,
listener calls, acknowledgements, and the ends and checks of transactions, and metrics
of them. Names and attributes are those of OpenTelemetry's semantic conventions for
messaging. The context of a send travels in the properties of its message, so the span
of a listener belongs to the trace of the send; spans about several messages have links
to all of them. Needs the extra `otel`; without OpenTelemetry's SDK in the program it
does nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from importlib.metadata import version
from random import random
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError(
        f"tracing needs OpenTelemetry ({error}); install rocketmq-trio[otel]"
    ) from error

from rocketmq_sdk.client.observers import Cached, Operation, OperationKind, install
from rocketmq_sdk.clock import wall_nanoseconds
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.properties import TRAN_MSG, decode_properties
from rocketmq_sdk.model.route import split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rocketmq_sdk.client.hooks import ConsumeContext, SendContext
    from rocketmq_sdk.model.message import Message, ReceivedMessage

__all__ = ["instrument"]

SCHEMA: Final = "https://opentelemetry.io/schemas/1.30.0"
"""The conventions that names and attributes follow."""
_NAME: Final = "rocketmq_sdk"
Attributes = dict[str, Any]
Labels = tuple[tuple[str, str], ...]
_NOTHING: Final[Mapping[str, str]] = {}
_DURATIONS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_TYPES: Final = {
    OperationKind.RECEIVE: ("receive", SpanKind.CLIENT),
    OperationKind.ACK: ("settle", SpanKind.CLIENT),
    OperationKind.COMMIT: ("settle", SpanKind.CLIENT),
    OperationKind.ROLLBACK: ("settle", SpanKind.CLIENT),
    OperationKind.CHECK: ("process", SpanKind.CONSUMER),
}
_SENT: Final = "Number of messages producer attempted to send to the broker."
_CONSUMED: Final = "Number of messages that were delivered to the application."
_SPAN: Final = "opentelemetry span"
_BEGAN: Final = "opentelemetry began"
_TOKEN: Final = "opentelemetry token"
_API_OF_SPANS: Final = "opentelemetry.trace"
_API_OF_METRICS: Final = "opentelemetry.metrics"
_PAUSE: Final = 1.0
"""Seconds between two looks for an SDK, which cost more than a count."""
_MOST_ENDS: Final = 4096
_BASE: Final[Attributes] = {"messaging.system": "rocketmq"}


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    ratio: float = 1.0,
) -> Callable[[], None]:
    """Observe all producers and consumers of this process that are made from now on.

    By default with OpenTelemetry's global providers. `ratio` is the part of the sends
    outside of any span that begin a trace (0 to 1), and whose duration is measured; the
    others are counted only, which costs little, while a span that a sampler of the SDK
    drops costs nearly as much as a send. Sends inside a span always belong to its
    trace. Returns a function that ends it for
    clients made later. Raises `ConfigurationError` for a ratio that is none.
    """
    if not 0.0 <= ratio <= 1.0:
        raise ConfigurationError(f"ratio is {ratio!r}; give a number from 0 to 1")
    return install(_Telemetry(tracer_provider, meter_provider, ratio))


def _kind_of(message: Message) -> str:
    if message.sharding_key is not None:
        return "fifo"
    return "delay" if message.is_delayed else "normal"


def _of_message(message: Message) -> Attributes:
    """What the conventions want to know of one message that is sent."""
    found: Attributes = {
        "messaging.message.body.size": len(message.body),
        "messaging.rocketmq.message.type": "normal" if message.is_plain else _kind_of(message),
    }
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = message.keys
    if not message.is_plain:
        if message.sharding_key is not None:
            found["messaging.rocketmq.message.group"] = message.sharding_key
        if message.delay_level:
            found["messaging.rocketmq.message.delay_time_level"] = message.delay_level
        if message.deliver_at_ms is not None:
            found["messaging.rocketmq.message.delivery_timestamp"] = message.deliver_at_ms
    return found


def _of_received(messages: Sequence[ReceivedMessage]) -> Attributes:
    """What they want to know of messages that came."""
    if len(messages) != 1:
        return {"messaging.batch.message_count": len(messages)}
    (message,) = messages
    found: Attributes = {
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.body),
        "messaging.destination.partition.id": str(message.queue_id),
    }
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = message.keys
    if message.properties.get(TRAN_MSG) == "true":
        found["messaging.rocketmq.message.type"] = "transaction"
    return found


def _context_of(properties: Mapping[str, str]) -> contexts.Context | None:
    """The context in which a message was created, if it has one."""
    found = propagate.extract(properties, context=contexts.Context())
    return found if trace.get_current_span(found).get_span_context().is_valid else None


def _links(properties: Iterable[Mapping[str, str]]) -> list[Link]:
    found = (_context_of(each) for each in properties)
    return [
        Link(trace.get_current_span(context).get_span_context())
        for context in found
        if context is not None
    ]


def _error_type(error: BaseException) -> str:
    return type(error).__qualname__


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None and span.is_recording():
        span.set_attribute("error.type", _error_type(error))
        span.set_status(Status(StatusCode.ERROR, str(error) or _error_type(error)))
    span.end()


@attrs.define
class _Open:
    """A push consumer that is open."""

    group: str
    client_id: str
    cached: Cached


class _Telemetry:
    """An `Observer` that makes spans and metrics."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        ratio: float,
    ) -> None:
        self._ratio = ratio
        self._seen = tracer_provider is not None or meter_provider is not None
        self._look_at = -math.inf
        self._of_sends: dict[str, tuple[Attributes, Labels]] = {}
        self._forms: dict[tuple[str, str], Attributes] = {}
        self._ends: dict[tuple[str | None, int], Attributes] = {}
        release = version("rocketmq-trio")
        self._tracer = trace.get_tracer(_NAME, release, tracer_provider, SCHEMA)
        meter = metrics.get_meter(_NAME, release, meter_provider, SCHEMA)
        self._durations = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of messaging operation initiated by a producer or consumer "
            "client.",
            explicit_bucket_boundaries_advisory=_DURATIONS,
        )
        self._processing = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of processing operation.",
            explicit_bucket_boundaries_advisory=_DURATIONS,
        )
        self._sent: Counter[Labels] = Counter()
        self._consumed: Counter[Labels] = Counter()
        for name, counted, text in (
            ("sent", self._sent, _SENT),
            (
                "consumed",
                self._consumed,
                "Number of messages that were delivered to the application.",
            ),
        ):
            meter.create_observable_counter(
                f"messaging.client.{name}.messages",
                [_observe(counted)],
                unit="{message}",
                description=text,
            )
        self._open: dict[tuple[str, str], _Open] = {}
        for place, unit in enumerate(("messages", "bytes")):
            meter.create_observable_gauge(
                f"rocketmq_consumer_cached_{unit}",
                [self._observe_cached(place)],
                unit="{message}" if unit == "messages" else "By",
                description=f"{unit.capitalize()} in process queues that wait for the listener or "
                "are worked on.",
            )

    def _observe_cached(self, place: int) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            for each in list(self._open.values()):
                yield Observation(
                    each.cached.cached()[place],
                    {
                        "messaging.consumer.group.name": each.group,
                        "messaging.client.id": each.client_id,
                    },
                )

        return observe

    def _start(
        self,
        name: str,
        kind: SpanKind,
        topic: str | None,
        attributes: Attributes,
        context: contexts.Context | None = None,
        links: Sequence[Link] = (),
    ) -> Span:
        named = f"{name} {topic}" if topic else name
        if topic:
            attributes["messaging.destination.name"] = topic
        return self._tracer.start_span(named, context, kind, attributes, links or None)

    def _note(
        self, operation: str, began: float, error: BaseException | None, **more: str | None
    ) -> None:
        attributes = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": operation,
            **{name.replace("_", "."): value for name, value in more.items() if value},
        }
        if error is not None:
            attributes["error.type"] = _error_type(error)
        self._durations.record(trio.current_time() - began, attributes)

    # --- sends

    def created(self, message: Message) -> Mapping[str, str]:
        """The context of a message of a batch, in a span of its own."""
        if not self.looks_at_send():
            return _NOTHING
        attributes = {
            **_BASE,
            "messaging.operation.name": "create",
            "messaging.operation.type": "create",
            **_of_message(message),
        }
        span = self._start("create", SpanKind.PRODUCER, message.topic, attributes)
        carrier: dict[str, str] = {}
        if span.get_span_context().is_valid:
            propagate.inject(carrier, trace.set_span_in_context(span))
        span.end()
        return carrier

    def looks_at_send(self) -> bool:
        """Whether a send has a span: inside of one, or by lot.

        Without OpenTelemetry's SDK nobody would see it; one that comes while messages
        are sent is noticed within a second.
        """
        return (
            (self._ratio >= 1.0 or random() < self._ratio) and (self._seen or self._sees_sdk())
        ) or trace.get_current_span().get_span_context().is_valid

    def _sees_sdk(self) -> bool:
        now = trio.current_time()
        if now >= self._look_at:
            self._seen, self._look_at = _has_sdk(), now + _PAUSE
        return self._seen

    def send_ended(self, topic: str, error: Exception | None) -> None:
        """A send has ended at which nobody looked."""
        labels = self._of_topic(topic)[1]
        if error is not None:
            labels = (*labels, ("error.type", _error_type(error)))
        self._sent[labels] += 1

    def _of_topic(self, topic: str) -> tuple[Attributes, Labels]:
        found = self._of_sends.get(topic)
        if found is None:
            labels = (
                ("messaging.destination.name", topic),
                ("messaging.operation.name", "send"),
            )
            found = self._of_sends[topic] = {**_BASE, **dict(labels)}, labels
        return found

    def before_send(self, context: SendContext) -> None:
        """A message or a batch is about to be sent."""
        notes, batch = context.notes, context.batch
        notes[_BEGAN] = trio.current_time()
        topic = context.topic
        key = topic, context.client_id
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = {
                **_BASE,
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.client.id": context.client_id,
            }
        if batch is None:
            attributes = form | _of_message(context.message)
            attributes["messaging.message.id"] = context.message_id
            if context.is_half:
                attributes["messaging.rocketmq.message.type"] = "transaction"
            # The SDK would look for the current context again and again.
            current = contexts.get_current()
            span = self._start("send", SpanKind.PRODUCER, topic, attributes, current)
            if span.get_span_context().is_valid:
                propagate.inject(context.properties, trace.set_span_in_context(span, current))
        else:
            attributes = {**form, "messaging.message.body.size": len(context.message.body)}
            if batch:
                attributes["messaging.batch.message_count"] = len(batch)
            links = _links(decode_properties(message.property_text()) for message in batch)
            span = self._start("send", SpanKind.CLIENT, topic, attributes, None, links)
        notes[_SPAN] = span

    def after_send(self, context: SendContext) -> None:
        """It is stored, or has failed."""
        began = context.notes.pop(_BEGAN, None)
        if began is None:
            return
        span, result, error = context.notes.pop(_SPAN, None), context.result, context.error
        if span is not None:
            if span.is_recording():
                queue_id = -1 if result is None else result.queue.queue_id
                span.set_attributes(self._at_the_end(context.address, queue_id))
                if result is not None and context.batch is not None:
                    span.set_attribute("messaging.message.id", result.message_id)
            _end(span, error)
        attributes, labels = self._of_topic(context.topic)
        if error is not None:
            attributes = {**attributes, "error.type": _error_type(error)}
            labels = (*labels, ("error.type", _error_type(error)))
        self._durations.record(trio.current_time() - began, attributes)
        self._sent[labels] += 1 if context.batch is None else max(1, len(context.batch))

    def _at_the_end(self, address: str | None, queue_id: int) -> Attributes:
        """Where a message went, as far as that is known."""
        key = address, queue_id
        found = self._ends.get(key)
        if found is None:
            found = {}
            if queue_id >= 0:
                found["messaging.destination.partition.id"] = str(queue_id)
            if address is not None:
                host, port = split_address(address)
                found |= {"server.address": host, "server.port": port}
            if len(self._ends) >= _MOST_ENDS:
                self._ends.clear()
            self._ends[key] = found
        return found

    # --- listeners

    def before_consume(self, context: ConsumeContext) -> None:
        """A listener is about to be called; its own spans belong to this one."""
        messages = context.messages
        attributes = {
            **_BASE,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": context.group,
            "messaging.client.id": context.client_id,
            **_of_received(messages),
        }
        parent = _context_of(messages[0].properties) if len(messages) == 1 else None
        links = _links(message.properties for message in messages)
        topic = messages[0].topic
        span = self._start("process", SpanKind.CONSUMER, topic, attributes, parent, links)
        context.notes[_SPAN] = span
        context.notes[_TOKEN] = contexts.attach(trace.set_span_in_context(span))
        context.notes[_BEGAN] = trio.current_time()

    def after_consume(self, context: ConsumeContext) -> None:
        """It has returned, raised, or was cancelled."""
        span, began = context.notes.pop(_SPAN, None), context.notes.pop(_BEGAN, None)
        if span is None or began is None:
            return
        contexts.detach(context.notes.pop(_TOKEN))
        _end(span, context.error)
        topic = context.messages[0].topic
        attributes = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "process",
            "messaging.destination.name": topic,
            "messaging.consumer.group.name": context.group,
        }
        if context.error is not None:
            attributes["error.type"] = _error_type(context.error)
        self._processing.record(trio.current_time() - began, attributes)
        self._count_consumed(context.group, topic, len(context.messages))

    def _count_consumed(self, group: str, topic: str, number: int) -> None:
        key = (
            ("messaging.destination.name", topic),
            ("messaging.consumer.group.name", group),
        )
        self._consumed[key] += number

    # --- receives, acknowledgements, transactions

    def operation_begins(self, operation: Operation) -> None:
        """An operation begins."""
        operation.notes[_BEGAN] = trio.current_time()
        if operation.kind is OperationKind.RECEIVE:
            return  # what it brings, to which its span has links, is known at its end
        kind, operation_type = _TYPES[operation.kind][1], _TYPES[operation.kind][0]
        name = operation.kind.value
        attributes = {
            **_BASE,
            "messaging.operation.name": name,
            "messaging.operation.type": operation_type,
            "messaging.client.id": operation.client_id,
        }
        if operation.kind is OperationKind.ACK:
            attributes["messaging.consumer.group.name"] = operation.group
        if operation.message_id is not None:
            attributes["messaging.message.id"] = operation.message_id
        elif len(operation.messages) == 1:
            attributes["messaging.message.id"] = operation.messages[0].message_id  # type: ignore[union-attr]
        created = [_properties(message) for message in operation.messages]
        links = _links(created)
        is_check = operation.kind is OperationKind.CHECK
        parent = _context_of(created[0]) if is_check and created else None
        span = self._start(name, kind, operation.topic, attributes, parent, links)
        operation.notes[_SPAN] = span
        if is_check:
            operation.notes[_TOKEN] = contexts.attach(trace.set_span_in_context(span))

    def operation_ends(self, operation: Operation) -> None:
        """It has ended, failed or was cancelled."""
        began = operation.notes.pop(_BEGAN, None)
        if began is None:
            return
        if operation.kind is OperationKind.RECEIVE:
            self._received(operation, began)
        else:
            token = operation.notes.pop(_TOKEN, None)
            if token is not None:
                contexts.detach(token)
            _end(operation.notes.pop(_SPAN), operation.error)
        group = operation.group if operation.kind is not OperationKind.CHECK else None
        self._note(
            operation.kind.value,
            began,
            operation.error,
            messaging_destination_name=operation.topic,
            messaging_consumer_group_name=group if operation.kind in _CONSUMING else None,
        )

    def _received(self, operation: Operation, began: float) -> None:
        """A receive has ended; one that brought nothing has no span."""
        messages: Sequence[ReceivedMessage] = operation.messages  # type: ignore[assignment]
        if not messages and operation.error is None:
            return
        attributes = {
            **_BASE,
            "messaging.operation.name": "receive",
            "messaging.operation.type": "receive",
            "messaging.consumer.group.name": operation.group,
            "messaging.client.id": operation.client_id,
            **(_of_received(messages) if messages else {}),
        }
        links = _links(message.properties for message in messages)
        named = f"receive {operation.topic}" if operation.topic else "receive"
        if operation.topic:
            attributes["messaging.destination.name"] = operation.topic
        took = int((trio.current_time() - began) * 1e9)
        span = self._tracer.start_span(
            named, None, SpanKind.CLIENT, attributes, links, start_time=_earlier(took)
        )
        _end(span, operation.error)
        for topic, number in Counter(message.topic for message in messages).items():
            self._count_consumed(operation.group, topic, number)

    # --- consumers

    def consumer_opened(self, group: str, client_id: str, cached: Cached) -> None:
        """A push consumer was opened."""
        self._open[group, client_id] = _Open(group, client_id, cached)

    def consumer_closed(self, group: str, client_id: str) -> None:
        """It was closed."""
        self._open.pop((group, client_id), None)


def _has_sdk() -> bool:
    """Whether somebody made OpenTelemetry's global providers; else they do nothing."""
    return not (
        type(trace.get_tracer_provider()).__module__.startswith(_API_OF_SPANS)
        and type(metrics.get_meter_provider()).__module__.startswith(_API_OF_METRICS)
    )


_CONSUMING: Final = (OperationKind.RECEIVE, OperationKind.ACK)


def _properties(message: Message | ReceivedMessage) -> Mapping[str, str]:
    return message.properties


def _earlier(nanoseconds: int) -> int:
    """A moment of the wall clock so long ago, in nanoseconds of the epoch."""
    return wall_nanoseconds() - nanoseconds


def _observe(
    counted: Counter[Labels],
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        for labels, number in list(counted.items()):
            yield Observation(number, {**_BASE, **dict(labels)})

    return observe
