"""Queue units that lead to bit maps, and what becomes of these when the process ends,
the log is cut or they are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.messages import GetStatus
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.subscription import tags_code
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

EXT = f"consumequeue_ext/TopicA/0/{0:020d}"


def ext_config(**settings: object) -> StoreConfig:
    return small_config(
        **{"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1024, **settings}
    )


def open_ext(files: MemoryFileSystem, config: StoreConfig | None = None) -> MessageStore:
    store = open_store(files, config or ext_config())
    store.calculate_bit_maps(
        lambda _topic, properties: bytes([len(properties.get("TAGS", ""))]) * 14
    )
    return store


class WantsBitMap:
    """Lets messages through that have a certain bit map, or none that could be read."""

    needs_properties = False

    def __init__(self, byte: int) -> None:
        self.byte = byte
        self.codes: list[int | None] = []

    what = None

    def matches_tags_code(self, code: int | None) -> bool:
        self.codes.append(code)
        return True

    def work(self, _length: int) -> int:
        raise AssertionError("nobody asked for properties")

    def matches_record(self, _properties: Mapping[str, str]) -> bool:
        raise AssertionError("nobody asked for properties")

    def may_match(self, bit_map: bytes, store_timestamp: int) -> bool:
        assert store_timestamp > 0
        return not bit_map or bit_map == bytes([self.byte]) * 14


def found(store: MessageStore, wanted: WantsBitMap) -> list[bytes]:
    seen: list[bytes] = []
    offset = 0
    while offset < store.max_offset("TopicA", 0):
        result = store.get("TopicA", 0, offset, 32, message_filter=wanted)
        assert result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE)
        seen += [item.body for item in decode_messages(result.body)]
        offset = result.next_begin_offset
    return seen


def fill(store: MessageStore, count: int = 60) -> None:
    for number in range(count):
        assert store.put(message(body=b"%d" % number, tag="t" * (number % 3 + 1))).ok


async def test_a_filter_sees_the_bit_map_and_the_real_tags_code(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem(write_through=True)
    wanted = WantsBitMap(2)
    async with open_ext(files) as store:
        fill(store)
        assert found(store, wanted) == [b"%d" % number for number in range(60) if number % 3 == 1]
        assert wanted.codes[0] == tags_code("t")
        assert store.queue_unit("TopicA", 0, 4) == (
            *store.queue_unit("TopicA", 0, 4)[:2],
            tags_code("tt"),
        )  # type: ignore[index]
    assert len(files.file_sizes("consumequeue_ext/TopicA/0")) == 2
    assert verify(FileSystemReader(files)).findings == []
    async with open_ext(files) as store:
        assert found(store, WantsBitMap(3)) == [
            b"%d" % number for number in range(60) if number % 3 == 2
        ]
        fill(store, 3)
        assert found(store, WantsBitMap(3))[-1] == b"2"


async def test_the_bytes_are_those_of_apache(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_ext(files) as store:
        put = store.put(message(tag="tt"))
    record = (
        (34).to_bytes(2)
        + tags_code("tt").to_bytes(8, signed=True)
        + put.store_timestamp.to_bytes(8)
        + (14).to_bytes(2)
        + b"\x02" * 14
    )
    data = files.open(EXT).pread(1024, 0)
    assert data[: len(record)] == record
    assert not data[len(record) :].strip(b"\0")
    unit = files.open(f"consumequeue/TopicA/0/{0:020d}").pread(20, 0)
    assert unit[12:] == (1 << 63).to_bytes(8)


async def test_a_file_ends_with_a_mark_when_the_next_record_does_not_fit(
    autojump_clock: MockClock,
) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_ext(files) as store:
        fill(store, 31)
    data = files.open(EXT).pread(1024, 0)
    assert data[30 * 34 - 34 : 30 * 34 - 32] == (34).to_bytes(2)
    assert data[30 * 34 : 30 * 34 + 2] == b"\xff\xff"


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_units_built_again_get_their_bit_maps_again(
    flush: FlushDiskType, autojump_clock: MockClock
) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_ext(files, ext_config(flush_disk_type=flush)) as store:
        fill(store)
        await store.flush()
    files.write("abort", b"")
    files.remove_tree("consumequeue")
    async with open_ext(files) as store:
        assert found(store, WantsBitMap(1)) == [
            b"%d" % number for number in range(60) if number % 3 == 0
        ]


async def test_without_the_files_all_is_built_again(
    autojump_clock: MockClock,
) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_ext(files) as store:
        fill(store, 6)
    files.remove_tree("consumequeue_ext")
    async with open_ext(files) as store:
        assert found(store, WantsBitMap(1)) == [b"0", b"3"]
        fill(store, 3)
        assert found(store, WantsBitMap(1)) == [b"0", b"3", b"0"]
        assert bodies(store) == [*(b"%d" % number for number in range(6)), b"0", b"1", b"2"]


async def test_a_store_with_the_switch_off_reads_what_is_there(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_ext(files) as store:
        fill(store, 6)
    async with open_store(files, ext_config(enable_consume_queue_ext=False)) as store:
        assert found(store, WantsBitMap(1)) == [b"0", b"3"]


async def test_a_deleted_topic_takes_its_bit_maps_along(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_ext(files) as store:
        fill(store)
        await store.delete_topic("TopicA")
        assert not files.exists("consumequeue_ext/TopicA")
        fill(store, 3)
        assert found(store, WantsBitMap(2)) == [b"1"]
