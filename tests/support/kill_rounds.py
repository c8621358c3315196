"""A broker killed with SIGKILL under load, again and again.

Each round sends to a topic of its own until a random moment, kills the broker, starts
it again on its directory, consumes the topic and compares with what was acknowledged.
After some rounds (`each`) the broker is stopped, the directory verified, and a new
one begun: brokers that live for seconds only never write their checkpoint, so each
start reads the whole log again.
"""

from __future__ import annotations

import random
import shutil
import time
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk import Producer
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from support.kill_load import Load, consume_all
from support.processes import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path


async def _round(broker: BrokerProcess, number: int, generator: random.Random) -> tuple[int, int]:
    """One kill; gives how many messages were acknowledged and how many of them were
    lost or changed.
    """
    load = Load(f"round{number}")
    seconds = generator.uniform(0.05, 0.8)
    async with (
        Producer("writers", namesrv=broker.namesrv, send_timeout=5) as producer,
        trio.open_nursery() as nursery,
    ):
        for seed in range(4):
            nursery.start_soon(load.run, producer, seed)
        with trio.fail_after(300):  # the machine may be busy with something else
            while not load.acknowledged:
                await trio.sleep(0.01)
        await trio.sleep(seconds)
        await trio.to_thread.run_sync(broker.kill)
    await trio.to_thread.run_sync(broker.start)
    found = await consume_all(
        broker.namesrv, load.topic, f"check-{load.topic}", set(load.acknowledged)
    )
    lost = 0
    for body, result in load.acknowledged.items():
        message = found.get(body)
        if message is None or (message.queue_id, message.offset) != (
            result.queue.queue_id,
            result.queue_offset,
        ):
            lost += 1
            print(f"round {number}: lost or moved {result}", flush=True)
    return len(load.acknowledged), lost


class Totals:
    """What all rounds together came to."""

    def __init__(self) -> None:
        self.rounds = self.acknowledged = self.lost = self.findings = self.records = (
            self.bad_exits
        ) = 0
        self.began = time.perf_counter()

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.acknowledged:,} acknowledged, {self.lost} lost, "
            f"{self.bad_exits} bad exits, {self.findings} findings in "
            f"{self.records:,} records, {time.perf_counter() - self.began:.0f} s"
        )


async def run_store(
    root: Path, rounds: int, flush: str, generator: random.Random, totals: Totals
) -> None:
    """Some rounds on one directory."""
    settings: dict[str, object] = {
        "flushDiskType": flush,
        "mappedFileSizeCommitLog": 4 * 1024 * 1024,
        "mappedFileSizeConsumeQueue": 20 * 500,
        "maxHashSlotNum": 100_000,
        "maxIndexNum": 400_000,
    }
    broker = BrokerProcess(root / "store", settings=settings)
    await trio.to_thread.run_sync(broker.start)
    try:
        for _ in range(rounds):
            sent, gone = await _round(broker, totals.rounds, generator)
            totals.rounds += 1
            totals.acknowledged += sent
            totals.lost += gone
        totals.bad_exits += bool(await trio.to_thread.run_sync(broker.stop))
    finally:
        if broker.process is not None:
            broker.kill()
    report = verify_directory(root / "store")
    for finding in report.findings[:20]:
        print(finding)
    totals.findings += len(report.findings)
    totals.records += report.records
    print(totals, flush=True)


async def run_rounds(root: Path, *, rounds: int, each: int, seed: int, flush: str) -> bool:
    """All rounds, some (`each`) on one directory; whether nothing acknowledged was
    lost.
    """
    generator, totals = random.Random(seed), Totals()
    while totals.rounds < rounds:
        store = root / str(totals.rounds)
        await run_store(
            store,
            min(each, rounds - totals.rounds),
            flush,
            generator,
            totals,
        )
        shutil.rmtree(store)
    return not (totals.lost or totals.bad_exits or totals.findings)
