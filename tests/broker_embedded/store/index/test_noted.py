"""Batches that wait to be indexed, and are indexed together."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import trio
import trio.testing

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.index import noted
from rocketmq_sdk.protocol.batch_codec import encode_batch
from support.store import message, open_store, small_config

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

SMALL = {"max_hash_slot_num": 7, "max_index_num": 20, "memory_limit": 8 * 1024 * 1024}
TIMES = 16
"""Bytes at the start of an index file that hold the times of its first and last
message.
"""


async def test_the_index_of_batches_is_that_of_single_messages(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes in the files but for the times, also where a batch begins a file,
    fills one or spans several, and where one or several are indexed when nobody waits.
    """
    random = Random(3)
    texts = [
        f"UNIQ_KEY\x01{number:032X}\x02" + random.choice(["", "TAGS\x01x\x02", "KEYS\x01a b\x02"])
        for number in range(60)
    ]
    indexes: list[list[bytes]] = []
    calls: list[Callable[[], None]] = []
    left: list[int] = []
    for size, idle in ((1, 0), (7, 0), (60, 0), (3, 3), (3, 12), (2, 30)):
        monkeypatch.setattr(noted, "_MANY", idle)
        files = MemoryFileSystem(write_through=True)
        async with open_store(
            files, small_config(**{**SMALL, "mapped_file_size_commit_log": 1 << 16})
        ) as store:
            if idle:
                store.put_off(lambda _call: False, lambda call: calls.append(call) is None)
            for first in range(0, len(texts), size):
                items = [(0, b"body", text.encode()) for text in texts[first : first + size]]
                result = store.put_batch(message(body=encode_batch(items)))
                assert (result.count, len(result.physical_offsets or ())) == (
                    len(items),
                    len(items),
                )
                if idle:
                    assert len(calls) == (1 if store._index._pending.many else 0)
                    for call in calls:
                        call()
                        left.append(store._index.pending)
                    calls.clear()
                    if first % 5:
                        continue
                assert (await store.query("TopicA", f"{first:032X}", 1)).physical_offsets == [
                    result.physical_offset
                ]
        indexes.append(
            [
                files.open(f"index/{name}").pread(size, 0)[TIMES:]
                for name, size in sorted(files.file_sizes("index"))
            ]
        )
    assert len(indexes[0]) > 3
    assert all(index == indexes[0] for index in indexes)
    assert 0 in left  # what is full, or not there yet, is left to others
    assert left[0] == 3


async def test_few_messages_are_indexed_with_the_next_flush(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Those that are not enough for the work between requests."""
    calls: list[Callable[[], None]] = []
    async with open_store(MemoryFileSystem(write_through=True)) as store:
        store.put_off(lambda _call: False, lambda call: calls.append(call) is None)
        index = store._index
        for first in (0, 10):
            items = [(0, b"body", b"UNIQ_KEY\x01%032X\x02" % (first + n)) for n in range(10)]
            positions = store.put_batch(message(body=encode_batch(items))).physical_offsets or ()
            assert index.pending == 10
            assert index.indexed_up_to(store.dispatched.value) == positions[0]
            await trio.sleep(1.5)
            assert index.pending == 0
            assert index.last_update[1] == positions[-1]
        assert not calls


async def test_few_messages_with_much_to_index_do_not_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """As their properties would fill the memory before the next flush."""
    calls: list[Callable[[], None]] = []
    config = small_config(mapped_file_size_commit_log=1 << 20)
    async with open_store(MemoryFileSystem(write_through=True), config) as store:
        store.put_off(lambda _call: False, lambda call: calls.append(call) is None)
        store.put(message())
        await store.query("TopicA", "U1", 1)
        for number in range(8):
            text = b"UNIQ_KEY\x01%032X\x02more\x01%b\x02" % (number, b"x" * 30_000)
            store.put_batch(message(body=encode_batch([(0, b"body", text)])))
            calls.pop()()
            assert store._index.pending == 0
