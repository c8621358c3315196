"""One message, several together and a client's batch go one way into the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.append.replicas import InSyncRules, Replicas
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.property_crc import verify_property_crc
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import PutResult

    Append = Callable[[MessageStore, list[bytes]], list[PutResult]]


def alone(store: MessageStore, parts: list[bytes]) -> list[PutResult]:
    return [store.put(message(body=body)) for body in parts]


def together(store: MessageStore, parts: list[bytes]) -> list[PutResult]:
    return store.put_together([message(body=body) for body in parts])


def batch(store: MessageStore, parts: list[bytes]) -> list[PutResult]:
    return [store.put_batch(message(body=encode_batch([(0, body, b"") for body in parts])))]


ways = pytest.mark.parametrize("append", [alone, together, batch])


@ways
async def test_each_record_carries_the_crc_of_its_properties(append: Append) -> None:
    files = MemoryFileSystem(write_through=True)
    config = small_config(
        mapped_file_size_commit_log=65536, enabled_append_prop_crc=True, force_verify_prop_crc=True
    )
    async with open_store(files, config) as store:
        for number in range(4):
            results = append(store, [b"%d-%d" % (number, part) for part in range(3)])
            assert all(result.ok for result in results)
        wanted = [b"%d-%d" % (number, part) for number in range(4) for part in range(3)]
        position = 0
        while position < store.max_physical_offset:
            record = store.record_at(position)
            assert record is not None
            assert verify_property_crc(record)
            position += len(record)
    files.write("abort", b"")
    async with open_store(files, config) as store:
        assert bodies(store) == wanted


@ways
@pytest.mark.parametrize("flush", FlushDiskType)
async def test_a_batch_whose_answer_has_not_left_is_in_front_of_what_follows(
    append: Append, flush: FlushDiskType
) -> None:
    """It goes into its queue once the answer has left, or before anything else does."""
    waiting: list[Callable[[], None]] = []
    is_sync = flush is FlushDiskType.SYNC_FLUSH
    async with open_store(MemoryFileSystem(), small_config(flush_disk_type=flush)) as store:
        store.put_off(lambda call: waiting.append(call) is None, lambda _call: False)
        batch(store, [b"a", b"b"])
        assert bodies(store) == []
        append(store, [b"c", b"d"])
        assert bodies(store)[:2] == ([] if is_sync else [b"a", b"b"])
        (last,) = batch(store, [b"e"])
        if is_sync:
            assert not waiting  # they wait for their sync
            assert await store.wait_durable(last) is PutStatus.PUT_OK
        else:
            assert b"e" not in bodies(store)
            for call in waiting:
                call()
        assert bodies(store) == [b"a", b"b", b"c", b"d", b"e"]
        store.put_off(lambda _call: False, lambda _call: False)
        batch(store, [b"f"])
        assert bodies(store)[5:] == ([] if is_sync else [b"f"])


@ways
async def test_too_few_replicas_refuse_it(append: Append) -> None:
    async with open_store() as store:
        assert all(result.ok for result in append(store, [b"a", b"b"]))
        end = store.max_physical_offset
        store.replicate_to(Replicas(InSyncRules(2, 2)))
        statuses = {result.status for result in append(store, [b"c", b"d"])}
        assert statuses == {PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH}
        assert store.max_physical_offset == end


@ways
async def test_a_slave_refuses_it(append: Append) -> None:
    async with open_store() as store:
        store.become_slave()
        statuses = {result.status for result in append(store, [b"c", b"d"])}
        assert statuses == {PutStatus.SERVICE_NOT_AVAILABLE}
        assert store.max_physical_offset == 0


@ways
async def test_what_fits_no_file_is_illegal_and_leaves_the_log_as_it_was(append: Append) -> None:
    async with open_store() as store:
        assert append(store, [b"a"])[0].ok
        end = store.max_physical_offset
        assert append(store, [b"x" * 5000])[0].status is PutStatus.MESSAGE_ILLEGAL
        assert append(store, [b"x" * 5000] * 2)[-1].status is PutStatus.MESSAGE_ILLEGAL
        assert store.max_physical_offset == end
        assert append(store, [b"b"])[0].ok
        assert bodies(store) == [b"a", b"b"]


@ways
@pytest.mark.parametrize("flush", FlushDiskType)
async def test_runs_go_into_the_next_file_as_a_whole(append: Append, flush: FlushDiskType) -> None:
    files = MemoryFileSystem(write_through=True)
    config = small_config(flush_disk_type=flush)
    wanted: list[bytes] = []
    async with open_store(files, config) as store:
        for number in range(30):
            parts = [b"%02d-%d" % (number, part) * 20 for part in range(3)]
            results = append(store, parts)
            assert all(result.ok for result in results)
            assert results[0].queue_offset == len(wanted)
            wanted += parts
            if append is not alone:
                last = results[-1]
                end = last.physical_offset + last.size - 1
                assert results[0].physical_offset // 4096 == end // 4096
        await store.flush()
        assert bodies(store) == wanted
    files.write("abort", b"")
    async with open_store(files, config) as store:
        assert bodies(store) == wanted


async def test_a_prepared_message_of_a_run_is_in_no_queue_but_found_by_its_key() -> None:
    config = small_config(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    async with open_store(config=config) as store:
        half = message(body=b"half", properties={"KEYS": "half"}, sys_flag=4)
        results = store.put_together([message(body=b"a"), half, message(body=b"b")])
        assert [result.queue_offset for result in results] == [0, 0, 1]
        assert store.dispatched.value == 0
        await store.flush()
        assert store.dispatched.value == store.max_physical_offset
        assert bodies(store) == [b"a", b"b"]
        found = await store.query("TopicA", "half", 10)
        assert found.physical_offsets == [results[1].physical_offset]
