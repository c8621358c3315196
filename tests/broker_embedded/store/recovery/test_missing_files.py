"""A store from which somebody removed a file: of a queue, of the log, of the index."""

from __future__ import annotations

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.errors import StoreCorruptError
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import bodies, message, open_store, small_config

CONFIG = small_config(max_hash_slot_num=10, max_index_num=40)
COUNT = 60
QUEUES = {
    ("TopicA", 0): [b"a%d" % number for number in range(COUNT)],
    ("TopicB", 1): [b"b%d" % number for number in range(10)],
    ("TopicC", 0): [b"c%d" % number for number in range(COUNT)],
}
"""TopicA and TopicB have records in the first half of the log only."""
PLACES = ("first", "middle", "last")


async def filled(*, batch: bool = False) -> MemoryFileSystem:
    """Queues and index of several files each, and a clean stop."""
    files = MemoryFileSystem(write_through=True)
    await fill(files, batch=batch)
    return files


async def fill(files: MemoryFileSystem, *, batch: bool = False) -> None:
    if batch:
        topic = '{"attributes":{"queue.type":"BatchCQ"}}'
        files.write("config/topics.json", b'{"topicConfigTable":{"TopicA":%s}}' % topic.encode())
    async with open_store(files, CONFIG) as store:
        for (topic, queue_id), wanted in QUEUES.items():
            for body in wanted:
                assert store.put(
                    message(topic, queue_id, body, properties={"KEYS": body.decode()})
                ).ok


def file_of(files: MemoryFileSystem, directory: str, place: str) -> str:
    names = [name for name, _size in files.file_sizes(directory)]
    return f"{directory}/{names[{'first': 0, 'middle': len(names) // 2, 'last': -1}[place]]}"


async def check_whole(files: MemoryFileSystem) -> None:
    """All messages are there, by queues and by keys, and numbering goes on."""
    async with open_store(files, CONFIG) as store:
        for (topic, queue_id), wanted in QUEUES.items():
            assert bodies(store, topic, queue_id) == wanted
            assert store.min_offset(topic, queue_id) == 0
            for body in wanted:
                found = await store.query(topic, body.decode(), 10)
                assert len(found.records) == 1, body
            assert store.max_offset(topic, queue_id) == len(wanted)
    assert verify(FileSystemReader(files)).findings == []


@pytest.mark.parametrize("stop", ["clean", "killed", "no note", "old note"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("topic", ["TopicA", "TopicC"])
async def test_a_queue_without_one_of_its_files_is_built_again(
    topic: str, place: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = await filled()
    files.remove(file_of(files, f"consumequeue/{topic}/0", place))
    if stop == "killed":
        files.write("abort", b"1")
    elif stop == "no note":
        files.remove("cleanStop.json")
    elif stop == "old note":
        files.write("cleanStop.json", b'{"logEnd":5000,"queues":123456}')
    await check_whole(files)
    if stop == "clean":
        assert f"{topic} queue 0 lacks the units from" in caplog.text
    caplog.clear()
    await check_whole(files)
    assert "lacks" not in caplog.text


@pytest.mark.parametrize("topic", ["TopicA", "TopicC"])
async def test_a_queue_that_lost_its_first_file_and_what_the_next_one_had_is_built_again(
    topic: str,
) -> None:
    """As a power cut may leave them; the log may lack the oldest records as well."""
    files = await filled()
    directory = f"consumequeue/{topic}/0"
    files.remove(file_of(files, directory, "first"))
    second = file_of(files, directory, "first")
    files.open(second).pwrite(bytes(dict(files.file_sizes(directory))[second[-20:]]), 0)
    files.write("abort", b"1")
    await check_whole(files)
    files = await filled()
    files.remove(file_of(files, "commitlog", "first"))
    async with open_store(files, CONFIG) as store:
        first, wanted = store.min_offset(topic, 0), bodies(store, topic)
    assert 0 < first < COUNT or topic == "TopicC"
    leave_empty(files, directory, file_of(files, directory, "last"))
    files.write("abort", b"1")
    async with open_store(files, CONFIG) as store:
        assert (store.min_offset(topic, 0), bodies(store, topic)) == (first, wanted)


async def expired() -> FaultyFileSystem:
    """What retention left of them."""
    files = FaultyFileSystem()
    await fill(files)
    async with open_store(files, CONFIG) as store:
        with trio.fail_after(36_000):
            while store.min_offset("TopicA", 0) < COUNT // 2:
                store.retention.clean_now()
                files.told_used_ratio = 0.95
                await trio.sleep(1)
        files.told_used_ratio = None
    return files


def leave_empty(files: FaultyFileSystem | MemoryFileSystem, directory: str, chosen: str) -> None:
    """Of the files of a queue only one is left, with zeros."""
    for name, size in files.file_sizes(directory):
        if f"{directory}/{name}" == chosen:
            files.open(chosen).pwrite(bytes(size), 0)
        else:
            files.remove(f"{directory}/{name}")


@pytest.mark.parametrize("stop", ["clean", "killed", "no note"])
@pytest.mark.parametrize("topic", ["TopicA", "TopicC"])
async def test_a_queue_that_has_but_an_empty_file_of_the_middle_is_built_again(
    topic: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a power cut may leave files of which none is durable."""
    files = await filled()
    directory = f"consumequeue/{topic}/0"
    leave_empty(files, directory, file_of(files, directory, "middle"))
    if stop == "killed":
        files.write("abort", b"1")
    elif stop == "no note":
        files.remove("cleanStop.json")
    await check_whole(files)
    assert f"{topic} queue 0 lacks the units from 0 to 30" in caplog.text
    caplog.clear()
    await check_whole(files)
    assert "lacks" not in caplog.text


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("what", ["TopicB/1", "TopicB", "TopicA"])
async def test_a_queue_without_any_file_is_built_again(
    what: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = await filled()
    files.remove_tree(f"consumequeue/{what}")
    if stop == "killed":
        files.write("abort", b"1")
    await check_whole(files)
    assert "lacks all its units, 0 to" in caplog.text


@pytest.mark.parametrize("place", PLACES)
async def test_a_batch_queue_without_one_of_its_files_is_built_again(place: str) -> None:
    config = small_config(
        mapper_file_size_batch_consume_queue=460, max_hash_slot_num=10, max_index_num=40
    )
    files = await filled(batch=True)
    files.remove_tree("batchconsumequeue")
    async with open_store(files, config) as store:
        assert bodies(store, "TopicA") == QUEUES["TopicA", 0]
    assert len(files.file_sizes("batchconsumequeue/TopicA/0")) > 3
    files.remove(file_of(files, "batchconsumequeue/TopicA/0", place))
    async with open_store(files, config) as store:
        assert bodies(store, "TopicA") == QUEUES["TopicA", 0]


async def test_a_topic_that_another_broker_deleted_does_not_come_back() -> None:
    files = await filled()
    files.write("config/topics.json", b'{"topicConfigTable":{"TopicA":{},"TopicC":{}}}')
    files.remove_tree("consumequeue/TopicB")
    async with open_store(files, CONFIG) as store:
        assert store.max_offset("TopicB", 1) == 0


async def test_files_that_retention_removed_are_not_missed(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    files = await expired()
    async with open_store(files, CONFIG) as store:
        first = store.min_offset("TopicA", 0)
    assert files.file_sizes("consumequeue/TopicA/0")[0][0] > "0" * 20
    for stop in ("clean", "killed", "no note"):
        if stop == "killed":
            files.write("abort", b"1")
        elif stop == "no note":
            files.remove("cleanStop.json")
        caplog.clear()
        async with open_store(files, CONFIG) as store:
            assert store.min_offset("TopicA", 0) == first
        assert "lacks" not in caplog.text
        assert "missing" not in caplog.text


@pytest.mark.parametrize("stop", ["clean", "killed", "no note"])
async def test_an_empty_file_hides_no_units_behind_those_that_expired(
    stop: str, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    files = await expired()
    last = f"consumequeue/TopicC/0/{COUNT // 10 * 200 - 200:020d}"
    assert files.exists(last)
    async with open_store(files, CONFIG) as store:
        first = store.min_offset("TopicC", 0)
    assert 0 < first < COUNT - 10
    leave_empty(files, "consumequeue/TopicC/0", last)
    if stop == "killed":
        files.write("abort", b"1")
    elif stop == "no note":
        files.remove("cleanStop.json")
    async with open_store(files, CONFIG) as store:
        assert store.min_offset("TopicC", 0) == first
        assert bodies(store, "TopicC") == QUEUES["TopicC", 0][first:]
    assert f"TopicC queue 0 lacks the units from {first} to {COUNT - 10}" in caplog.text


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("place", PLACES)
async def test_an_index_without_one_of_its_files_is_built_again(
    place: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = await filled()
    path = file_of(files, "index", place)
    files.remove(path)
    if stop == "killed":
        files.write("abort", b"1")
    await check_whole(files)
    assert (f"{path} is missing" in caplog.text) is (stop == "clean" or place != "last")


async def test_a_log_without_a_file_in_the_middle_is_refused_and_nothing_changes() -> None:
    files = await filled()
    path = file_of(files, "commitlog", "middle")
    content = files.read(path)
    assert content is not None
    files.remove(path)
    for _ in range(2):
        with pytest.raises(StoreCorruptError, match=f"{path} is missing.*put the file back"):
            async with open_store(files, CONFIG):
                pass
    assert not files.exists("abort")
    files.create(path, len(content)).pwrite(content, 0)
    await check_whole(files)


async def test_a_log_without_its_first_file_is_told(caplog: pytest.LogCaptureFixture) -> None:
    files = await filled()
    files.remove(file_of(files, "commitlog", "first"))
    async with open_store(files, CONFIG) as store:
        first = store.min_physical_offset
        assert 0 < store.min_offset("TopicA", 0) < COUNT
        assert bodies(store, "TopicA") == QUEUES["TopicA", 0][store.min_offset("TopicA", 0) :]
        assert bodies(store, "TopicC") == QUEUES["TopicC", 0]
    assert f"the log began at 0 when the store was closed, and begins at {first}" in caplog.text
    caplog.clear()
    async with open_store(files, CONFIG):
        pass
    assert "the log began" not in caplog.text


@pytest.mark.parametrize("note", [True, False])
async def test_a_log_without_its_last_file_is_told(
    note: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by the queues alone, as after Apache's broker; who keeps offsets learns that
    they may be too high.
    """
    files = await filled()
    files.remove(file_of(files, "commitlog", "last"))
    if not note:
        files.remove("cleanStop.json")
    async with open_store(files, CONFIG) as store:
        assert not store.started_clean
        assert bodies(store, "TopicC") == QUEUES["TopicC", 0][: store.max_offset("TopicC", 0)]
        assert store.max_offset("TopicC", 0) < COUNT
        end = store.max_physical_offset
    assert f"what follows {end} is lost, and new messages take those queue offsets again" in (
        caplog.text
    )


@pytest.mark.parametrize("place", [*PLACES, "all"])
async def test_a_queue_without_files_of_its_extension_is_built_again(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its units hold no tags codes of their own."""
    files = MemoryFileSystem(write_through=True)
    config = small_config(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1024)
    wanted = [b"%d" % number for number in range(4 * COUNT)]
    async with open_store(files, config) as store:
        for body in wanted:
            assert store.put(message(body=body, tag=f"T{int(body) % 3}")).ok
    directory = "consumequeue_ext/TopicA/0"
    if place == "all":
        files.remove_tree(directory)
    else:
        files.remove(file_of(files, directory, place))
    for life in range(2):
        caplog.clear()
        async with open_store(files, config) as store:
            assert bodies(store) == wanted
            for number in range(len(wanted)):
                unit = store.queue_unit("TopicA", 0, number)
                assert unit is not None
                assert unit[2] == message(tag=f"T{number % 3}").tags_code
        assert ("lacks files of its extension" in caplog.text) is (life == 0)
    assert verify(FileSystemReader(files)).findings == []


STRAY = ("7", "0" * 40 + "4096", "9" * 20, f"{2**63:020d}", f"{4100:020d}", f"{10**6 + 1:020d}")


@pytest.mark.parametrize("name", STRAY)
@pytest.mark.parametrize("clean", [True, False])
async def test_a_file_that_can_be_of_no_chain_is_refused_by_its_name(
    name: str, clean: bool
) -> None:
    """It would be taken for a part of the log, and messages behind it would be lost."""
    for directory, size in (("commitlog", 4096), ("consumequeue/TopicA/0", 200)):
        files = await filled()
        files.create(f"{directory}/{name}", size)
        if not clean:
            files.write("abort", b"")
        report = verify(FileSystemReader(files))
        assert f"{directory}/{name}" in {finding.path for finding in report.findings}
        with pytest.raises(StoreCorruptError, match=f"{directory}/{name} does not belong there"):
            async with open_store(files, CONFIG):
                pass
        files.remove(f"{directory}/{name}")
        await check_whole(files)


@pytest.mark.parametrize(
    "path", ["bad\udcff/0", "TopicA/00", f"TopicA/{2**31}", f"TopicA/{'9' * 30}"]
)
async def test_a_directory_that_can_be_of_no_queue_is_left_alone(path: str) -> None:
    files = await filled()
    kept = f"consumequeue/{path}/{0:020d}"
    files.create(kept, 200)
    assert verify(FileSystemReader(files)).findings == []
    await check_whole(files)
    assert files.exists(kept)
