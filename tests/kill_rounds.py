"""A broker killed with SIGKILL under load, again and again: `python tests/kill_rounds.py --rounds 200 [--flush SYNC_FLUSH]`.

Each round sends to a topic of its own until a random moment, kills the broker, starts it again on its directory, consumes the topic and compares with
what was acknowledged. At the end the broker is stopped and the directory verified. Exit code 0 when nothing acknowledged was lost.
"""

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parent))

from kill.test_kill import _consume_all, _Load
from rocketmq_sdk import Producer
from rocketmq_sdk.broker_embedded.store.verify import verify_directory
from support.processes import BrokerProcess


async def _round(broker: BrokerProcess, number: int, generator: random.Random) -> tuple[int, int]:
    """One kill; gives how many messages were acknowledged and how many of them were lost or changed."""
    load = _Load(f"round{number}")
    seconds = generator.uniform(0.05, 0.8)
    async with Producer("writers", namesrv=broker.namesrv, send_timeout=5) as producer, trio.open_nursery() as nursery:
        for seed in range(4):
            nursery.start_soon(load.run, producer, seed)
        with trio.fail_after(30):
            while not load.acknowledged:
                await trio.sleep(0.01)
        await trio.sleep(seconds)
        await trio.to_thread.run_sync(broker.kill)
    await trio.to_thread.run_sync(broker.start)
    found = await _consume_all(broker.namesrv, load.topic, f"check-{load.topic}", set(load.acknowledged))
    lost = 0
    for body, result in load.acknowledged.items():
        message = found.get(body)
        if message is None or (message.queue_id, message.offset) != (result.queue.queue_id, result.queue_offset):
            lost += 1
            print(f"round {number}: lost or moved {result}", flush=True)
    return len(load.acknowledged), lost


async def run_rounds(root: Path, options: argparse.Namespace) -> int:
    generator = random.Random(options.seed)
    settings: dict[str, object] = {
        "flushDiskType": options.flush,
        "mappedFileSizeCommitLog": 4 * 1024 * 1024,
        "mappedFileSizeConsumeQueue": 20 * 500,
        "maxHashSlotNum": 100_000,
        "maxIndexNum": 400_000,
    }
    broker = BrokerProcess(root / "store", settings=settings)
    await trio.to_thread.run_sync(broker.start)
    acknowledged = lost = 0
    began = time.perf_counter()
    try:
        for number in range(options.rounds):
            sent, gone = await _round(broker, number, generator)
            acknowledged, lost = acknowledged + sent, lost + gone
            if (number + 1) % 10 == 0:
                print(f"{number + 1} rounds, {acknowledged:,} acknowledged, {lost} lost, {time.perf_counter() - began:.0f} s", flush=True)
        code = await trio.to_thread.run_sync(broker.stop)
    finally:
        if broker.process is not None:
            broker.kill()
    report = verify_directory(root / "store")
    for finding in report.findings[:20]:
        print(finding)
    print(
        f"{options.rounds} rounds, {acknowledged:,} acknowledged, {lost} lost, exit code {code}, {len(report.findings)} findings in "
        f"{report.records:,} records, {time.perf_counter() - began:.0f} s"
    )
    return 1 if lost or code or report.findings else 0


def main() -> int:
    """Run the rounds in a directory that is removed at the end."""
    parser = argparse.ArgumentParser(description="Kill a broker under load and count what it lost.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flush", choices=["ASYNC_FLUSH", "SYNC_FLUSH"], default="ASYNC_FLUSH")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    root = Path(tempfile.mkdtemp(prefix="kill-rounds-"))
    try:
        return trio.run(run_rounds, root, options)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
