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

from typing import TYPE_CHECKING, Literal

try:
    import opentelemetry.trace  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"tracing needs OpenTelemetry ({error}); install rocketmq-trio[otel]"
    ) from error

from rocketmq_sdk.client.observers import install
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.otel.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["instrument"]


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    ratio: float = 1.0,
    spans: Literal["batch", "message"] = "batch",
) -> Callable[[], None]:
    """Observe all producers and consumers of this process that are made from now on.

    By default with OpenTelemetry's global providers. With `spans` "batch" messages that
    leave together under the same span of their callers, or under none, have one span
    for their send, and its context; with "message" each has its own, and its duration
    is measured, which takes more than a send itself. `ratio` is the part of the sends
    outside of any span that begin a trace (0 to 1), and whose duration is measured; the
    others are counted only. Sends inside a span always belong to its trace. Returns a
    function that ends it for clients made later. Raises `ConfigurationError` for a
    ratio or spans that are none.
    """
    if spans not in ("batch", "message"):
        raise ConfigurationError(f'spans is {spans!r:.200}; give "batch" or "message"')
    if not 0.0 <= ratio <= 1.0:
        raise ConfigurationError(f"ratio is {ratio!r}; give a number from 0 to 1")
    return install(Telemetry(tracer_provider, meter_provider, ratio, joins=spans == "batch"))
