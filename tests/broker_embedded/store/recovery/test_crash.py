"""The crash suite: a store that is cut off at seeded points.
`python -m tools.crash_points --points 10000` runs more of them.
"""

from __future__ import annotations

import traceback
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.store.append.appender import Appender
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.flush.log_flusher import LogFlusher
from rocketmq_sdk.broker_embedded.store.flush.sync_thread import SyncThread
from rocketmq_sdk.broker_embedded.store.index.noted import NotedBatch
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.errors import StoreCorruptError, StoreError, StoreFullError, StoreLockedError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_device import PowerCutError
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.crash import run_seed
from support.crash_life import Life
from support.seeded import run_alone, run_seeds
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.append.run import Run
    from rocketmq_sdk.broker_embedded.store.files.file_system import Mailbox

POINTS = 150
QUICK = 30
SLICE = 30
FORKS = 8
"""Power cuts beside each life."""


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(101_107, id="retention left one log file, of which nothing was durable"),
        pytest.param(106_722, id="a removed index file came back beside a new one"),
        pytest.param(106_610, id="units of expired records, and their file, were never synced"),
        pytest.param(107_137, id="the first log file's sync failed and it was used all the same"),
    ],
)
def test_points_that_once_failed(seed: int) -> None:
    run_alone(partial(run_seed, together=False), seed)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[] if first < QUICK else pytest.mark.slow)
        for first in range(0, POINTS, SLICE)
    ],
)
def test_crash_points(first: int) -> None:
    """Append, roll, flush, configuration, deletion, recovery, second crash: nothing
    acknowledged is lost, nothing else appears.
    """
    run = partial(run_seed, forks=FORKS)
    assert run_seeds(run, range(first, first + SLICE)) > SLICE * FORKS // 2


class Impatient(SyncThread):
    """Tells the loop of a round before it has synced."""

    def _run(self, rounds: Mailbox) -> None:
        while (sync_round := self._newest(rounds)) is not None:
            self._token.run_sync_soon(self._done, sync_round, None)
            try:
                sync_round.sync()
            except StoreError as error:
                self._token.run_sync_soon(self._done, sync_round, error)
                return


class Generous(LogFlusher):
    """Takes for durable what was written when a round ended, not when it began."""

    def _flushed_to(self, target: int, timestamp: int) -> None:
        super()._flushed_to(max(target, self._log.written), timestamp)


@pytest.mark.parametrize(
    ("target", "mistake", "forks"),
    [
        ("log_flusher.SyncThread", Impatient, 0),
        ("message_store.LogFlusher", Generous, 0),
        ("message_store.LogFlusher", Generous, FORKS),
    ],
)
def test_the_points_find_mistakes_between_the_sync_thread_and_the_loop(
    target: str, mistake: type, forks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if forks:  # nothing but what a fork has lost tells of it; shorter lives find it sooner
        monkeypatch.setattr(Life, "check_durable", lambda *_: None)
    room = "flush." if target.startswith("log_flusher") else ""
    monkeypatch.setattr(f"rocketmq_sdk.broker_embedded.store.{room}{target}", mistake)
    found: list[str] = []
    for seed in range(150):
        try:
            run_alone(partial(run_seed, forks=forks, together=not forks), seed)
        except (AssertionError, ExceptionGroup) as error:
            found.append("".join(traceback.format_exception(error)))
        if len(found) == 3:  # not by the luck of one seed
            break
    assert len(found) == 3
    assert all("lost " in text for text in found)
    assert not forks or "after a power cut before operation" in "".join(found)


def of_any_topic(batch: NotedBatch, other: NotedBatch) -> bool:
    """`NotedBatch.goes_with` without a look at topics."""
    return batch.same is other.same is None and not batch.made and not other.made


def into_reversed_queues(appender: Appender, run: Run, now: int) -> None:
    """`Appender._into_queues` with the units of all queues but one in a wrong order."""
    for lane in run.lanes[1:]:
        lane.units.reverse()
    _into_queues(appender, run, now)


_into_queues = Appender._into_queues


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (NotedBatch, "goes_with", of_any_topic),
        (Appender, "_into_queues", into_reversed_queues),
    ],
)
def test_the_points_find_mistakes_with_messages_that_came_together(
    owner: type, name: str, mistake: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    found = 0
    for seed in range(60):
        try:
            run_alone(run_seed, seed)
        except (AssertionError, ExceptionGroup):
            found += 1
        if found == 3:
            break
    assert found == 3


def test_only_what_was_synced_is_certain() -> None:
    """Pages, sizes and names come back or not, by the seed; what a sync covered always
    does.
    """
    files = FaultyFileSystem(page_size=512)
    file = files.create("a/one", 4096)
    file.pwrite(b"x" * 1024, 0)
    file.sync()
    files.sync_directory("a")
    assert {files.power_cut(seed).exists("a/one") for seed in range(50)} == {True, False}, (
        "the directory a itself was not synced"
    )
    files.sync_directory(".")
    file.pwrite(b"y" * 1024, 512)
    files.create("a/two", 4096)
    found = {
        (after.read("a/one") or b"", after.exists("a/two"))
        for after in map(files.power_cut, range(200))
    }
    assert all(len(content) == 4096 and content[:512] == b"x" * 512 for content, _two in found)
    assert {content[512:1024][:1] + content[1024:1536][:1] for content, _two in found} == {
        b"x\0",
        b"y\0",
        b"xy",
        b"yy",
    }
    assert {two for _content, two in found} == {True, False}


def test_a_rename_is_whole_and_its_order_is_not_certain() -> None:
    """Either the old name or the new one, until the directory is synced."""
    files = FaultyFileSystem()
    files.write("old", b"content")
    files.sync_directory(".")
    files.rename("old", "new")
    assert {
        (after.read("old"), after.read("new")) for after in map(files.power_cut, range(50))
    } == {(b"content", None), (None, b"content")}
    files.sync_directory(".")
    assert {files.power_cut(seed).read("new") for seed in range(20)} == {b"content"}


def test_a_failed_sync_forgets() -> None:
    """What it did not bring to the device stays readable, and a later sync does not
    bring it there either.
    """
    files = FaultyFileSystem(page_size=512)
    files.faults.fail(Operation.SYNC, after=1, times=1)
    file = files.create("one", 8192)
    file.sync()
    files.sync_directory(".")
    file.pwrite(b"x" * 8192, 0)
    with pytest.raises(StoreError):
        file.sync()
    file.sync()
    assert file.pread(8192, 0) == b"x" * 8192
    after = files.power_cut(1).read("one")
    assert after is not None
    assert 0 < after.count(b"x") < 8192


def test_the_cut_tears_a_write_and_ends_everything() -> None:
    """A part of the write in flight, then nothing; a kill keeps all that was
    written.
    """
    files = FaultyFileSystem(3, page_size=512)
    file = files.open("one")
    file.pwrite(b"a" * 600, 0)
    files.cut_at = files.operations + 1
    with pytest.raises(PowerCutError):
        file.pwrite(b"b" * 600, 600)
    with pytest.raises(PowerCutError):
        file.sync()
    assert files.dead
    after = files.kill()
    content = after.read("one")
    assert content is not None
    assert content[:600] == b"a" * 600
    assert content[600:] == b"b" * (len(content) - 600)
    assert 600 <= len(content) <= 1200
    after.open("one").pwrite(b"c", 0)


def test_space_ends_in_the_middle_of_a_write() -> None:
    """Whole pages are written, the rest is refused; space comes back with what is
    removed. Times can be set.
    """
    now = [5]
    files = FaultyFileSystem(page_size=512, limit_bytes=2048, now_ms=lambda: now[0])
    files.open("one").pwrite(b"x" * 1024, 0)
    with pytest.raises(StoreFullError):
        files.open("two").pwrite(b"y" * 2000, 0)
    assert files.read("two") == b"y" * 1024
    with pytest.raises(StoreFullError):
        files.create("three", 4096).allocate(0, 4096)
    files.remove("one")
    files.open("four").pwrite(b"z" * 1024, 0)
    assert files.modified_ms("four") == 5
    files.set_modified_ms("four", 77)
    assert (files.modified_ms("four"), files.modified_ms("one")) == (77, 0)


async def test_a_sync_does_not_cover_what_is_written_while_it_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    files = FaultyFileSystem(1, page_size=512)
    file = files.create("one", 1024)
    file.pwrite(b"before", 0)
    files.sync_directory(".")
    files.faults.slow(Operation.SYNC, delay=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.run, file.sync)
        await trio.sleep(1)
        file.pwrite(b"after!", 0)
        file.pwrite(b"after!", 512)
    contents = [files.power_cut(seed).read("one") or b"" for seed in range(50)]
    assert {content[:6] for content in contents} == {b"before", b"after!"}
    assert {content[512:518] for content in contents} == {bytes(6), b"after!"}


def test_one_opener() -> None:
    """Until it is given up, or its process is dead."""
    files = FaultyFileSystem()
    files.lock()
    with pytest.raises(StoreLockedError):
        files.lock()
    files.kill().lock()
    files.unlock()
    files.power_cut(1).lock()


async def test_bytes_that_a_failed_sync_forgot_are_written_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The process is started again without the machine: what it shows then, and what is
    acknowledged behind it, survives a power cut.
    """
    files = FaultyFileSystem(5, page_size=512)
    files.makes_ahead = False  # its syncs would be counted with those that fail
    config = small_config(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    async with open_store(files, config) as store:
        durable = store.put(message(body=b"0" * 500))
        assert await store.wait_durable(durable) is PutStatus.PUT_OK
        files.faults.fail(Operation.SYNC, times=1)
        results = [store.put(message(body=b"%d" % index * 500)) for index in range(1, 5)]
        assert await store.wait_durable(results[-1]) is PutStatus.SERVICE_NOT_AVAILABLE
    assert files.read("unsynced") == b"%d" % durable.size
    async with open_store(files.kill(), config) as store:
        found = bodies(store)
        assert found == [b"%d" % index * 500 for index in range(5)]
        assert await store.wait_durable(store.put(message(body=b"new"))) is PutStatus.PUT_OK
        assert not files.exists("unsynced")
        for seed in range(20):
            async with open_store(files.power_cut(seed), config) as after:
                assert bodies(after) == [*found, b"new"]


async def test_an_empty_file_in_the_middle_is_mended_after_a_crash_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A power cut may keep the name of a new file and lose its size; after a clean stop
    a wrong size is no accident.
    """
    files = FaultyFileSystem()
    async with open_store(files) as store:
        store.put(message())
    files.create("commitlog/00000000000000004096", 0)
    files.create("commitlog/00000000000000008192", 4096)
    with pytest.raises(StoreCorruptError, match="00000000000000004096 has 0 bytes"):
        await open_store(files).__aenter__()
    files.write("abort", b"1")
    async with open_store(files) as store:
        assert bodies(store) == [b"hello"]
        assert store.put(message()).ok


async def test_a_topic_made_anew_in_a_log_that_lost_its_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The note of a deletion must not swallow messages that come to stand where the log
    ended then.
    """
    files = FaultyFileSystem(1)
    async with open_store(files) as store:
        await store.flush()
        for _ in range(5):
            store.put(message())
        await store.delete_topic("TopicA")
        log = f"commitlog/{0:020d}"
        lost = next(
            left
            for left in map(files.power_cut, range(100))
            if not (left.read(log) or b"").strip(b"\0")
        )
        files.halt()
    async with open_store(lost) as store:
        assert store.max_physical_offset == 0
        store.put(message(body=b"new"))
        lost.halt()
    async with open_store(lost.kill()) as store:
        assert bodies(store) == [b"new"]
