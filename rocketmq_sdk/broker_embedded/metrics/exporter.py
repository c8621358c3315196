"""What a broker tells over HTTP: `/metrics`, `/healthz`, `/readyz`.

The port is open before the store is, so that whoever waits for the broker sees how far
a long start is.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.metrics import apache_rows, own_rows
from rocketmq_sdk.broker_embedded.metrics.loop import LoopWatch
from rocketmq_sdk.broker_embedded.metrics.page import CONTENT_TYPE, Kind, Page
from rocketmq_sdk.broker_embedded.metrics.request_times import RequestTimes
from rocketmq_sdk.broker_embedded.metrics.source import Source
from rocketmq_sdk.broker_embedded.settings.fields import labels_in
from rocketmq_sdk.broker_embedded.tables.figures import Figures
from rocketmq_sdk.http_server import HttpError, HttpServer, HttpText
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.model.route import is_loopback, join_address
from rocketmq_sdk.transport.tcp import open_tcp_listeners

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.composition import Parts
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.fast_failure import FastFailure
    from rocketmq_sdk.broker_embedded.metrics.page import Row
    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
    from rocketmq_sdk.http_server import HttpRequest
    from rocketmq_sdk.remoting.channel import Channel, Turn
    from rocketmq_sdk.remoting.server import RemotingServer

SCOPE: Final = "broker-meter"
"""The name of Apache's meter, a label of each sample."""
_READS: Final = ("GET", "HEAD")


class Exporter:
    """Serves the metrics and the health of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._labels = {
            **labels_in(config.metrics_label),
            "cluster": config.broker_cluster_name,
            "node_id": config.broker_name,
            "node_type": "broker",
            "otel_scope_name": SCOPE,
        }
        self.figures = Figures(config.metrics_otel_cardinality_limit)
        self.recovered = (0, 0)
        """How far the start is: bytes of log read, and bytes to read."""
        self._times: RequestTimes | None = None
        self._known: Source | None = None
        self._source: Source | None = None
        self._rows: tuple[Row, ...] = ()
        self._closing = False

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[str]:
        """Serve as long as the block lasts; gives the address.

        Raises `ConfigurationError` when the port cannot be had.
        """
        listeners, port = await open_tcp_listeners(host, port)
        server = HttpServer(
            self.answer, loopback_only=is_loopback(host), name="endpoint of metrics"
        )
        async with open_quiet_nursery() as nursery:
            await nursery.start(server.serve, listeners)
            try:
                with LoopWatch(self.figures.stalls):
                    yield join_address(host, port)
            finally:
                nursery.cancel_scope.cancel()

    def recovering(self, done: int, total: int) -> None:
        """The start has read some of the log; called in a thread."""
        self.recovered = done, total

    def measure(self, core: Core, turn: Turn, rows: Iterable[Request]) -> RequestTimes:
        """What is to stand in front of the handlers, and around their turns."""
        self._times = RequestTimes(self.figures, core.clock, turn)
        self._times.know(rows)
        return self._times

    def know(
        self,
        core: Core,
        parts: Parts,
        servers: dict[str, RemotingServer],
        path: Path | None,
        fast_failure: FastFailure,
    ) -> None:
        """Take note of all that is told about; the broker is not open yet."""
        assert self._times is not None
        self._known = Source(core, parts, self.figures, self._times, servers, path)
        self._rows = (
            *apache_rows.rows(self._known),
            *own_rows.rows(self._known, lambda: fast_failure.failed),
        )

    def opened(self) -> None:
        """The broker is open."""
        self._source = self._known

    def channel_closed(self, channel: Channel) -> None:
        """A connection has ended."""
        if self._times is not None:
            self._times.closed(channel)

    def closing(self) -> None:
        """The broker closes."""
        self._closing = True

    async def answer(self, request: HttpRequest) -> HttpText:
        """Answer a request. Raises `HttpError`."""
        serve = {
            "/metrics": self.metrics,
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/": self.index,
        }.get(request.path)
        if serve is None:
            raise HttpError(HTTPStatus.NOT_FOUND, f"there is no {request.path}; see /")
        if request.method not in _READS:
            allowed = ", ".join(_READS)
            raise HttpError(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} takes {allowed}", allow=allowed
            )
        return await serve()

    async def index(self) -> HttpText:
        """What there is."""
        return _text("/metrics\n/healthz\n/readyz\n")

    async def metrics(self) -> HttpText:
        """All metrics, in Prometheus' text format."""
        page = Page(self._labels)
        source, rows = self._source, self._rows
        if source is None:
            rows = tuple(own_rows.recovering(*self.recovered))
        else:
            await source.look()
            await page.rest_now()
        for row in rows:
            await page.write(row)
        page.bare("target_info", Kind.GAUGE, "Target metadata", "1")
        page.finish()
        return HttpText(page.parts, content_type=CONTENT_TYPE)

    async def healthz(self) -> HttpText:
        """Whether the process is well; if not, a restart may help."""
        source = self._source
        if source is not None and source.core.store.needs_restart:
            reason = source.core.supervisor.refusing()
            return _text(f"the broker needs a restart: {reason}\n", well=False)
        return _text("the broker runs\n")

    async def readyz(self) -> HttpText:
        """Whether the broker takes messages, and all that is wrong, in words."""
        source = self._source
        if self._closing:
            return _text("not ready: the broker closes\n", well=False)
        if source is None:
            done, total = self.recovered
            progress = f": {done} of {total} bytes of log read" if total else ""
            return _text(f"not ready: the store is being opened{progress}\n", well=False)
        health = source.core.supervisor.health()
        head = "ready: taking messages" if health else "not ready: not taking messages"
        return _text("\n".join((head, *health.reasons, "")), well=bool(health))


def _text(text: str, *, well: bool = True) -> HttpText:
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return HttpText((text.encode(),), status)
