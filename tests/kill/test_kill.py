"""Processes that die: a consumer, a broker under load, a broker that is interrupted.
Real kills, real files, real sockets.
"""

from __future__ import annotations

import random
import signal
import struct
import threading
from typing import TYPE_CHECKING

import crcmod.predefined
import pytest
import trio

from rocketmq_sdk import (
    Admin,
    Message,
    Producer,
    SendResult,
)
from support.consumer_process import CONSUMER, lines_of
from support.kill_load import Load, consume_all
from support.processes import broker_process, python_process

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]


async def _publish(namesrv: str, topic: str, count: int) -> None:
    async with Producer("writers", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic, queues=4)
        for start in range(0, count, 200):
            await producer.send_batch(
                [Message(topic, b"%d" % number) for number in range(start, min(start + 200, count))]
            )


async def test_a_killed_consumer_is_replaced_and_every_message_is_consumed(tmp_path: Path) -> None:
    count = 100_000
    with broker_process() as broker:
        await _publish(broker.namesrv, "numbers", count)
        first, second = tmp_path / "first", tmp_path / "second"
        with python_process(CONSUMER, broker.namesrv, "numbers", str(first), "readers") as victim:
            with trio.fail_after(60):
                while len(lines_of(first)) < count // 4:
                    await trio.sleep(0.02)
            victim.kill()
            victim.wait()
        consumed_by_first = set(lines_of(first))
        assert len(consumed_by_first) < count, "the first consumer was not killed in the middle"
        with python_process(CONSUMER, broker.namesrv, "numbers", str(second), "readers"):
            with trio.fail_after(120):
                while len(consumed_by_first | set(lines_of(second))) < count:
                    await trio.sleep(0.2)
    assert consumed_by_first | set(lines_of(second)) == {b"%d" % number for number in range(count)}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_killed_broker_has_every_acknowledged_message(tmp_path: Path, flush: str) -> None:
    settings = {
        "flushDiskType": flush,
        "mappedFileSizeCommitLog": 4 * 1024 * 1024,
        "mappedFileSizeConsumeQueue": 20 * 500,
    }
    with broker_process(tmp_path / "store", **settings) as broker:
        expected: dict[str, dict[bytes, SendResult]] = {}
        for round_number in range(3):
            load = Load(f"load{round_number}")
            fresh = f"fresh{round_number}"
            async with (
                Producer("writers", namesrv=broker.namesrv, send_timeout=5) as producer,
                trio.open_nursery() as nursery,
            ):
                for seed in range(4):
                    nursery.start_soon(load.run, producer, seed)
                with trio.fail_after(60):
                    while len(load.acknowledged) < random.Random(round_number).randrange(500, 4000):
                        await trio.sleep(0.01)
                last = await producer.send(Message(fresh, b"created a moment before"))
                broker.kill()
            expected[load.topic] = load.acknowledged
            expected[fresh] = {b"created a moment before": last}
            broker.start()
        for topic, acknowledged in expected.items():
            found = await consume_all(broker.namesrv, topic, f"check-{topic}", set(acknowledged))
            assert found.keys() >= acknowledged.keys()
            for body, result in acknowledged.items():
                message = found[body]
                assert (message.queue_id, message.offset, message.offset_message_id) == (
                    result.queue.queue_id,
                    result.queue_offset,
                    result.offset_message_id,
                )
                assert message.message_id == result.message_id


_RECORD_HEAD = struct.Struct(">iiiii q q i q 8s q 8s i q i")
_CRC = crcmod.predefined.mkCrcFun("crc-32")


def _whole_records(log: Path) -> int:
    """Walk the files of a commit log and check each record with crcmod; the number of
    records. Fails at anything torn.
    """
    count = 0
    for path in sorted(log.iterdir()):
        data = path.read_bytes()
        position = 0
        while position + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, position)
            if magic == 0xCBD43194 or size == 0:
                break
            assert magic == 0xDAA320A7, f"{path.name} has {magic:08X} at {position}"
            fields = _RECORD_HEAD.unpack_from(data, position)
            body_at = position + _RECORD_HEAD.size
            body = data[body_at : body_at + fields[14]]
            assert _CRC(body) & 0x7FFFFFFF == fields[2], (
                f"{path.name} has a torn body at {position}"
            )
            assert fields[6] == int(path.name) + position
            topic_at = body_at + fields[14]
            properties_at = topic_at + 1 + data[topic_at]
            (properties_length,) = struct.unpack_from(">h", data, properties_at)
            assert position + size == properties_at + 2 + properties_length
            position += size
            count += 1
        assert not any(data[position + 8 :]), (
            f"{path.name} has bytes behind its last record at {position}"
        )
    return count


@pytest.mark.parametrize("delay", [0.05, 0.3, 0.8])
async def test_an_interrupted_broker_ends_cleanly_without_a_torn_record(
    tmp_path: Path, delay: float
) -> None:
    with broker_process(tmp_path / "store", mappedFileSizeCommitLog=4 * 1024 * 1024) as broker:
        load = Load("load")
        codes: list[int] = []
        async with (
            Producer("writers", namesrv=broker.namesrv, send_timeout=2) as producer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(load.run, producer, 1)
            with trio.fail_after(60):
                while len(load.acknowledged) < 100:
                    await trio.sleep(0.01)
            interrupt = threading.Timer(delay, lambda: codes.append(broker.signal(signal.SIGINT)))
            interrupt.start()
            await trio.to_thread.run_sync(interrupt.join)
        assert codes == [0]
        assert not (tmp_path / "store" / "abort").exists()
        assert _whole_records(tmp_path / "store" / "commitlog") >= len(load.acknowledged)
