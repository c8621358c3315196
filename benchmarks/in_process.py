"""Sends to an embedded broker in the same process, over the local channel, beside a bare call of the same append."""

import time

import trio

from benchmarks.harness import Report
from benchmarks.sending import BODY, in_flight, one_at_a_time
from rocketmq_sdk import EmbeddedBroker, Producer
from rocketmq_sdk.broker_embedded.config import BrokerConfig
from rocketmq_sdk.broker_embedded.store.types import MessageToStore


def _direct_appends(broker: EmbeddedBroker, count: int) -> float:
    """Messages per second of bare in-process calls of the store's put."""
    store = broker.store
    properties = "UNIQ_KEY\x017F000001000000000000000000000001\x02WAIT\x01true\x02"
    begin = time.perf_counter()
    for _ in range(count):
        store.put(
            MessageToStore(
                topic="direct",
                queue_id=0,
                body=BODY,
                properties=properties,
                born_timestamp=1_700_000_000_000,
                born_host=b"\x7f\x00\x00\x01\x00\x00\x10\x00",
            )
        )
    return count / (time.perf_counter() - begin)


async def _measure(report: Report, scale: float) -> None:
    config, _ = BrokerConfig.from_properties("memoryLimit=2147483648")
    async with EmbeddedBroker(config=config) as broker, Producer("bench", namesrv=broker) as producer:
        report.add("bare in-process append", "/s", _direct_appends(broker, int(100_000 * scale)))
        await one_at_a_time(producer, "inproc", 2_000)
        times = await one_at_a_time(producer, "inproc", int(20_000 * scale))
        report.add("in-process send, one at a time", "/s", len(times) / sum(times), "bare in-process append")
        rate = await in_flight(producer, "inproc", int(60_000 * scale), 64)
        report.add("in-process send, 64 in flight", "/s", rate, "bare in-process append")


def run(report: Report, scale: float) -> None:
    """One round."""
    trio.run(_measure, report, scale)
