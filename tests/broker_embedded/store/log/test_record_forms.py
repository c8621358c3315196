"""Forms of records that not every store writes: the CRC of the whole record, long
topics, IPv6 hosts.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.log.record import check_record, plain_records
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.message_codec import decode_message, encode_record
from rocketmq_sdk.protocol.property_crc import verify_property_crc
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from trio.testing import MockClock

V6 = bytes.fromhex("20010db8000000000000000000000001") + (4567).to_bytes(4)


async def test_a_store_seals_what_it_appends(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_store(files, small_config(enabled_append_prop_crc=True)) as store:
        for number in range(30):
            put = store.put(message(body=b"single %d" % number))
            record = store.record_at(put.physical_offset)
            assert record is not None
            assert verify_property_crc(record)
        batch = store.put_batch(
            message(body=encode_batch([(0, b"one", b"a\x011\x02"), (0, b"two", b"")]))
        )
        for position in batch.physical_offsets or []:
            record = store.record_at(position)
            assert record is not None
            assert verify_property_crc(record)
        wanted = bodies(store)
    assert verify(FileSystemReader(files)).findings == []
    files.write("abort", b"")
    async with open_store(files, small_config(force_verify_prop_crc=True)) as store:
        assert bodies(store) == wanted


async def test_the_log_ends_at_a_record_without_its_crc_where_that_is_asked_for(
    autojump_clock: MockClock,
) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_store(files, small_config(enabled_append_prop_crc=True)) as store:
        store.put(message(body=b"sealed"))
        damaged = store.put(message(body=b"damaged", properties={"color": "red"})).physical_offset
        store.put(message(body=b"behind"))
    file = files.open(f"commitlog/{0:020d}")
    at = file.pread(4096, 0).index(b"red")
    file.pwrite(b"bed", at)
    findings = verify(FileSystemReader(files)).findings
    assert [(finding.kind, damaged < finding.offset) for finding in findings] == [("crc", True)]
    files.write("abort", b"")
    async with open_store(files, small_config()) as store:
        assert bodies(store) == [b"sealed", b"damaged", b"behind"]
    files.write("abort", b"")
    async with open_store(files, small_config(force_verify_prop_crc=True)) as store:
        assert bodies(store) == [b"sealed"]


async def test_the_room_for_the_crc_counts_as_properties(autojump_clock: MockClock) -> None:
    config = small_config(mapped_file_size_commit_log=1 << 20, enabled_append_prop_crc=True)
    async with open_store(MemoryFileSystem(write_through=True), config) as store:
        room = 32767 - len("UNIQ_KEY\x01U1\x02") - len("k\x01\x02")
        assert store.put(message(properties={"k": "v" * (room - 20)})).ok
        assert (
            store.put(message(properties={"k": "v" * (room - 19)})).status
            is PutStatus.PROPERTIES_SIZE_EXCEEDED
        )


@pytest.mark.parametrize(
    "topic", ["%RETRY%" + "t" * 120, "%RETRY%" + "t" * 121, "%RETRY%" + "t" * 248]
)
@pytest.mark.parametrize("born", [message().born_host, V6], ids=["born-v4", "born-v6"])
@pytest.mark.parametrize("stored", [None, V6], ids=["stored-v4", "stored-v6"])
async def test_long_topics_and_both_families_of_addresses(
    topic: str, born: bytes, stored: bytes | None, autojump_clock: MockClock
) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_store(files) as store:
        puts = [
            store.put(message(topic, 0, b"body %d" % number, born_host=born, store_host=stored))
            for number in range(20)
        ]
    files.write("abort", b"")
    files.remove_tree("consumequeue")
    async with open_store(files) as store:
        assert bodies(store, topic) == [b"body %d" % number for number in range(20)]
        record = store.record_at(puts[0].physical_offset)
        assert record is not None
        decoded = decode_message(record)
        assert record[4:8].hex() == ("daa320ab" if len(topic) > 127 else "daa320a7")
        assert decoded.born_host == born
        assert store.store_time_at(topic, 0, 0) == puts[0].store_timestamp
    assert verify(FileSystemReader(files)).findings == []


@pytest.mark.parametrize("check_crc", [True, False])
def test_a_scan_takes_for_plain_only_what_the_full_check_accepts(check_crc: bool) -> None:
    random = Random(5)
    fields: dict[str, Any] = {
        "flag": 3,
        "born_timestamp": 1,
        "born_host": bytes(8),
        "store_timestamp": 2,
        "store_host": bytes(8),
    }
    records = [
        encode_record(
            topic,
            random.randbytes(40),
            b"KEYS\x01a\x02",
            queue_id=1,
            queue_offset=2,
            physical_offset=100,
            sys_flag=4,
            reconsume_times=5,
            prepared_offset=6,
            **fields | hosts,
        )
        for topic in (b"plain", b"long" * 40)
        for hosts in ({}, {"born_host": V6}, {"store_host": V6})
    ]
    accepted = 0
    for record in records:
        for _ in range(3000):
            damaged = bytearray(record)
            for at in random.sample(
                [*range(8), *range(36, 88), *range(len(record) - 20, len(record))],
                random.choice((0, 1, 1, 2)),
            ):
                damaged[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            data = b"front" + bytes(damaged) + b"behind"
            topics: dict[bytes, str | None] = {b"plain": "plain", b"long" * 40: "long" * 40}
            plain = plain_records(data, 5, 100, topics, check_crc=check_crc)
            if plain:
                accepted += 1
                assert plain == [check_record(data, 5, 100, topics, check_crc=check_crc)]
    assert accepted > 500


def test_a_scan_takes_plain_records_in_a_row_up_to_one_that_is_not_all_there() -> None:
    size = len(_record(0))
    records = b"".join([_record(1000 + number * size) for number in range(3)])
    topics: dict[bytes, str | None] = {b"topic": "topic"}
    heads = plain_records(records, 0, 1000, topics, check_crc=True)
    assert [head.position for head in heads] == [1000, 1000 + size, 1000 + 2 * size]
    assert len(plain_records(records[:-1], 0, 1000, topics, check_crc=True)) == 2
    assert plain_records(records, 0, 1000, {}, check_crc=True) == []


def test_a_record_that_names_another_position_is_old_bytes_of_a_buffer() -> None:
    topics: dict[bytes, str | None] = {b"topic": "topic"}
    for place in (999, 1001, 0, 1 << 40):
        assert plain_records(_record(1000), 0, place, topics, check_crc=True) == []
        assert check_record(_record(1000), 0, place, topics, check_crc=True) is None
    assert check_record(_record(1000), 0, 1000, topics, check_crc=True) is not None


def _record(position: int) -> bytes:
    return encode_record(
        b"topic",
        b"body",
        b"",
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=position,
        sys_flag=0,
        born_timestamp=0,
        born_host=bytes(8),
        store_timestamp=0,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_offset=0,
    )
