"""An observer of clients that makes OpenTelemetry's spans and metrics."""

from __future__ import annotations

import math
from collections import Counter
from importlib.metadata import version
from random import random
from typing import TYPE_CHECKING, Final

import attrs
import trio
from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from rocketmq_sdk.client.observers import Cached, Departure, Operation, OperationKind
from rocketmq_sdk.clock import wall_nanoseconds
from rocketmq_sdk.model.properties import decode_properties
from rocketmq_sdk.otel.attributes import (
    BASE,
    Attributes,
    Forms,
    add_alike,
    add_received,
    add_sent,
)
from rocketmq_sdk.otel.propagation import Propagation, links_to, spoken_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rocketmq_sdk.client.hooks import ConsumeContext, SendContext
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.received import ReceivedMessage

SCHEMA: Final = "https://opentelemetry.io/schemas/1.30.0"
"""The conventions that names and attributes follow."""
_NAME: Final = "rocketmq_sdk"
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
_CONSUMING: Final = (OperationKind.RECEIVE, OperationKind.ACK)
_SENT: Final = "Number of messages producer attempted to send to the broker."
_CONSUMED: Final = "Number of messages that were delivered to the application."
_SPAN: Final = "opentelemetry span"
_BEGAN: Final = "opentelemetry began"
_TOKEN: Final = "opentelemetry token"
_API_OF_SPANS: Final = "opentelemetry.trace"
_API_OF_METRICS: Final = "opentelemetry.metrics"
_PAUSE: Final = 1.0
"""Seconds between two looks for an SDK, which cost more than a count."""


def _error_type(error: BaseException) -> str:
    return type(error).__qualname__


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None and span.is_recording():
        span.set_attribute("error.type", _error_type(error))
        span.set_status(Status(StatusCode.ERROR, str(error) or _error_type(error)))
    span.end()


def _end_of_several(span: Span, departure: Departure) -> None:
    """End a span of messages that left together: what has failed is an event each."""
    failed, failures = departure.failed, departure.failures
    for message_id, error in failures:
        attributes = {"exception.type": _error_type(error), "exception.message": str(error)}
        if message_id:
            attributes["messaging.message.id"] = message_id
        span.add_event("exception", attributes)
    if failures:
        first = failures[0][1]
        span.set_attribute("error.type", _error_type(first))
        text = f"{failed} of {departure.count} messages failed, the first: {first}"
        span.set_status(Status(StatusCode.ERROR, text))
    span.end()


def _ids_of_several(messages: Sequence[ReceivedMessage]) -> Sequence[str]:
    """The ids of messages; of one it is the span's."""
    return [message.message_id for message in messages] if len(messages) > 1 else ()


@attrs.define
class _Open:
    """A push consumer that is open."""

    group: str
    client_id: str
    cached: Cached


@attrs.define
class _Topic:
    """The sends to a topic: how many, and the attributes of their metrics."""

    attributes: Attributes
    stored: int = 0
    failed: Counter[str] = attrs.field(factory=Counter)
    """By the type of the error."""


class Telemetry:
    """An `Observer` that makes spans and metrics.

    What all spans of a kind have in common is made once; a span that nobody records
    gets no more than the sampler has to know. With `joins` what leaves together has one
    span, else each message.
    """

    caller = staticmethod(contexts.get_current)

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        ratio: float,
        *,
        joins: bool,
    ) -> None:
        self.joins = joins
        self._ratio = ratio
        self._seen = tracer_provider is not None or meter_provider is not None
        self._look_at = -math.inf
        self._outside: contexts.Context | None = None
        self._topics: dict[str, _Topic] = {}
        self._forms = Forms()
        self._propagation = Propagation()
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
        self._consumed: Counter[Labels] = Counter()
        for name, observe, text in (
            ("sent", self._observe_sent, _SENT),
            ("consumed", self._observe_consumed, _CONSUMED),
        ):
            meter.create_observable_counter(
                f"messaging.client.{name}.messages", [observe], unit="{message}", description=text
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

    # --- what is asked for now and then

    def _observe_sent(self, _options: CallbackOptions) -> Iterable[Observation]:
        for topic in list(self._topics.values()):
            if topic.stored:
                yield Observation(topic.stored, topic.attributes)
            for error, number in list(topic.failed.items()):
                yield Observation(number, {**topic.attributes, "error.type": error})

    def _observe_consumed(self, _options: CallbackOptions) -> Iterable[Observation]:
        for labels, number in list(self._consumed.items()):
            yield Observation(number, {**BASE, **dict(labels)})

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
        if self.brings_context(message) or not self.looks_at_send(trio.current_time()):
            return _NOTHING
        form = self._forms.of("create", "create", message.topic, "")
        attributes = form.attributes.copy()
        add_sent(attributes, message)
        current = contexts.get_current()
        span = self._tracer.start_span(form.name, current, SpanKind.PRODUCER, attributes)
        carrier: dict[str, str] = {}
        spoken = span.get_span_context()
        if spoken.is_valid:
            self._propagation.inject(carrier, span, spoken, current)
        span.end()
        return carrier

    def looks_at_send(self, now: float) -> bool:
        """Whether a send has a span: inside of one, or by lot.

        Without OpenTelemetry's SDK nobody would see it; one that comes while messages
        are sent is noticed within a second.
        """
        if (self._ratio >= 1.0 or random() < self._ratio) and (self._seen or self._sees_sdk(now)):
            return True
        current = contexts.get_current()
        if current is self._outside:  # contexts do not change
            return False
        inside = spoken_of(current).is_valid
        if not inside:
            self._outside = current
        return inside

    def _sees_sdk(self, now: float) -> bool:
        if now >= self._look_at:
            self._seen, self._look_at = _has_sdk(), now + _PAUSE
        return self._seen

    def sends_ended(self, topic: str, number: int, error: Exception | None) -> None:
        """Messages have ended at which nobody looked."""
        known = self._topics.get(topic) or self._topic(topic)
        if error is None:
            known.stored += number
        else:
            known.failed[_error_type(error)] += number

    def _topic(self, topic: str) -> _Topic:
        found = self._topics.get(topic)
        if found is None:
            attributes = {
                **BASE,
                "messaging.destination.name": topic,
                "messaging.operation.name": "send",
            }
            found = self._topics[topic] = _Topic(attributes)
        return found

    def brings_context(self, message: Message) -> bool:
        """Whether a message has a context of its maker, which is to stay."""
        properties = message.properties
        return bool(properties) and self._propagation.is_in(properties)

    def departs(self, departure: Departure) -> None:
        """The first of messages that leave together is about to be sent."""
        if not self.looks_at_send(departure.started):
            departure.is_seen = False
            return
        form = self._forms.of("send", "send", departure.topic, departure.client_id)
        current = contexts.get_current()
        span = self._tracer.start_span(form.name, current, SpanKind.PRODUCER, form.attributes)
        spoken = span.get_span_context()
        if spoken.is_valid:
            self._propagation.inject(departure.properties, span, spoken, current)
        departure.notes[_SPAN] = span if span.is_recording() else None

    def departed(self, departure: Departure) -> None:
        """All of them are finished."""
        if _SPAN not in departure.notes:
            return
        span, failures = departure.notes.pop(_SPAN), departure.failures
        if span is not None:
            attributes = self._of_departure(departure)
            span.set_attributes(attributes)
            if departure.count == 1:
                _end(span, failures[0][1] if failures else None)
            else:
                _end_of_several(span, departure)
        attributes = self._topic(departure.topic).attributes
        if failures:
            attributes = {**attributes, "error.type": _error_type(failures[0][1])}
        self._durations.record(departure.ended - departure.started, attributes)

    def _of_departure(self, departure: Departure) -> Attributes:
        """What is known of messages at the end."""
        attributes = self._forms.at(departure.address or None, departure.queue_id).copy()
        message = departure.first
        if departure.is_batch or departure.count != 1:
            attributes["messaging.batch.message_count"] = departure.count
            if message is not None and departure.are_alike:
                add_alike(attributes, message)
        elif message is not None:
            add_sent(attributes, message)
            if departure.message_id is not None:
                attributes["messaging.message.id"] = departure.message_id
        return attributes

    def before_send(self, context: SendContext) -> None:
        """A message or a batch is about to be sent."""
        batch, message = context.batch, context.message
        form = self._forms.of("send", "send", context.topic, context.client_id)
        attributes = form.attributes.copy()
        if batch is None:
            add_sent(attributes, message)
            attributes["messaging.message.id"] = context.message_id
            own = self._propagation.extract(message.properties) if message.properties else None
            if context.is_half:
                attributes["messaging.rocketmq.message.type"] = "transaction"
            # The SDK would look for the current context again and again.
            current = contexts.get_current()
            if own is None:
                span = self._tracer.start_span(form.name, current, SpanKind.PRODUCER, attributes)
                spoken = span.get_span_context()
                if spoken.is_valid:
                    self._propagation.inject(context.properties, span, spoken, current)
            else:
                span = self._tracer.start_span(
                    form.name, current, SpanKind.CLIENT, attributes, links_to([own])
                )
        else:
            attributes["messaging.message.body.size"] = len(message.body)
            if batch:
                attributes["messaging.batch.message_count"] = len(batch)
            created = [
                self._propagation.extract(decode_properties(each.property_text())) for each in batch
            ]
            links = links_to(created, context.message_id.split(","))
            span = self._tracer.start_span(form.name, None, SpanKind.CLIENT, attributes, links)
        context.notes[_SPAN] = span if span.is_recording() else None

    def after_send(self, context: SendContext) -> None:
        """It is stored, or has failed."""
        if _SPAN not in context.notes:
            return
        span, result, error = context.notes.pop(_SPAN), context.result, context.error
        if span is not None:
            queue_id = -1 if result is None else result.queue.queue_id
            span.set_attributes(self._forms.at(context.address, queue_id))
            if result is not None and context.batch is not None:
                span.set_attribute("messaging.message.id", result.message_id)
            _end(span, error)
        topic, batch = context.topic, context.batch
        attributes = self._topic(topic).attributes
        if error is not None:
            attributes = {**attributes, "error.type": _error_type(error)}
        self._durations.record(context.ended - context.started, attributes)
        self.sends_ended(topic, 1 if batch is None else max(1, len(batch)), error)

    # --- listeners

    def before_consume(self, context: ConsumeContext) -> None:
        """A listener is about to be called; its own spans belong to this one."""
        messages = context.messages
        form = self._forms.of("process", "process", messages[0].topic, context.client_id)
        attributes = form.attributes | self._forms.at(context.address)
        attributes["messaging.consumer.group.name"] = context.group
        add_received(attributes, messages)
        created = [self._propagation.extract(message.properties) for message in messages]
        parent = created[0] if len(created) == 1 else None
        links = links_to(created, _ids_of_several(messages))
        span = self._tracer.start_span(form.name, parent, SpanKind.CONSUMER, attributes, links)
        current = contexts.get_current()
        if parent is not None and len(parent) > 1:  # with baggage, which is the listener's
            current = contexts.Context({**current, **parent})
        context.notes[_SPAN] = span
        context.notes[_TOKEN] = contexts.attach(trace.set_span_in_context(span, current))
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
        operation_type, kind = _TYPES[operation.kind]
        form = self._forms.of(
            operation.kind.value, operation_type, operation.topic, operation.client_id
        )
        attributes = form.attributes | self._forms.at(operation.address)
        if operation.kind is OperationKind.ACK:
            attributes["messaging.consumer.group.name"] = operation.group
        if operation.message_id is not None:
            attributes["messaging.message.id"] = operation.message_id
        elif len(operation.messages) == 1:
            attributes["messaging.message.id"] = operation.messages[0].message_id  # type: ignore[union-attr]
        created = [self._propagation.extract(message.properties) for message in operation.messages]
        is_check = operation.kind is OperationKind.CHECK
        parent = created[0] if is_check and created else None
        span = self._tracer.start_span(form.name, parent, kind, attributes, links_to(created))
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
        form = self._forms.of("receive", "receive", operation.topic, operation.client_id)
        attributes = form.attributes | self._forms.at(operation.address)
        attributes["messaging.consumer.group.name"] = operation.group
        if messages:
            add_received(attributes, messages)
        created = [self._propagation.extract(message.properties) for message in messages]
        links = links_to(created, _ids_of_several(messages))
        took = int((trio.current_time() - began) * 1e9)
        span = self._tracer.start_span(
            form.name, None, SpanKind.CLIENT, attributes, links, start_time=_earlier(took)
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


def _earlier(nanoseconds: int) -> int:
    """A moment of the wall clock so long ago, in nanoseconds of the epoch."""
    return wall_nanoseconds() - nanoseconds
