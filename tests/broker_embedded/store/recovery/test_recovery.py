"""Opening again after a stop that was not clean."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import StoreError, StoreLockedError
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

CHILD = Path(__file__).parent / "child_writer.py"


async def abandon(store: MessageStore, files: FileSystem) -> None:
    """Play the death of the process: what was handed over stays, what was only in
    memory is gone, nothing is flushed or removed.
    """
    store._close = trio.lowlevel.checkpoint  # type: ignore[method-assign]
    await store.__aexit__(None, None, None)


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    return (
        OsFileSystem(tmp_path / "store")
        if request.param == "disk"
        else MemoryFileSystem(write_through=True)
    )


async def test_a_killed_store_has_every_acknowledged_message(files: FileSystem) -> None:
    """Nothing was flushed and no queue unit was written, yet all is there; again and
    again.
    """
    wanted: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for life in range(4):
        store = await open_store(files).__aenter__()
        for queue_id, found in wanted.items():
            assert bodies(store, "TopicA", queue_id) == found
        for index in range(70):
            body = b"life %d message %d" % (life, index)
            result = store.put(message(queue_id=index % 3, body=body))
            assert result.queue_offset == len(wanted[index % 3])
            wanted[index % 3].append(body)
        await abandon(store, files)
        assert files.exists("abort")
    async with open_store(files) as store:
        assert {queue_id: bodies(store, "TopicA", queue_id) for queue_id in wanted} == wanted
    assert not files.exists("abort")


async def test_the_checkpoint_follows_a_recovery_soon(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A broker that lives for seconds and is killed each time reads only what came
    since its last start.
    """
    files = MemoryFileSystem(write_through=True)
    stamps: list[int] = []
    for _life in range(3):
        store = await open_store(files).__aenter__()
        stamps.append(store.put(message()).store_timestamp)
        await trio.sleep(5)
        await abandon(store, files)
    data = files.read("checkpoint")
    assert data is not None
    assert struct.unpack_from(">q", data) == (stamps[2],), (
        "the log is synced up to the newest message before the checkpoint tells of it"
    )
    store = await open_store(files).__aenter__()
    await trio.sleep(5)
    data = files.read("checkpoint")
    assert data is not None
    assert struct.unpack_from(">qq", data) == (stamps[2], stamps[2]), (
        "also where nothing more comes"
    )
    await abandon(store, files)


async def test_torn_at_each_byte(tmp_path: Path) -> None:
    """A last record cut anywhere is dropped, or kept as Apache keeps it where only its
    properties are hurt; numbering goes on.
    """
    origin = MemoryFileSystem(write_through=True)
    store = await open_store(origin).__aenter__()
    for index in range(5):
        store.put(message(body=b"body %d" % index, tag="T"))
    last = store.put(message(body=b"the last body", tag="T"))
    await abandon(store, origin)
    log = origin.read("commitlog/00000000000000000000")
    assert log is not None
    topic_end = last.physical_offset + 88 + len(b"the last body") + 1 + len("TopicA")
    for cut in range(last.physical_offset, last.physical_offset + last.size):
        files = MemoryFileSystem(write_through=True)
        files.create("commitlog/00000000000000000000", len(log)).pwrite(log[:cut], 0)
        files.write("abort", b"1")
        async with open_store(files) as store:
            kept = [b"body %d" % index for index in range(5)]
            if cut >= topic_end + 2:
                kept.append(b"the last body")
            assert bodies(store) == kept, cut - last.physical_offset
            assert store.max_physical_offset == last.physical_offset + (
                last.size if len(kept) == 6 else 0
            )
            assert store.put(message(body=b"after")).queue_offset == len(kept)
        data = files.read("commitlog/00000000000000000000")
        assert data is not None
        assert not data[store.max_physical_offset :].strip(b"\0")
        async with open_store(files) as store:
            assert bodies(store) == [*kept, b"after"]


async def test_old_bytes_behind_the_end_never_come_back(files: FileSystem) -> None:
    """A damaged record in the middle ends the log there; the whole records behind it
    are wiped out and no queue shows them, now or later.
    """
    store = await open_store(files).__aenter__()
    results = [
        store.put(message(queue_id=index % 2, body=b"%d" % index * 10)) for index in range(20)
    ]
    await abandon(store, files)
    files.open("commitlog/00000000000000000000").pwrite(b"X", results[10].physical_offset + 90)
    async with open_store(files) as store:
        assert store.max_physical_offset == results[10].physical_offset
        assert [store.max_offset("TopicA", queue_id) for queue_id in (0, 1)] == [5, 5]
        again = store.put(message(queue_id=0, body=b"10" * 10))
        assert (again.physical_offset, again.size, again.queue_offset) == (
            results[10].physical_offset,
            results[10].size,
            5,
        )
    files.write("abort", b"1")
    async with open_store(files) as store:
        assert [store.max_offset("TopicA", queue_id) for queue_id in (0, 1)] == [6, 5]


async def test_queue_units_behind_the_log_are_dropped(files: FileSystem) -> None:
    """The queues knew more than the log kept."""
    async with open_store(files) as store:
        results = [
            store.put(message(queue_id=index % 2, body=b"%d" % index * 30)) for index in range(60)
        ]
    keep = results[20].physical_offset
    for name, _size in files.file_sizes("commitlog"):
        file = files.open(f"commitlog/{name}")
        start = max(0, keep - int(name))
        if start < 4096:
            file.pwrite(bytes(4096 - start), start)
    async with open_store(files) as store:
        assert store.max_physical_offset <= keep
        found = [bodies(store, "TopicA", queue_id) for queue_id in (0, 1)]
        assert [len(queue) for queue in found] == [10, 10]
        assert store.put(message(queue_id=1, body=b"new")).queue_offset == 10
    async with open_store(files) as store:
        assert [len(bodies(store, "TopicA", queue_id)) for queue_id in (0, 1)] == [10, 11]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/TopicA/1", "consumequeue/TopicB"])
async def test_lost_queues_are_built_again(files: FileSystem, clean: bool, lost: str) -> None:
    """However far the log has to be read back."""
    wanted: dict[tuple[str, int], list[bytes]] = {
        ("TopicA", 0): [],
        ("TopicA", 1): [],
        ("TopicB", 0): [],
    }
    async with open_store(files) as store:
        for index in range(400):
            topic, queue_id = list(wanted)[index % 3]
            body = b"%d" % index * 5
            store.put(message(topic, queue_id, body))
            wanted[topic, queue_id].append(body)
        assert store.statistics()["log_files"] > 12
    files.remove_tree(lost)
    if not clean:
        files.write("abort", b"1")
    async with open_store(files) as store:
        assert {key: bodies(store, *key) for key in wanted} == wanted


async def test_a_queue_that_begins_above_zero(files: FileSystem) -> None:
    """With the oldest log files gone, a rebuilt queue starts where the log does, with
    units in front that mean nothing.
    """
    async with open_store(files) as store:
        results = [store.put(message(body=b"%d" % index)) for index in range(150)]
    names = [name for name, _size in files.file_sizes("commitlog")]
    for name in names[:2]:
        files.remove(f"commitlog/{name}")
    files.remove_tree("consumequeue")
    first = next(index for index, result in enumerate(results) if result.physical_offset >= 8192)
    assert first % 10 != 0
    for _round in range(2):
        async with open_store(files) as store:
            assert store.min_physical_offset == 8192
            assert (store.min_offset("TopicA", 0), store.max_offset("TopicA", 0)) == (first, 150)
            assert bodies(store) == [b"%d" % index for index in range(first, 150)]
            assert store.queue_unit("TopicA", 0, first - 1) is None
    start = first // 10 * 10
    unit_file = files.read(f"consumequeue/TopicA/0/{start * 20:020d}")
    assert unit_file is not None
    assert unit_file[: (first - start) * 20] == bytes.fromhex(
        "0000000000000000 7FFFFFFF 0000000000000000"
    ) * (first - start)


async def test_one_opener_in_a_process(tmp_path: Path) -> None:
    """The second opener is refused by name, also under another spelling of the path;
    the first goes on.
    """
    root = tmp_path / "store"
    async with open_store(OsFileSystem(root)) as store:
        (tmp_path / "link").symlink_to(root)
        for path in (root, tmp_path / "link", tmp_path / "x" / ".." / "store"):
            with pytest.raises(StoreLockedError, match="store"):
                await open_store(OsFileSystem(path)).__aenter__()
        assert store.put(message()).ok
    assert (root / "lock").read_bytes() == b"lock"
    async with open_store(OsFileSystem(root)) as store:
        assert bodies(store) == [b"hello"]
    files = MemoryFileSystem()
    async with open_store(files):
        with pytest.raises(StoreLockedError):
            await open_store(files).__aenter__()


def start_child(root: Path, life: int) -> subprocess.Popen[bytes]:
    """A process that appends to the directory."""
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(root), str(life)], stdout=subprocess.PIPE
    )


@pytest.mark.real_time
async def test_killed_process_and_other_processes(tmp_path: Path) -> None:
    """SIGKILL amid a stream of appends: every acknowledged record is there byte for
    byte. While it lives nobody else opens the directory.
    """
    root = tmp_path / "store"
    for life in range(2):
        child = start_child(root, life)
        assert child.stdout is not None
        try:
            lines = [child.stdout.readline() for _ in range(300)]
            assert lines[-1].strip(), "the child ended early"
            with pytest.raises(StoreLockedError, match=f"process {child.pid}"):
                await open_store(OsFileSystem(root)).__aenter__()
        finally:
            child.kill()
            rest = child.stdout.read()
            child.wait()
            child.stdout.close()
        acknowledged = [
            line.split()
            for line in (*lines, *rest.split(b"\n"))
            if len(line.split()) == 4 and line.split()[3] == b"."
        ]
        assert len(acknowledged) >= 299
        assert (root / "abort").exists()
        async with open_store(OsFileSystem(root)) as store:
            for queue_id, offset, record, _mark in acknowledged:
                unit = store.queue_unit(f"Load{life}", int(queue_id), int(offset))
                assert unit is not None
                found = store.record_at(unit[0])
                assert found is not None
                assert found.hex().encode() == record


async def test_an_empty_last_file_and_an_unused_next_file(files: FileSystem) -> None:
    """What a broker that died while it made a file, or that made one ahead of need,
    leaves behind.
    """
    async with open_store(files) as store:
        for index in range(40):
            store.put(message(body=b"%d" % index))
        end = store.max_physical_offset
    start = (end // 4096 + 1) * 4096
    files.create(f"commitlog/{start:020d}", 4096)
    files.create(f"commitlog/{start + 4096:020d}", 0)
    files.write("abort", b"1")
    async with open_store(files) as store:
        assert store.max_physical_offset == end
        for index in range(40, 80):
            store.put(message(body=b"%d" % index))
        assert bodies(store) == [b"%d" % index for index in range(80)]


async def test_store_time_never_goes_back(files: FileSystem) -> None:
    """Not even when the clock of the next life is behind."""

    class Past:
        def now_ms(self) -> int:
            return 1000

        def monotonic(self) -> float:
            return 0.0

    async with open_store(files) as store:
        first = store.put(message()).store_timestamp
    async with open_store(files, clock=Past()) as store:
        assert store.put(message()).store_timestamp >= first > 1000


async def test_store_time_never_goes_back_where_the_last_stop_could_not_write_the_checkpoint() -> (
    None
):
    class At(TrioClock):
        def __init__(self, now: int) -> None:
            super().__init__()
            self.now = now

        def now_ms(self) -> int:
            return self.now

    files = MemoryFileSystem(write_through=True)
    async with open_store(files, clock=At(1_700_000_009_000)) as store:
        assert store.put(message()).ok
    files.remove("checkpoint")
    async with open_store(files, clock=At(1_700_000_001_000)) as store:
        assert store.put(message()).store_timestamp == 1_700_000_009_000


async def test_a_failed_opening_leaves_the_directory_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while loading gives the lock back."""

    def fail(_self: CommitLog, _position: int) -> None:
        raise StoreError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "start_at", fail)
        with pytest.raises(StoreError, match="no luck"):
            await open_store(OsFileSystem(tmp_path)).__aenter__()
    async with open_store(OsFileSystem(tmp_path)) as store:
        assert store.put(message()).ok


step = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 2), st.integers(0, 1500)),
    st.tuples(st.just("many"), st.integers(0, 2), st.integers(1, 40)),
    st.tuples(st.just("close"), st.just(0), st.just(0)),
    st.tuples(st.just("kill"), st.just(0), st.just(0)),
    st.tuples(st.just("lose queues"), st.just(0), st.just(0)),
    st.tuples(st.just("flush"), st.just(0), st.just(0)),
)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(step, max_size=25), disk=st.booleans())
def test_any_life_of_a_store(
    steps: list[tuple[str, int, int]], disk: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is put and however the store is stopped, every queue holds what was
    acknowledged, in order.
    """
    root = tmp_path_factory.mktemp("life")
    try:
        trio.run(_live, steps, OsFileSystem(root) if disk else MemoryFileSystem(write_through=True))
    finally:
        shutil.rmtree(root)


async def _live(steps: list[tuple[str, int, int]], files: FileSystem) -> None:
    wanted: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    config = small_config(hot_bytes=8192)
    store = await open_store(files, config).__aenter__()
    for number, (kind, queue_id, amount) in enumerate(steps):
        if kind in ("put", "many"):
            for body in (
                [b"%d" % number * amount]
                if kind == "put"
                else [b"%d-%d" % (number, index) for index in range(amount)]
            ):
                result = store.put(message(queue_id=queue_id, body=body[:3000]))
                assert result.queue_offset == len(wanted[queue_id])
                wanted[queue_id].append(body[:3000])
        elif kind == "flush":
            await store.flush()
        else:
            if kind == "kill":
                await abandon(store, files)
            else:
                await store.__aexit__(None, None, None)
            if kind == "lose queues":
                files.remove_tree("consumequeue")
            store = await open_store(files, config).__aenter__()
        for index, found in wanted.items():
            assert bodies(store, "TopicA", index) == found
    await store.__aexit__(None, None, None)


async def test_a_queue_whose_records_are_all_gone_goes_on_with_the_number_of_the_next_record() -> (
    None
):
    """What a power cut may leave of names that no sync made durable: the first files of
    the log are lost, a later one is not.
    """
    files = MemoryFileSystem(write_through=True)
    async with open_store(files) as store:
        while store.max_physical_offset < 9000:
            store.put(message(body=b"m" * 300))
        last = store.max_offset("TopicA", 0)
    for start in (0, 4096):
        files.remove(f"commitlog/{start:020d}")
    for start in range(200, 200 * last, 200):
        files.remove(f"consumequeue/TopicA/0/{start:020d}")
    files.open(f"consumequeue/TopicA/0/{0:020d}").pwrite(bytes(140), 60)
    files.write("abort", b"")
    files.remove("checkpoint")
    async with open_store(files) as store:
        assert (store.min_physical_offset, store.max_offset("TopicA", 0)) == (8192, last)
        assert bodies(store)
        assert store.put(message(body=b"next")).queue_offset == last
        assert bodies(store)[-1] == b"next"
    assert verify(FileSystemReader(files)).findings == []
