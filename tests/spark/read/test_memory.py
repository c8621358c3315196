"""What a worker holds while it reads large bodies: counted in a process of its own."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import Message, Producer
from support.paths import ROOT
from support.processes import broker_process

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(120)]
READS = """
import resource, sys
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.read.batch import TaskReader
from rocketmq_sdk.spark.read.edges import batch_ranges
from rocketmq_sdk.spark.schema import COLUMNS

settings = parse({"namesrvAddr": sys.argv[1], "subscribe": "T"}, Use.BATCH)
ranges = bridge.run(batch_ranges, settings)
rows = size = 0
for batch in TaskReader(settings, COLUMNS).read(ranges):
    rows += batch.num_rows
    size += batch.nbytes
print(rows, size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
MEGABYTE = 1 << 20
RANDOM = random.Random(1)


async def fill(namesrv: str, count: int, body: Callable[[int], bytes]) -> None:
    async with Producer("filler", namesrv=namesrv) as producer:
        for number in range(count):
            await producer.send(Message("T", body(number)))


@pytest.mark.parametrize(
    ("count", "body"),
    [
        pytest.param(400, lambda number: b"%8d" % number * (MEGABYTE // 8), id="compressible"),
        pytest.param(120, lambda _: RANDOM.randbytes(MEGABYTE), id="random"),
    ],
)
def test_bodies_of_a_megabyte_take_a_bounded_memory(
    count: int, body: Callable[[int], bytes]
) -> None:
    """What is pulled and inflated is counted, however well it was compressed."""
    with broker_process() as broker:
        trio.run(fill, broker.namesrv, count, body)
        done = subprocess.run(
            [sys.executable, "-c", READS, broker.namesrv],
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 0, done.stderr
    rows, size, peak = map(int, done.stdout.split())
    assert rows == count
    assert size > count * MEGABYTE
    assert peak < 400 * 1024, f"{peak} KiB"
