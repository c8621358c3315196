"""A checkpoint that an earlier release wrote is gone on from: its offsets are read, its
planned batch is read as it was planned.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.spark.plan.offsets import QueueKey, from_json, to_json
from support.spark_golden import CHECKPOINT, TOPIC, read, send

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.processes import BrokerProcess


def planned(checkpoint: Path, batch: int) -> str:
    """The text of the offsets at which a batch ends."""
    return (checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_offsets_of_the_checkpoint_are_read_and_written_alike(batch: int) -> None:
    text = planned(CHECKPOINT, batch)
    places = from_json(json.loads(text))
    assert set(places) == {QueueKey(TOPIC, "broker-a", 0), QueueKey(TOPIC, "broker-a", 1)}
    assert sum(places.values()) == (25, 50, 60)[batch]
    assert json.dumps(to_json(places), separators=(",", ":")) == text.replace(" ", "")


@pytest.mark.real_time
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_query_goes_on_from_the_checkpoint(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    shutil.copytree(CHECKPOINT, checkpoint)
    trio.run(send, broker.namesrv, (0, 0), (43, 22))
    rows = [count for count in read(spark, broker.namesrv, checkpoint, out) if count]
    assert rows == [10, 5]
    done = from_json(json.loads(planned(CHECKPOINT, 1)))
    stop = from_json(json.loads(planned(CHECKPOINT, 2)))
    assert planned(checkpoint, 2) == planned(CHECKPOINT, 2)
    first = {bytes(row.body) for row in spark.read.parquet(str(out / "2")).collect()}
    assert first == {
        b"%d-%d" % (queue.queue_id, offset)
        for queue in stop
        for offset in range(done[queue], stop[queue])
    }
    new = sorted(bytes(row.body) for row in spark.read.parquet(str(out / "3")).collect())
    assert new == [b"0-40", b"0-41", b"0-42", b"1-20", b"1-21"]
