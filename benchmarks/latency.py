"""Latency from send to listener, at 1,000 messages per second over TCP."""

from __future__ import annotations

import gc
import time

import trio

from benchmarks.baselines import paced_echo
from benchmarks.harness import Report, percentile
from benchmarks.pace import moments
from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, Message, Producer, PushConsumer, ReceivedMessage

RATE = 1_000
SHARES = (("p50", 0.5), ("p99", 0.99))


async def _measure(namesrv: str, report: Report, scale: float) -> None:
    count = int(5_000 * scale)
    times: list[float] = []
    waits: dict[bytes, float] = {}
    late: list[float] = []
    finished = trio.Event()

    async def listener(message: ReceivedMessage) -> None:
        times.append(time.perf_counter() - float(message.body))
        late.append(waits[message.body])
        if len(times) == count:
            finished.set()

    async with Producer("bench", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create("latency", queues=4)
        async with PushConsumer(
            "bench", namesrv=namesrv, subscriptions={"latency": "*"}, listener=listener
        ) as consumer:
            while (
                len([queue for queue in consumer.statistics().queues if queue.topic == "latency"])
                < 4
            ):
                await trio.sleep(0.05)
            # As programs do that mind single milliseconds: the first full collection
            # of a process goes through all that it has loaded.
            gc.collect()
            gc.freeze()
            async with moments(count, RATE) as due:
                async for moment in due:
                    now = time.perf_counter()
                    body = b"%.9f" % now
                    waits[body] = now - moment
                    producer.submit(Message("latency", body))
            with trio.fail_after(60):
                await finished.wait()
            gc.unfreeze()
    whole = [one + wait for one, wait in zip(times, late, strict=True)]
    for name, share in SHARES:
        for since, found in (("", times), (" from its moment", whole)):
            report.add(
                f"end to end at 1,000/s{since}, {name}",
                "us",
                percentile(found[count // 5 :], share) * 1e6,
                f"bare trio echo at 1,000/s, {name}",
            )


def run(report: Report, scale: float) -> None:
    """One round."""
    times = paced_echo(int(3_000 * scale), RATE)
    for name, share in SHARES:
        report.add(f"bare trio echo at 1,000/s, {name}", "us", percentile(times, share) * 1e6)
    with broker_process() as namesrv:
        trio.run(_measure, namesrv, report, scale)
