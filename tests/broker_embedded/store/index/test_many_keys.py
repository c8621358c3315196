"""Messages with thousands of keys: the index takes no longer turns, no more memory and
nobody's place.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.index import service
from rocketmq_sdk.broker_embedded.store.index.keys import alike
from rocketmq_sdk.broker_embedded.store.index.noted import Waiting, batches_of
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_broker, send_request
from support.store import message, open_store, small_config
from support.turns import counted_turns

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

KEYS = 3000


def keys(number: int) -> str:
    return " ".join(f"{number}.{key}" for key in range(KEYS))


async def is_found(store: MessageStore, number: int, position: int) -> bool:
    answers = [await store.query("T", f"{number}.{key}", 32) for key in (0, KEYS - 1)]
    return all(position in answer.physical_offsets for answer in answers)


async def test_each_has_a_turn_of_its_own(autojump_clock: MockClock) -> None:
    async with open_store(
        config=small_config(mapped_file_size_commit_log=1 << 20, max_index_num=100_000)
    ) as store:
        for number in range(20):
            assert store.put(message("T", properties={"KEYS": keys(number)})).ok
        async with counted_turns() as turns:
            await store._index.drain_in_slices()
        assert turns() >= 5  # 20 messages, which this task and the store's own take apart


async def test_those_of_a_batch_as_well() -> None:
    properties = [b"k" * 20_000] * 10 + [b"k" * 100] * 250
    batches = list(batches_of("T", properties, list(range(260)), 0))
    assert [position for batch in batches for position in batch.positions] == list(range(260))
    assert [text for batch in batches for text in batch.properties] == properties
    assert max(batch.work for batch in batches) < 300
    assert Waiting(batches).characters == sum(map(len, properties))


@pytest.mark.parametrize("length", [0, 10, 300, 30_000])
async def test_parts_of_a_batch_whose_messages_are_alike(length: int) -> None:
    properties = [
        b"UNIQ_KEY\x01%032X\x02WAIT\x01%b\x02" % (number, b"w" * length) for number in range(530)
    ]
    same, positions = alike(properties), range(7, 7 + 530 * 99, 99)
    assert same is not None
    batches = list(batches_of("T", properties, positions, 0, same))
    assert [position for batch in batches for position in batch.positions] == list(positions)
    assert [text for batch in batches for text in batch.properties] == properties
    for batch in batches:
        assert batch.same == alike(batch.properties)
        assert batch.work < 400 or len(batch.positions) == 1
    assert Waiting(batches).characters == sum(map(len, properties))


async def test_more_than_can_be_indexed_in_time_is_indexed_from_the_log(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What waits in memory is bounded, and in the end each message is found."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(service, "MOST_NOTED_CHARACTERS", 200_000)
    monkeypatch.setattr(service, "_LOOK_EVERY", 1)
    positions: list[int] = []
    async with open_store(
        FaultyFileSystem(blocking=True),
        small_config(mapped_file_size_commit_log=1 << 20, max_index_num=30_000),
    ) as store:
        for number in range(20):
            result = store.put(message("T", properties={"KEYS": keys(number)}))
            positions.append(result.physical_offset)
        assert store._index.is_too_slow
        with trio.fail_after(600):
            while "the index is complete" not in caplog.text:
                await trio.sleep(0.1)
        assert store._index.noting
        assert not store._index._pending.characters
        result = store.put(message("T", properties={"KEYS": keys(20)}))
        positions.append(result.physical_offset)
        for number, position in enumerate(positions):
            assert await is_found(store, number, position)


async def test_a_broker_in_memory_forgets_old_keys_and_takes_messages(
    autojump_clock: MockClock,
) -> None:
    limit = 1024 * 1024
    async with open_broker(memory_limit=limit) as (broker, peer):
        assert isinstance(broker.store.files, MemoryFileSystem)
        for number in range(40):
            text = f"KEYS\x01{keys(number)}\x02"
            answer = await peer.ask(send_request("T", b"x", properties=text, queue_id=0))
            assert answer.code == 0, answer
            if number % 5 == 0:
                await trio.sleep(2)
                assert broker.store.files.used_bytes <= limit
        newest = broker.store.queue_unit("T", 0, broker.store.max_offset("T", 0) - 1)
        assert newest is not None
        assert await is_found(broker.store, 39, newest[0])
