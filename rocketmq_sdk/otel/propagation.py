"""Contexts in the properties of messages, as the program's propagators write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span

_PARENT: Final = "traceparent"
_PROBES: Final = tuple(
    SpanContext(0x0AF7651916CD43DD8448EB211C80319C >> flags, 0xB7AD6B, False, TraceFlags(flags))
    for flags in (0, 1, 3)
)


def _parent_of(spoken: SpanContext) -> str:
    """What W3C's `traceparent` says of a span."""
    return f"00-{spoken.trace_id:032x}-{spoken.span_id:016x}-{spoken.trace_flags:02x}"


class Propagation:
    """Writes and reads contexts with the propagators that are set globally.

    Mostly they write `traceparent` alone. That they do is found out once, with some
    spans, as writing it oneself costs a fraction. Whatever else there is to write, as
    baggage or a trace state, is always left to them.
    """

    def __init__(self) -> None:
        self._textmap: TextMapPropagator | None = None
        self._is_plain = False
        self._fields: frozenset[str] = frozenset()
        self._last: tuple[Mapping[str, str], Context | None] = {}, None

    def _current(self) -> TextMapPropagator:
        textmap = propagate.get_global_textmap()
        if textmap is not self._textmap:
            self._textmap = textmap
            self._fields = frozenset(textmap.fields)
            self._last = {}, None
            self._is_plain = all(_writes_as_w3c(textmap, probe) for probe in _PROBES)
        return textmap

    def inject(
        self, carrier: dict[str, str], span: Span, spoken: SpanContext, context: Context
    ) -> None:
        """Write a span, whose context is `spoken`, and what `context` has beside it."""
        textmap = self._current()
        if self._is_plain and not spoken.trace_state and _has_nothing_but_a_span(context):
            carrier[_PARENT] = _parent_of(spoken)
        else:
            textmap.inject(carrier, trace.set_span_in_context(span, context))

    def is_in(self, properties: Mapping[str, str]) -> bool:
        """Whether properties have a context, or what looks like one."""
        self._current()
        return not self._fields.isdisjoint(properties)

    def extract(self, properties: Mapping[str, str]) -> Context | None:
        """The context in which a message was created, if it has one.

        Messages that left together follow each other and have the same, so that the
        last one is kept.
        """
        if not self.is_in(properties):
            return None
        texts = {name: properties[name] for name in self._fields if name in properties}
        known, found = self._last
        if texts != known:
            assert self._textmap is not None
            context = self._textmap.extract(texts, context=Context())
            found = context if spoken_of(context).is_valid else None
            self._last = texts, found
        return found


def _writes_as_w3c(textmap: TextMapPropagator, probe: SpanContext) -> bool:
    carrier: dict[str, str] = {}
    textmap.inject(carrier, trace.set_span_in_context(NonRecordingSpan(probe), Context()))
    return carrier == {_PARENT: _parent_of(probe)}


def _has_nothing_but_a_span(context: Context) -> bool:
    return not context or (
        len(context) == 1 and trace.get_current_span(context) is not trace.INVALID_SPAN
    )


def spoken_of(context: Context) -> SpanContext:
    """What a context says of its span."""
    return trace.get_current_span(context).get_span_context()


def links_to(contexts: Sequence[Context | None], ids: Sequence[str] = ()) -> list[Link]:
    """Links to the spans in which messages were created; with their ids, if given."""
    if len(ids) != len(contexts):
        return [Link(spoken_of(context)) for context in contexts if context is not None]
    return [
        Link(spoken_of(context), {"messaging.message.id": message_id})
        for context, message_id in zip(contexts, ids, strict=True)
        if context is not None
    ]
