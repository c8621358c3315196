"""The same work by Apache's Java client on Apache's broker, in the same run.

One cluster and one client process serve all rounds, so that the second and third round
meet warm code on both sides.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from benchmarks import filters, sync_flush, timers
from rocketmq_sdk.broker_embedded.filter.evaluate import compile_expression

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from benchmarks import java_groups, java_pops
from support import java

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Report

java.QUICK_START.clear()
java.IDLES.clear()
_stack = ExitStack()
SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
}
"""Sizes of files of Apache's broker, as they are by default."""
INDEX: dict[str, Any] = {"maxHashSlotNum": 5_000_000, "maxIndexNum": 20_000_000}
WARM = {"sync": 3_000, "async": 20_000, "batch": 20_000}
"""What a client sends before it is measured."""
_running: list[tuple[java.ApacheCluster, java.Driver]] = []


def _peers() -> tuple[java.ApacheCluster, java.Driver]:
    if not _running:
        if reason := java.why_not():
            raise SystemExit(f"--apache needs Java: {reason}")
        home = Path(
            _stack.enter_context(
                tempfile.TemporaryDirectory(prefix="rocketmq-bench-", ignore_cleanup_errors=True)
            )
        )
        cluster = _stack.enter_context(java.apache_cluster(home, "1g", **SIZES, **INDEX))
        driver = java.Driver(memory="512m")
        _stack.callback(driver.close)
        driver.perform({"do": "producer", "id": "p", "group": "bench", "namesrv": cluster.namesrv})
        for mode, count in WARM.items():
            send(driver, "warm", mode, count)
        _running.append((cluster, driver))
    return _running[0]


def send(driver: java.Driver, topic: str, mode: str, count: int, **more: Any) -> dict[str, Any]:
    """What Java's client says of its sends of bodies of 100 bytes, or of `size`.

    Ends the program when one of them has failed: failures are quick.
    """
    answer: dict[str, Any] = driver.perform(
        {
            "do": "send_many",
            "id": "p",
            "topic": topic,
            "mode": mode,
            "count": count,
            "size": 100,
            **more,
        }
    )
    if answer["failed"]:
        raise SystemExit(f"{answer['failed']} of {count} sends of Java's client failed")
    return answer


def _loopback(report: Report, scale: float) -> None:
    _, driver = _peers()
    one = send(driver, "java_loopback", "sync", int(3_000 * scale))
    report.add("java, one at a time, p50", "us", one["p50_us"])
    report.add("java, one at a time, p99", "us", one["p99_us"])
    for depth in (16, 256):
        report.add(
            f"java, {depth} in flight",
            "/s",
            send(driver, "java_loopback", "async", int(100_000 * scale), in_flight=depth)["rate"],
        )
    kibibytes = int(100_000 * scale)
    report.add(
        "java, 256 in flight, 1 KiB",
        "/s",
        send(driver, "java_loopback", "async", kibibytes, in_flight=256, size=1024)["rate"],
    )
    report.add(
        "java, batches of 100",
        "/s",
        send(driver, "java_loopback", "batch", int(300_000 * scale), batch=100)["rate"],
    )


def _wait_count(driver: java.Driver, consumer: str, count: int) -> int:
    """Poll until the consumer has seen `count` messages; answers how many it has."""
    while (seen := int(driver.perform({"do": "count", "id": consumer}))) < count:
        time.sleep(0.002)
    return seen


def _backlog_rate(
    cluster: java.ApacheCluster,
    driver: java.Driver,
    topic: str,
    count: int,
    batch: int,
    *,
    do: str = "consumer",
    **more: str,
) -> float:
    """Messages per second of a new group in Java that takes all messages of a topic.

    Measured from the first message it sees; `do` is the kind of its consumer.
    """
    consumer = f"{topic}_{time.time_ns()}"
    names = {"id": consumer, "group": consumer, "topic": topic, "namesrv": cluster.namesrv}
    driver.perform({"do": do, **names, **more, "batch": batch, "count_only": True})
    already = _wait_count(driver, consumer, 1)
    begin = time.perf_counter()
    _wait_count(driver, consumer, count)
    rate = (count - already) / (time.perf_counter() - begin)
    driver.perform({"do": "stop", "id": consumer})
    return rate


def _consume(report: Report, scale: float) -> None:
    cluster, driver = _peers()
    count = int(200_000 * scale) // 100 * 100
    topic = f"java_backlog_{len(report.figures)}_{time.time_ns()}"
    send(driver, topic, "batch", count, batch=100)
    for batch, name in ((1, "one message at a time"), (32, "batch listener of 32")):
        report.add(
            f"java, consume a backlog, {name}",
            "/s",
            _backlog_rate(cluster, driver, topic, count, batch),
        )


def _spark_read(report: Report, scale: float) -> None:
    """A Java consumer and Spark's source read the same backlog.

    It lies in Apache's broker as it is configured by default.
    """
    from benchmarks import spark_read

    cluster, driver = _peers()
    count = int(400_000 * scale) // 100 * 100
    topic = f"java_to_spark_{time.time_ns()}"
    send(driver, topic, "batch", count, batch=100)
    name = "java, consume the backlog that spark reads"
    _backlog_rate(cluster, driver, topic, count, 32)  # warm first
    report.add(name, "/s", _backlog_rate(cluster, driver, topic, count, 32))
    report.add(
        "spark read from apache's broker",
        "rows/s",
        spark_read.of_apache(cluster.namesrv, topic, count),
        name,
    )


def _latency(report: Report, scale: float) -> None:
    cluster, driver = _peers()
    count = int(5_000 * scale)
    topic = f"java_latency_{time.time_ns()}"
    send(driver, topic, "sync", 10)
    driver.perform(
        {
            "do": "consumer",
            "id": topic,
            "group": topic,
            "topic": topic,
            "namesrv": cluster.namesrv,
            "count_only": True,
        }
    )
    _wait_count(driver, topic, 10)
    answer = driver.perform(
        {
            "do": "stamped",
            "id": "p",
            "consumer": topic,
            "topic": topic,
            "count": count,
            "rate": 1_000,
        }
    )
    report.add("java, end to end at 1,000/s, p50", "us", answer["p50_us"])
    report.add("java, end to end at 1,000/s, p99", "us", answer["p99_us"])
    driver.perform({"do": "stop", "id": topic})


def _filters(report: Report, scale: float) -> None:
    """A process of its own for each round: nothing of a broker is needed."""
    given = filters.messages()
    evaluator = java.Driver(memory="512m", program="Filters")
    try:
        for name, text in filters.EXPRESSIONS.items():
            wanted = sum(map(compile_expression(text).matches, given))
            for rounds in (2_000, max(1, int(filters.ROUNDS * scale * 10))):  # warm first
                answer = evaluator.perform(
                    {"do": "evaluate", "expression": text, "properties": given, "rounds": rounds}
                )
                if answer["matched"] != wanted:
                    raise SystemExit(
                        f"{text!r} matches {wanted} messages here and {answer['matched']} in Java"
                    )
            report.add(f"java, filter: {name}", "us", answer["micros"])
    finally:
        evaluator.close()


def _simple(report: Report, scale: float) -> None:
    """Apache's clients that pop, and its lite pull consumer.

    The push consumer in POP mode acknowledges each message; the client below it is
    measured too.
    """
    cluster, driver = _peers()
    count = int(25_000 * scale) // 100 * 100
    consumers = java.Driver(memory="512m", program="Consumers")
    try:
        for do, name, factor in (
            ("pop", "java, pop consumer, single acks, not merged", 1),
            ("lite", "java, lite pull consumer, backlog", 4),
        ):
            topic = f"java_{do}_{time.time_ns()}"
            send(driver, topic, "batch", factor * count, batch=100)
            report.add(
                name,
                "/s",
                _backlog_rate(
                    cluster, consumers, topic, factor * count, 32, do=do, broker=cluster.broker
                ),
            )
    finally:
        consumers.close()
    java_pops.run(
        cluster,
        lambda topic, number: send(driver, topic, "batch", number, batch=100),
        report,
        scale,
    )
    java_pops.run_merged(report, scale, SIZES)


def _rebalance(report: Report, scale: float) -> None:
    cluster, _ = _peers()
    java_groups.run(cluster.namesrv, report, scale)


def _timers(report: Report, scale: float) -> None:
    """Our client, Apache's broker: what is measured is the broker."""
    cluster, _ = _peers()
    trio.run(timers.measure, cluster.namesrv, report, scale, "apache, ")


def _transactions(report: Report, scale: float) -> None:
    """Transactions that commit at once, and the accumulator.

    The client of a transaction does not wait for the answer to its commit.
    """
    cluster, _ = _peers()
    driver = java.Driver(memory="512m", program="Transactions")
    try:
        driver.perform(
            {
                "do": "producer",
                "id": "t",
                "group": "bench-tx",
                "namesrv": cluster.namesrv,
                "answer": "UNKNOW",
            }
        )
        sent = {"do": "many", "id": "t", "topic": "java_transactions", "size": 100}
        driver.perform({**sent, "count": 2_000, "threads": 64})
        for threads in (1, 64):
            rate = driver.perform({**sent, "count": int(20_000 * scale), "threads": threads})
            report.add(f"java, transactions, {threads} at a time", "/s", rate)
        joined = {
            "do": "accumulated",
            "group": "bench-auto",
            "namesrv": cluster.namesrv,
            "topic": "java_accumulated",
            "size": 100,
        }
        driver.perform({**joined, "count": 50_000})
        report.add(
            "java, accumulated sends",
            "/s",
            driver.perform({**joined, "count": int(500_000 * scale)}),
        )
    finally:
        driver.close()


def _sync_flush(report: Report, scale: float) -> None:
    """Sends to a broker with SYNC_FLUSH, on the same disk.

    Both our client and Apache's send to it.
    """
    with (
        tempfile.TemporaryDirectory(prefix="rocketmq-bench-", ignore_cleanup_errors=True) as home,
        java.apache_cluster(Path(home), "1g", **SIZES, flushDiskType="SYNC_FLUSH") as cluster,
    ):
        trio.run(
            sync_flush.measure, cluster.namesrv, report, scale, "apache, sync flush, 8 at a time"
        )
        driver = java.Driver(memory="512m")
        try:
            driver.perform(
                {"do": "producer", "id": "p", "group": "bench", "namesrv": cluster.namesrv}
            )
            for _ in range(2):  # warm first
                sent = send(
                    driver,
                    "java_synced",
                    "async",
                    max(400, int(sync_flush.COUNT * scale)),
                    in_flight=sync_flush.TASKS,
                )
            report.add("java, sync flush, 8 in flight", "/s", sent["rate"])
        finally:
            driver.close()


_WORK = {
    "sync_flush": _sync_flush,
    "simple": _simple,
    "rebalance": _rebalance,
    "loopback": _loopback,
    "consume": _consume,
    "latency": _latency,
    "spark_read": _spark_read,
    "filters": _filters,
    "timers": _timers,
    "transactions": _transactions,
}


def run(report: Report, scale: float, names: Sequence[str]) -> None:
    """One round of what has a Java side.

    Between rounds Apache's processes are stopped: idle ones still take a good part of a
    core.
    """
    _signal(signal.SIGCONT)
    for name in names:
        if work := _WORK.get(name):
            work(report, scale)
    _signal(signal.SIGSTOP)


def _signal(number: signal.Signals) -> None:
    for cluster, driver in _running:
        for process in (*cluster.processes.values(), driver.process):
            process.send_signal(number)


def close() -> None:
    """End the Java processes."""
    _signal(signal.SIGCONT)
    _stack.close()
