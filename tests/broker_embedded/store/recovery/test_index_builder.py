"""An index that a start has to build is built while the store is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store import message_store
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.recovery.clean_stop import CleanStopNote
from rocketmq_sdk.broker_embedded.store.recovery.index_builder import IndexBuilder
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import message, open_store, small_config

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

CONFIG = small_config(max_hash_slot_num=100, max_index_num=400)
COUNT = 300


def put(store: MessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        sent = message(queue_id=number % 3, properties={"KEYS": f"key{number}"})
        assert store.put(sent).ok


async def found(store: MessageStore, count: int) -> list[int]:
    """Which messages are not found by their keys exactly once."""
    wrong = []
    for number in range(count):
        answer = await store.query("TopicA", f"key{number}", 10)
        if len(answer.records) != 1:
            wrong.append(number)
    return wrong


async def killed() -> MemoryFileSystem:
    files = MemoryFileSystem(write_through=True)
    async with open_store(files, CONFIG) as store:
        put(store, 0, COUNT)
    files.remove_tree("index")
    files.write("abort", b"")
    return files


def never_build(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(_self: IndexBuilder) -> None:
        return

    monkeypatch.setattr(IndexBuilder, "run", run)


async def test_messages_are_taken_before_it_is_built_and_found_with_the_others() -> None:
    files = await killed()
    async with open_store(files, CONFIG) as store:
        put(store, COUNT, 50)
        for number in range(50, 100):
            await trio.lowlevel.checkpoint()
            put(store, COUNT + number, 1)
        assert await found(store, COUNT + 100) == []
    assert verify(FileSystemReader(files)).findings == []


async def test_a_lookup_says_that_it_is_being_built(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    files = await killed()
    never_build(monkeypatch)
    async with open_store(files, CONFIG) as store:
        began = trio.current_time()
        with pytest.raises(StoreError, match=r"being built and has the log up to 0 of \d+"):
            await store.query("TopicA", "key1", 10)
        assert 1 < trio.current_time() - began < 5


@pytest.mark.parametrize("stops", [1, 2])
async def test_a_clean_stop_does_not_take_it_for_complete(
    stops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = await killed()
    total = COUNT
    for _ in range(stops):
        with monkeypatch.context() as patch:
            never_build(patch)
            async with open_store(files, CONFIG) as store:
                put(store, total, 20)
                total += 20
        assert not files.exists("abort")
        assert verify(FileSystemReader(files)).findings == []
    async with open_store(files, CONFIG) as store:
        assert store.started_clean
        assert await found(store, total) == []
    assert verify(FileSystemReader(files)).findings == []


async def test_a_stop_in_the_middle_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    files = await killed()
    added = 0
    with monkeypatch.context() as patch:
        run_in_thread = MemoryFileSystem.run

        async def run(self: MemoryFileSystem, operation):  # type: ignore[no-untyped-def]
            nonlocal added
            if "_read" in getattr(operation, "__qualname__", ""):
                added += 1
                if added > 2:
                    await trio.sleep_forever()
            return await run_in_thread(self, operation)

        patch.setattr(MemoryFileSystem, "run", run)
        patch.setattr("rocketmq_sdk.broker_embedded.store.recovery.index_builder._AT_A_TIME", 40)
        patch.setattr(message_store, "_BUILD_AT_CLOSE", 0.01)
        async with open_store(files, CONFIG) as store:
            while added <= 2:
                await trio.lowlevel.checkpoint()
    assert b"indexEnd" in (files.read("cleanStop.json") or b"")
    assert files.file_sizes("index")
    assert verify(FileSystemReader(files)).findings == []
    async with open_store(files, CONFIG) as store:
        assert await found(store, COUNT) == []
    assert verify(FileSystemReader(files)).findings == []


async def test_what_another_broker_added_behind_the_gap_is_built_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Apache's broker knows nothing of the gap, and indexes what it stores."""
    files = await killed()
    with monkeypatch.context() as patch:
        never_build(patch)
        async with open_store(files, CONFIG):
            pass
        note = files.read("cleanStop.json") or b""
        patch.setattr(message_store, "read_note", lambda _files: CleanStopNote())
        patch.setattr(
            "rocketmq_sdk.broker_embedded.store.index.service.IndexService.end_at",
            lambda self, _end, _known: self.completed(),
        )
        async with open_store(files, CONFIG) as store:
            put(store, COUNT, 20)
    assert files.file_sizes("index")
    files.write("cleanStop.json", note)
    async with open_store(files, CONFIG) as store:
        assert await found(store, COUNT + 20) == []
    assert verify(FileSystemReader(files)).findings == []


async def test_messages_stored_while_the_index_was_off_are_added_later() -> None:
    files = MemoryFileSystem(write_through=True)
    off = small_config(max_hash_slot_num=100, max_index_num=400, message_index_enable=False)
    for life, config in enumerate((CONFIG, off, off, CONFIG)):
        async with open_store(files, config) as store:
            put(store, 20 * life, 20)
            if config is CONFIG:
                assert await found(store, 20 * life + 20) == []


async def test_a_log_that_cannot_be_read_for_a_while_is_read_later(
    autojump_clock: object,
) -> None:
    files = FaultyFileSystem(1)
    async with open_store(files, CONFIG) as store:
        put(store, 0, COUNT)
    files.remove_tree("index")
    files.write("abort", b"")
    async with open_store(files, CONFIG) as store:
        files.faults.fail(Operation.READ, f"commitlog/{0:020d}", times=3)
        await trio.sleep(10)
        assert await found(store, COUNT) == []


async def test_a_page_that_cannot_be_read_costs_its_records_only_and_is_named(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFileSystem(1)
    config = small_config(max_hash_slot_num=100, mapped_file_size_commit_log=24 * 1024)
    async with open_store(files, config) as store:
        put(store, 0, COUNT)
    files.remove_tree("index")
    files.write("abort", b"")
    async with open_store(files, config) as store:
        first, last = store.min_physical_offset, store.max_physical_offset
        bad = range(8192, 12288)
        files.faults.fail(Operation.READ, f"commitlog/{0:020d}", at=bad)
        await trio.sleep(60)
        assert await found(store, COUNT) == await damaged(store, bad)
        assert store.unreadable.count == 1
        assert store.unreadable.last is not None
        assert first < store.unreadable.last.place.position <= bad.start < last
        assert "what the log has at" in caplog.text
        await store.unreadable.save()
    told = [
        finding
        for finding in verify(FileSystemReader(files)).findings
        if finding.kind == "set_aside"
    ]
    assert [str(store.unreadable.last.place) in finding.problem for finding in told] == [True]


async def damaged(store: MessageStore, bad: range) -> list[int]:
    """The numbers of the messages of which these bytes are a part."""
    numbers = []
    for number in range(COUNT):
        units = await store.follow("test").units("TopicA", number % 3, number // 3, 1)
        assert isinstance(units, list)
        (position, size, _code) = units[0]
        if position < bad.stop and bad.start < position + size:
            numbers.append(number)
    assert numbers
    return numbers
