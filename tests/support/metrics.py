"""Asking a broker for its metrics and its health, and reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
import trio
from prometheus_client.parser import text_string_to_metric_families

from rocketmq_sdk.model.route import split_address

if TYPE_CHECKING:
    from rocketmq_sdk import EmbeddedBroker


async def get(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and text of an answer over HTTP."""
    host, port = split_address(address)
    http = h11.Connection(h11.CLIENT)
    sent = {"host": address, "connection": "close", **headers}
    async with await trio.open_tcp_stream(host, port) as stream:
        request = h11.Request(method=method, target=path, headers=list(sent.items()))
        await stream.send_all((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
        status, body = 0, bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return status, body.decode()


async def scrape(broker: EmbeddedBroker) -> str:
    """The page of metrics of a broker."""
    assert broker.metrics_address is not None
    status, text = await get(broker.metrics_address, "/metrics")
    assert status == 200, text
    return text


def samples(page: str) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples of a page by name, then by the values of labels in order of names.

    Labels that all samples have are left out.
    """
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = tuple(
                value
                for name, value in sorted(sample.labels.items())
                if name not in ("cluster", "node_id", "node_type", "otel_scope_name")
                and not name.startswith("storage_")
                and name != "protocol_type"
            )
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


async def page(broker: EmbeddedBroker) -> str:
    """The page of metrics of a broker, without HTTP: under virtual time."""
    exporter = broker._exporter
    assert exporter is not None
    return b"".join((await exporter.metrics()).parts).decode()
