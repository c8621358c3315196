"""What TLS costs: the rate of two producers with 256 sends in flight, and the processor
time of a message.

One of them sends over TLS, each to a broker process of its own; they take turns, each
second time in the other order. Costs are medians of the ratios of neighbours.
"""

from __future__ import annotations

import ssl
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
import trustme

from benchmarks.processor import processor_seconds
from benchmarks.sending import in_flight
from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, Producer

if TYPE_CHECKING:
    from benchmarks.harness import Report
    from benchmarks.workers import Broker

PAIRS: Final = 20
_MESSAGES: Final = 4000


async def _measure(
    plain: Broker, secured: Broker, tls: ssl.SSLContext, report: Report, messages: int
) -> None:
    async with (
        Producer("plain", namesrv=plain) as first,
        Producer("secured", namesrv=secured, tls=tls) as second,
    ):
        sides = ((first, plain), (second, secured))
        rates: tuple[list[float], list[float]] = ([], [])
        costs: tuple[list[float], list[float]] = ([], [])
        for producer, _broker in sides:
            await Admin(client=producer.client).topics.create("cost", queues=4)
            await in_flight(producer, "cost", messages, 256)
        for number in range(PAIRS):
            for side in (0, 1) if number % 2 else (1, 0):
                producer, broker = sides[side]
                began = time.process_time() + processor_seconds(broker.process)
                rates[side].append(await in_flight(producer, "cost", messages, 256))
                ended = time.process_time() + processor_seconds(broker.process)
                costs[side].append((ended - began) / messages * 1e6)
    slower = statistics.median(b / a for a, b in zip(*rates, strict=True))
    dearer = statistics.median(b / a for a, b in zip(*costs, strict=True))
    report.add("rate over TLS, 256 in flight", "/s", max(rates[1]))
    report.add("rate that TLS takes away", "%", (1 - slower) * 100)
    report.add("processor time that TLS adds", "%", (dearer - 1) * 100)


def run(report: Report, scale: float) -> None:
    """One round."""
    authority, tls = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(tls)
    made = authority.issue_cert("127.0.0.1")
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "server.pem"), Path(directory, "server.key")
        made.cert_chain_pems[0].write_to_path(str(certificate))
        made.private_key_pem.write_to_path(str(key))
        secure = ("--tls-cert", str(certificate), "--tls-key", str(key), "--require-tls")
        with broker_process() as plain, broker_process(*secure) as secured:
            trio.run(_measure, plain, secured, tls, report, max(500, int(_MESSAGES * scale)))
