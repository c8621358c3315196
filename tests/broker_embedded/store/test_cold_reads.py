"""What reads old data does so in threads: retention, and requests of all kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.bad_disk import disk_of, open_on_disk, push_out
from support.store import message, open_store

if TYPE_CHECKING:
    from trio.testing import MockClock

QUEUES = 40


def small_files() -> StoreConfig:
    return StoreConfig(
        mapped_file_size_commit_log=64 * 1024,
        mapped_file_size_consume_queue=20 * 10,
        message_index_enable=False,
        clean_resource_interval=1000,
    )


async def filled_disk() -> FaultyFileSystem:
    files = FaultyFileSystem(blocking=True)
    async with open_store(files, small_files()) as store:
        for _ in range(30):
            for queue_id in range(QUEUES):
                assert store.put(message("T", queue_id, b"x" * 80)).ok
    return files


async def test_retention_reads_the_queues_in_threads(autojump_clock: MockClock) -> None:
    files = await filled_disk()
    async with open_store(files, small_files()) as store:
        slow = files.faults.slow(Operation.READ, "consumequeue/*", delay=0.005)
        files.told_used_ratio = 0.95
        store.retention.clean_now()
        await trio.sleep(120)
        assert store.min_physical_offset > 0
        assert slow.hits > QUEUES
        assert slow.on_loop == 0
        slow.lift()
        for queue_id in range(QUEUES):
            least = store.min_offset("T", queue_id)
            unit = store.queue_unit("T", queue_id, least)
            assert unit is not None
            assert unit[0] >= store.min_physical_offset
            before = store.queue_unit("T", queue_id, least - 1)
            assert before is None


async def test_a_queue_that_cannot_be_read_keeps_no_other_from_being_cleaned(
    autojump_clock: MockClock,
) -> None:
    files = await filled_disk()
    async with open_store(files, small_files()) as store:
        bad = files.faults.fail(Operation.READ, "consumequeue/T/3/*")
        files.told_used_ratio = 0.95
        store.retention.clean_now()
        await trio.sleep(120)
        least = [store.min_offset("T", queue_id) for queue_id in range(QUEUES)]
        assert least[3] == 0
        assert all(offset for queue_id, offset in enumerate(least) if queue_id != 3)
        bad.lift()
        await trio.sleep(20)
        assert store.min_offset("T", 3) > 0


def asked(broker: Any) -> list[tuple[RequestCode, dict[str, Any]]]:
    group = {"group": "G", "consumerGroup": "G"}
    unit = broker.store.queue_unit("T", 0, 0)
    return [
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "T", "queueId": 0, "timestamp": 5}),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "T", "queueId": 0}),
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}),
        (RequestCode.GET_CONSUME_STATS, {**group, "topic": "T"}),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {**group, "topic": "T"}),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
        (RequestCode.GET_BROKER_RUNTIME_INFO, {}),
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            {"topic": "T", "group": "G", "timestamp": 5, "isForce": "true"},
        ),
        (
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {"offset": unit[0], "group": "G", "delayLevel": 3, "originMsgId": "x"},
        ),
    ]


@pytest.mark.parametrize("number", range(9))
async def test_requests_about_old_messages_read_in_threads(
    autojump_clock: MockClock, number: int
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        for _ in range(20):
            await peer.send("T", b"x" * 500)
        broker.core.groups.get("G")
        broker.core.offsets.commit("G", "T", 0, 3)
        await push_out(peer)
        code, fields = asked(broker)[number]
        slow = disk_of(broker).faults.slow(Operation.READ, delay=0.005)
        answer = await peer.ask(code, **fields)
        assert answer.code == 0, answer
        assert slow.hits
        assert slow.on_loop == 0
        slow.lift()
        bad = disk_of(broker).faults.fail(Operation.READ)
        await peer.ask(code, **fields)
        bad.lift()
        assert (await peer.send("T", b"alive")).code == 0
