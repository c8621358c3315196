"""Appending and reading, on memory and on a disk."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.messages import Arrival, GetStatus, PutStatus, QueueRead
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.names import SCHEDULE_TOPIC, java_hash
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.message_codec import decode_message, decode_messages
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem


@pytest.fixture(params=["memory", "memory-joined", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    if request.param == "disk":
        return OsFileSystem(tmp_path / "store")
    return MemoryFileSystem(write_through=request.param == "memory")


async def test_the_record_is_apaches_byte_for_byte(files: FileSystem) -> None:
    """The sample of the format's description, up to the store time."""
    async with open_store(files) as store:
        item = message(
            queue_id=0, body=b"hello", flag=7, properties={"KEYS": "k1 k2", "TAGS": "tagZ"}
        )
        result = store.put(item)
        record = store.record_at(0)
    assert record is not None
    assert (result.status, result.physical_offset, result.size, result.queue_offset) == (
        PutStatus.PUT_OK,
        0,
        135,
        0,
    )
    head = (
        "00000087 DAA320A7 3610A686 00000000 00000007 0000000000000000 0000000000000000 00000000 "
        "0000018BCFE56800 0A010203000011D7"
    )
    tail = (
        "7F00000100002A9F 00000000 0000000000000000 00000005 68656C6C6F 06 546F70696341 0021 "
        "554E49515F4B4559 01 5531 02 4B455953 01 6B31206B32 02"
        " 54414753 01 7461675A 02"
    )
    assert record[:56] == bytes.fromhex(head)
    assert record[64:] == bytes.fromhex(tail)
    assert int.from_bytes(record[56:64]) == result.store_timestamp


async def test_many_files_and_queues(files: FileSystem) -> None:
    """Log and queues roll over many files; every message is found again at once and
    after opening again.
    """
    wanted: dict[tuple[str, int], list[bytes]] = {}
    async with open_store(files) as store:
        for index in range(300):
            topic, queue_id = f"Topic{index % 3}", index % 2
            body = b"%d" % index * (1 + index % 37)
            result = store.put(message(topic, queue_id, body))
            assert result.queue_offset == len(wanted.setdefault((topic, queue_id), []))
            wanted[topic, queue_id].append(body)
        assert {key: bodies(store, *key) for key in wanted} == wanted
        assert store.statistics()["log_files"] > 10
        end = store.max_physical_offset
    names = [name for name, _size in files.file_sizes("commitlog")]
    assert names == [f"{index * 4096:020d}" for index in range(len(names))]
    assert {size for _name, size in files.file_sizes("commitlog")} == {4096}
    assert not files.exists("abort")
    async with open_store(files) as store:
        assert store.max_physical_offset == end
        assert {key: bodies(store, *key) for key in wanted} == wanted
        assert store.put(message("Topic0", 0, b"next")).queue_offset == len(wanted["Topic0", 0])
        assert bodies(store, "Topic0", 0) == [*wanted["Topic0", 0], b"next"]


@pytest.mark.parametrize("left", [0, 1, 7, 8, 9, 20])
async def test_end_of_a_file(files: FileSystem, left: int) -> None:
    """A record goes into a file if at least 8 bytes stay free; else 8 bytes say that
    the rest is blank.
    """
    async with open_store(files) as store:
        overhead = store.put(message(body=b"x" * 2000)).size
        fill = 4096 - overhead - left
        result = store.put(message(body=b"f" * (fill - overhead + 2000)))
        assert result.size == fill
        last = store.put(message(body=b"last"))
        if left >= 8:
            assert result.physical_offset == overhead
            blank_at = 4096 - left
        else:
            assert result.physical_offset == 4096
            blank_at = overhead
        assert last.physical_offset == (4096 if left >= 8 else 4096 + fill)
        assert (result.queue_offset, last.queue_offset) == (1, 2)
        assert len(bodies(store)) == 3
    first = files.read("commitlog/00000000000000000000")
    assert first is not None
    assert first[blank_at : blank_at + 8] == (4096 - blank_at).to_bytes(4) + bytes.fromhex(
        "CBD43194"
    )
    assert not first[blank_at + 8 :].strip(b"\0")


async def test_what_is_refused(files: FileSystem) -> None:
    """Refusals leave the store as it was."""
    async with open_store(files, small_config(max_message_size=3000)) as store:
        assert store.put(message(body=b"x" * 3001)).status is PutStatus.MESSAGE_ILLEGAL
        assert (
            store.put(message(properties={"K": "v" * 32768})).status
            is PutStatus.PROPERTIES_SIZE_EXCEEDED
        )
        assert (
            store.put(message(body=b"x" * 3000, properties={"K": "v" * 3000})).status
            is PutStatus.MESSAGE_ILLEGAL
        )
        for topic in ("", ".", "..", "a/b", "a\0b", "t" * 256, "\ud800"):
            assert store.put(message(topic)).status is PutStatus.MESSAGE_ILLEGAL, topic
        assert store.put(message(queue_id=-1)).status is PutStatus.MESSAGE_ILLEGAL
        assert store.max_physical_offset == 0
        assert store.put(message()).queue_offset == 0
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE


async def test_long_topics_make_records_of_version_2(files: FileSystem) -> None:
    """Above 127 bytes the topic's length takes two bytes."""
    topic = "%RETRY%" + "g" * 200
    async with open_store(files) as store:
        store.put(message(topic, 0, b"one"))
        record = store.record_at(0)
        assert record is not None
        assert record[4:8] == bytes.fromhex("DAA320AB")
    async with open_store(files) as store:
        assert bodies(store, topic) == [b"one"]


async def test_old_transaction_marks_are_in_no_queue(files: FileSystem) -> None:
    """Prepared and rolled back records take no queue offset, committed ones do."""
    async with open_store(files) as store:
        offsets = [store.put(message(sys_flag=flag)).queue_offset for flag in (0, 4, 12, 8, 0)]
        assert offsets == [0, 0, 0, 1, 2]
        assert store.max_offset("TopicA", 0) == 3
        assert store.dispatched.value == store.max_physical_offset
    async with open_store(files) as store:
        assert store.max_offset("TopicA", 0) == 3


async def test_batch(files: FileSystem) -> None:
    """Consecutive records and offsets in one file; a batch that does not fit moves as a
    whole; tags codes come from the elements.
    """
    heard: list[Arrival] = []
    async with open_store(files) as store:
        store.arrivals.append(heard.append)
        store.put(message(body=b"x" * 3000))
        batch = encode_batch(
            [(index, b"b%d" % index * 50, b"TAGS\x01t%d\x02" % index) for index in range(6)]
        )
        result = store.put_batch(message(body=batch))
        assert (result.status, result.queue_offset, result.count) == (PutStatus.PUT_OK, 1, 6)
        assert result.physical_offset == 4096
        assert result.physical_offsets is not None
        records = [store.record_at(position) for position in result.physical_offsets]
        assert sum(len(record or b"") for record in records) == result.size
        for index, record in enumerate(records):
            decoded = decode_message(record or b"")
            assert (decoded.offset, decoded.flag, decoded.body) == (
                1 + index,
                index,
                b"b%d" % index * 50,
            )
            unit = store.queue_unit("TopicA", 0, 1 + index)
            assert unit == (
                result.physical_offsets[index],
                len(record or b""),
                java_hash(f"t{index}"),
            )
        assert [arrival.queue_offset for arrival in heard] == list(range(7))
        too_big = encode_batch([(0, b"z" * 2000, b"")] * 3)
        assert store.put_batch(message(body=too_big)).status is PutStatus.MESSAGE_ILLEGAL
        assert store.put_batch(message(body=b"garbage")).status is PutStatus.MESSAGE_ILLEGAL
        assert store.put_batch(message(body=b"")).status is PutStatus.MESSAGE_ILLEGAL
        assert store.put_batch(message(body=batch, sys_flag=4)).status is PutStatus.MESSAGE_ILLEGAL
        assert store.put(message()).queue_offset == 7


async def test_the_delay_topic_holds_times_of_delivery(files: FileSystem) -> None:
    """In the delay topic the tags code is store time plus the level's delay, also when
    the queue is built again.
    """
    async with open_store(files) as store:
        results = [
            store.put(message(SCHEDULE_TOPIC, 2, tag="T", properties={"DELAY": level}))
            for level in ("3", "99", "0", "x")
        ]
        units = [store.queue_unit(SCHEDULE_TOPIC, 2, offset) for offset in range(4)]
    codes = [unit[2] if unit else None for unit in units]
    assert codes == [
        results[0].store_timestamp + 10_000,
        results[1].store_timestamp + 7_200_000,
        java_hash("T"),
        java_hash("T"),
    ]
    files.remove_tree("consumequeue")
    async with open_store(files) as store:
        assert [store.queue_unit(SCHEDULE_TOPIC, 2, offset) for offset in range(4)] == units


async def test_get_says_where_it_stands(files: FileSystem) -> None:
    """The table of statuses and next offsets."""
    async with open_store(files) as store:
        unknown = store.get("Nowhere", 0, 5, 32)
        assert (unknown.status, unknown.next_begin_offset, unknown.max_offset) == (
            GetStatus.NO_MESSAGE_IN_QUEUE,
            0,
            0,
        )
        for index in range(5):
            store.put(message(body=b"%d" % index))
        cases = {
            -1: (GetStatus.OFFSET_TOO_SMALL, 0),
            5: (GetStatus.OFFSET_OVERFLOW_ONE, 5),
            6: (GetStatus.OFFSET_OVERFLOW_BADLY, 5),
            2: (GetStatus.FOUND, 5),
        }
        for offset, (status, next_offset) in cases.items():
            result = store.get("TopicA", 0, offset, 32)
            assert (
                result.status,
                result.next_begin_offset,
                result.min_offset,
                result.max_offset,
            ) == (status, next_offset, 0, 5)
        assert [item.body for item in decode_messages(store.get("TopicA", 0, 2, 2).body)] == [
            b"2",
            b"3",
        ]
        assert store.get("TopicA", 0, 2, 0).count == 1


async def test_limits_of_one_answer(files: FileSystem) -> None:
    """Never more than 32 messages or 256 KiB, the first message whole whatever its
    size, and not across the border of a queue file.
    """
    async with open_store(
        files, StoreConfig(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=2000)
    ) as store:
        for _index in range(150):
            store.put(message(body=b"s" * 10))
        assert store.get("TopicA", 0, 0, 1000).count == 32
        assert store.get("TopicA", 0, 0, 5).count == 5
        assert store.get("TopicA", 0, 90, 32).count == 10
        size = store.get("TopicA", 0, 0, 1).size
        assert store.get("TopicA", 0, 0, 32, size * 3).count == 3
        assert store.get("TopicA", 0, 0, 32, max(100, size * 3 - 1)).count == 2
        for _index in range(4):
            store.put(message("Big", 0, b"b" * 100_000))
        assert [store.get("Big", 0, 0, 32).count, store.get("Big", 0, 0, 32, 10).count] == [2, 1]


class TagFilter:
    """Lets some tags pass, and of them some properties."""

    def __init__(self, tags: set[str], wanted: str | None = None) -> None:
        self.codes = {java_hash(tag) for tag in tags}
        self.wanted = wanted
        self.asked = 0

    @property
    def needs_properties(self) -> bool:
        return self.wanted is not None

    what = None

    def matches_tags_code(self, tags_code: int | None) -> bool:
        return tags_code in self.codes

    def work(self, length: int) -> int:
        return length

    def matches_record(self, properties: Mapping[str, str]) -> bool:
        self.asked += 1
        return properties.get("P") == self.wanted


async def test_filters(files: FileSystem) -> None:
    """Tags codes first, properties only of what passed; what was passed over counts in
    the next offset; 800 units at most are looked at.
    """
    async with open_store(files, StoreConfig(mapped_file_size_commit_log=1 << 20)) as store:
        for index in range(1000):
            store.put(
                message(
                    body=b"%d" % index,
                    tag="even" if index % 2 == 0 else "odd",
                    properties={"P": str(index % 10)},
                )
            )
        result = store.get("TopicA", 0, 3, 5, message_filter=TagFilter({"even"}))
        assert [item.body for item in decode_messages(result.body)] == [
            b"4",
            b"6",
            b"8",
            b"10",
            b"12",
        ]
        assert result.next_begin_offset == 13
        chosen = TagFilter({"even"}, "4")
        result = store.get("TopicA", 0, 0, 3, message_filter=chosen)
        assert [item.body for item in decode_messages(result.body)] == [b"4", b"14", b"24"]
        assert chosen.asked == 13
        result = store.get("TopicA", 0, 0, 32, message_filter=TagFilter({"none"}))
        assert (result.status, result.next_begin_offset, result.body) == (
            GetStatus.NO_MATCHED_MESSAGE,
            800,
            b"",
        )


class CostlyFilter(TagFilter):
    """Looks at properties; each look takes as much work as it is told."""

    def __init__(self, wanted: str, cost: int) -> None:
        super().__init__({"T"}, wanted)
        self.cost = cost

    def work(self, length: int) -> int:
        return self.cost


@pytest.mark.parametrize("body", [10, 5000])
async def test_a_read_with_a_filter_ends_after_some_work(files: FileSystem, body: int) -> None:
    """What it has passed over counts, one unit is always looked at, and the next read
    goes on behind it.
    """
    async with open_store(files, StoreConfig(mapped_file_size_commit_log=1 << 20)) as store:
        for index in range(12):
            store.put(
                message(
                    body=b"%d" % index + b"." * body,
                    tag="T",
                    properties={"P": "yes" if index == 9 else "no"},
                )
            )
        result = store.get("TopicA", 0, 0, 32, message_filter=CostlyFilter("yes", 200_000))
        assert (result.status, result.next_begin_offset, result.body) == (
            GetStatus.NO_MATCHED_MESSAGE,
            3,
            b"",
        )
        result = store.get("TopicA", 0, 3, 32, message_filter=CostlyFilter("yes", 10_000_000))
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 4)
        result = store.get("TopicA", 0, 8, 32, message_filter=CostlyFilter("yes", 200_000))
        assert (result.status, result.count, result.next_begin_offset) == (GetStatus.FOUND, 1, 11)
        assert decode_messages(result.body)[0].body[:1] == b"9"


async def test_arrivals_are_told_after_dispatch(files: FileSystem) -> None:
    """A listener can read the message at once; an error of a listener disturbs
    nobody.
    """
    heard: list[Arrival] = []

    def listen(arrival: Arrival) -> None:
        heard.append(arrival)
        assert store.max_offset(arrival.topic, arrival.queue_id) == arrival.queue_offset + 1
        assert (
            store.get(arrival.topic, arrival.queue_id, arrival.queue_offset, 1).size == arrival.size
        )

    def fail(_arrival: Arrival) -> None:
        raise RuntimeError("a listener's own trouble")

    async with open_store(files) as store:
        store.arrivals += [fail, listen]
        result = store.put(message(tag="T"))
        assert result.ok
    (arrival,) = heard
    assert (arrival.topic, arrival.queue_id, arrival.queue_offset, arrival.tags_code) == (
        "TopicA",
        0,
        0,
        java_hash("T"),
    )
    assert (arrival.physical_offset, arrival.size, arrival.store_timestamp) == (
        0,
        result.size,
        result.store_timestamp,
    )
    assert arrival.properties == "UNIQ_KEY\x01U1\x02TAGS\x01T\x02"


async def test_listeners_of_a_topic_and_while_somebody_waits(files: FileSystem) -> None:
    """Single messages and batches are told to those who listen to the topic, and to
    those for whom somebody waits at that moment.
    """
    of_topic: list[tuple[str, int]] = []
    woken: list[tuple[str, int]] = []
    waiting: dict[str, None] = {}

    def wake(arrival: Arrival) -> None:
        woken.append((arrival.topic, arrival.queue_offset))
        waiting.clear()

    async with open_store(files, small_config(mapped_file_size_commit_log=1 << 16)) as store:
        store.listen(
            lambda arrival: of_topic.append((arrival.topic, arrival.queue_offset)), topic="TopicB"
        )
        store.listen(wake, waiting=waiting)
        for topic in ("TopicA", "TopicB"):
            store.put(message(topic))
            waiting["one"] = None
            store.put_batch(message(topic, body=encode_batch([(0, b"a", b""), (0, b"b", b"")])))
            waiting["one"] = None
            store.put(message(topic))
    assert of_topic == [("TopicB", 0), ("TopicB", 1), ("TopicB", 2), ("TopicB", 3)]
    assert woken == [("TopicA", 1), ("TopicA", 3), ("TopicB", 1), ("TopicB", 3)]


async def test_searching_by_time(autojump_clock: trio.testing.MockClock) -> None:
    """Both boundaries, inside runs of equal times, between them and beyond both
    ends.
    """
    async with open_store(config=small_config(mapped_file_size_consume_queue=100)) as store:
        times: list[int] = []
        for index in range(40):
            if index % 4 == 0:
                await trio.sleep(1)
            times.append(store.put(message()).store_timestamp)
        assert len(set(times)) == 10
        for time in range(times[0] - 500, times[-1] + 1500, 500):
            lower = next((index for index, stored in enumerate(times) if stored >= time), 40)
            upper = max((index for index, stored in enumerate(times) if stored <= time), default=0)
            assert store.offset_by_time("TopicA", 0, time, BoundaryType.LOWER) == lower
            assert store.offset_by_time("TopicA", 0, time, BoundaryType.UPPER) == upper
        assert store.store_time_at("TopicA", 0, 39) == times[-1]
        assert store.store_time_at("TopicA", 0, 40) == -1
        assert store.earliest_store_time() == times[0]
        assert store.offset_by_time("Nowhere", 0, times[0]) == 0


async def test_deleted_topics_stay_deleted(files: FileSystem) -> None:
    """Records of a deleted topic are not found again, and a topic made anew under its
    name keeps its messages, whatever way the store is opened.
    """
    async with open_store(files) as store:
        for index in range(60):
            store.put(message("Old", 0, b"%d" % index))
            store.put(message("Stays", 0, b"%d" % index))
        await store.delete_topic("Old")
        assert (store.topics(), store.max_offset("Old", 0)) == ({"Stays"}, 0)
        assert store.get("Old", 0, 0, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
    files.write("abort", b"1")
    files.remove("checkpoint")
    async with open_store(files) as store:
        assert store.topics() == {"Stays"}
        assert store.put(message("Old", 0, b"new")).queue_offset == 0
    files.remove_tree("consumequeue")
    async with open_store(files) as store:
        assert bodies(store, "Old") == [b"new"]
        assert len(bodies(store, "Stays")) == 60


async def test_a_memory_store_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    """Full: a status of its own, nothing lost of what was acknowledged, and reads go
    on.
    """
    files = MemoryFileSystem(200_000)
    async with open_store(files, small_config(mapped_file_size_commit_log=1 << 20)) as store:
        accepted = 0
        while (result := store.put(message(body=b"%06d" % accepted * 20))).ok:
            accepted += 1
            if accepted % 50 == 0:
                await trio.sleep(0.6)
        assert result.status in (
            PutStatus.CREATE_MAPPED_FILE_FAILED,
            PutStatus.SERVICE_NOT_AVAILABLE,
        )
        assert 500 < accepted < 1000
        assert files.used_bytes <= 200_000
        assert bodies(store) == [b"%06d" % index * 20 for index in range(accepted)]


async def test_a_full_disk_is_a_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the file system has no space for the next part of the log, the put says so,
    and works again when there is some.
    """
    allocate = os.posix_fallocate
    async with open_store(OsFileSystem(tmp_path), small_config(allocation_step=4096)) as store:

        def refuse(descriptor: int, offset: int, length: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        count = 0
        monkeypatch.setattr(os, "posix_fallocate", refuse)
        assert store.put(message()).status is PutStatus.CREATE_MAPPED_FILE_FAILED
        monkeypatch.setattr(os, "posix_fallocate", allocate)
        while store.max_physical_offset < 4000:
            assert store.put(message(body=b"%d" % count)).ok
            count += 1
        monkeypatch.setattr(os, "posix_fallocate", refuse)
        while (result := store.put(message(body=b"%d" % count))).ok:
            count += 1
        assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        monkeypatch.setattr(os, "posix_fallocate", allocate)
        assert store.put(message(body=b"%d" % count)).ok
        assert bodies(store) == [b"%d" % index for index in range(count + 1)]


async def test_cold_reads(tmp_path: Path) -> None:
    """What is not in memory any more is read from the files, the same bytes either
    way.
    """
    config = StoreConfig(mapped_file_size_commit_log=1 << 20, hot_bytes=20_000)
    async with open_store(OsFileSystem(tmp_path), config) as store:
        for index in range(2000):
            store.put(message(queue_id=index % 2, body=b"%d" % index))
        assert not store.is_cold("TopicA", 0, 999)
        store.is_cold("TopicA", 0, 0)
        direct = store.get("TopicA", 0, 0, 32)
        cold = await store.read_cold(QueueRead("TopicA", 0, 0, 32))
        assert (direct.body, direct.next_begin_offset) == (cold.body, cold.next_begin_offset)
        assert direct.count == 32
        assert bodies(store, "TopicA", 1) == [b"%d" % index for index in range(1, 2000, 2)]
