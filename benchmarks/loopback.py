"""Sends over TCP loopback, client and broker in two processes."""

from __future__ import annotations

import trio

from benchmarks.baselines import bare_echo, blocking_echo
from benchmarks.harness import Report, percentile
from benchmarks.sending import batches, batches_in_flight, in_flight, many_tasks, one_at_a_time
from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, Producer


async def _measure(namesrv: str, report: Report, scale: float) -> None:
    async with Producer("bench", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create("loopback", queues=4)
        await in_flight(producer, "loopback", int(20_000 * scale), 256)
        times = await one_at_a_time(producer, "loopback", int(3_000 * scale))
        report.add(
            "tcp send, one at a time, p50",
            "us",
            percentile(times, 0.5) * 1e6,
            "bare trio echo, one at a time, p50",
        )
        report.add("tcp send, one at a time, p99", "us", percentile(times, 0.99) * 1e6)
        for depth, count in ((16, 60_000), (256, 150_000)):
            rate = await in_flight(producer, "loopback", int(count * scale), depth)
            report.add(f"tcp send, {depth} in flight", "/s", rate, "bare trio echo, 256 in flight")
        rate = await in_flight(producer, "loopback", int(100_000 * scale), 256, bytes(1024))
        report.add("tcp send, 256 in flight, 1 KiB", "/s", rate, "tcp send, 256 in flight")
        report.add(
            "tcp send, 64 tasks",
            "/s",
            await many_tasks(producer, "loopback", int(50_000 * scale), 64),
        )
        report.add(
            "tcp send, batches of 100",
            "/s",
            await batches(producer, "loopback", int(300_000 * scale), 100),
        )
        report.add(
            "tcp send, batches of 100, 4 in flight",
            "/s",
            await batches_in_flight(producer, "loopback", int(300_000 * scale), 100, 4),
        )


async def _measure_without_index(namesrv: str, report: Report, scale: float) -> None:
    async with Producer("bench", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create("loopback", queues=4)
        await in_flight(producer, "loopback", int(20_000 * scale), 256)
        rate = await in_flight(producer, "loopback", int(150_000 * scale), 256)
        report.add("tcp send, 256 in flight, no key index", "/s", rate, "tcp send, 256 in flight")
        rate = await batches(producer, "loopback", int(300_000 * scale), 100)
        report.add("tcp send, batches of 100, no key index", "/s", rate, "tcp send, batches of 100")


def run(report: Report, scale: float) -> None:
    """One round."""
    rate, _ = bare_echo(int(200_000 * scale), 256)
    report.add("bare trio echo, 256 in flight", "/s", rate)
    times = blocking_echo(int(3_000 * scale))
    report.add("bare blocking echo, one at a time, p50", "us", percentile(times, 0.5) * 1e6)
    _, median = bare_echo(int(3_000 * scale), 1)
    report.add("bare trio echo, one at a time, p50", "us", median)
    with broker_process() as namesrv:
        trio.run(_measure, namesrv, report, scale)
    with broker_process("--set", "messageIndexEnable=false") as namesrv:
        trio.run(_measure_without_index, namesrv, report, scale)
