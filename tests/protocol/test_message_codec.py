"""Records: byte for byte what Apache's encoder writes, everything that its decoder
reads, and nothing but our own errors for hostile bytes.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import CodecMissingError, LocalProtocolError, RemoteProtocolError
from rocketmq_sdk.model.properties import encode_properties
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.model.route import pack_host, unpack_host
from rocketmq_sdk.protocol import message_codec
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.compression import CompressionType, compress
from rocketmq_sdk.protocol.message_codec import (
    MAGIC_BLANK,
    MAGIC_V2,
    POSITION_MAGIC,
    POSITION_QUEUE_OFFSET,
    POSITION_TOTAL_SIZE,
    body_crc,
    decode_message,
    decode_messages,
    encode_record,
    head_size,
    record_size,
)
from support.paths import CODEC_VECTORS
from support.records import encode_entry

ENTRIES: list[dict[str, Any]] = json.loads(
    gzip.decompress((CODEC_VECTORS / "message_records.json.gz").read_bytes())
)
RECORDS = [entry for entry in ENTRIES if "record" in entry]
# Java counts characters when it chooses V1 and bytes when it writes the length, so it
# cannot read back a topic of 127 characters and 254 bytes. No legal topic is like that.
UNREADABLE = "topic 127 chars, 254 bytes"
V4 = pack_host("10.1.2.3", 4567)
V6 = pack_host("2001:db8::1", 10911)


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['name']}{' with crc' if entry['append_prop_crc'] else ''}"


def record(
    topic: bytes = b"T", body: bytes = b"body", properties: bytes = b"", **changes: Any
) -> bytes:
    fields: dict[str, Any] = {
        "queue_id": 3,
        "flag": 7,
        "queue_offset": 42,
        "physical_offset": 1 << 40,
        "sys_flag": 0,
        "born_timestamp": 1700000000000,
        "born_host": V4,
        "store_timestamp": 1700000000123,
        "store_host": V4,
        "reconsume_times": 2,
        "prepared_offset": 99,
    }
    return encode_record(topic, body, properties, **(fields | changes))


@pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if not entry["append_prop_crc"]], ids=_name
)
def test_encodes_as_apache_does(entry: dict[str, Any]) -> None:
    properties = bytes.fromhex(entry["properties_string"])
    if "encode_status" in entry:
        with pytest.raises(LocalProtocolError, match="32767"):
            encode_entry(entry, properties)
    elif entry["name"] == UNREADABLE:
        encoded = encode_entry(entry, properties)
        assert struct.unpack_from(">I", encoded, 4)[0] == MAGIC_V2
        assert decode_messages(encoded)[0].topic == entry["topic"]
    else:
        encoded = encode_entry(entry, properties)
        assert encoded.hex() == entry["record"]
        assert len(encoded) == record_size(
            len(entry["topic"].encode()),
            len(bytes.fromhex(entry["body"] or "")),
            len(properties),
            host_bytes=len(pack_host(entry["bornHost"], 1)) + len(pack_host(entry["storeHost"], 1)),
        )


def _java_host(packed: bytes) -> str:
    host, port = unpack_host(packed)
    if ":" in host:
        host = (
            "["
            + ":".join(f"{int.from_bytes(packed[i : i + 2], 'big'):x}" for i in range(0, 16, 2))
            + "]"
        )
    return f"/{host}:{port}"


def _assert_decoded(message: ReceivedMessage, expected: dict[str, Any]) -> None:
    assert message.topic == expected["topic"]
    assert message.queue_id == expected["queueId"]
    assert message.flag == expected["flag"]
    assert message.offset == expected["queueOffset"]
    assert message.commit_log_offset == expected["commitLogOffset"]
    assert message.sys_flag == expected["sysFlag"]
    assert message.born_timestamp == expected["bornTimestamp"]
    assert message.store_timestamp == expected["storeTimestamp"]
    assert _java_host(message.born_host) == expected["bornHost"]
    assert _java_host(message.store_host) == expected["storeHost"]
    assert message.reconsume_times == expected["reconsumeTimes"]
    assert message.prepared_transaction_offset == expected["preparedTransactionOffset"]
    assert message.store_size == expected["storeSize"]
    assert message.body_crc == expected["bodyCRC"]
    assert message.offset_message_id == expected["msgId"]
    assert message.body == bytes.fromhex(expected["body"] or "")
    assert message.properties == (expected["properties"] or {})


@pytest.mark.parametrize("entry", RECORDS, ids=_name)
def test_decodes_as_apache_does(entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["record"])
    if entry["name"] == UNREADABLE:
        assert entry["decoded"] is None
        with pytest.raises(RemoteProtocolError, match="do not add up"):
            decode_messages(data)
        return
    message = decode_message(data, broker_name="broker-a")
    _assert_decoded(message, entry["decoded"])
    assert message.message_id == entry["client_msg_id"]
    assert message.broker_name == "broker-a"
    _assert_decoded(decode_message(data, inflate=False), entry["decoded_without_inflating"])


def test_decodes_a_batch_of_all_records_in_order() -> None:
    readable = [entry for entry in RECORDS if entry["name"] != UNREADABLE]
    data = b"".join(bytes.fromhex(entry["record"]) for entry in readable)
    messages = decode_messages(data, unwrap=False)
    assert len(messages) == len(readable) == 55
    for message, entry in zip(messages, readable, strict=True):
        _assert_decoded(message, entry["decoded"])
    for kind in (bytearray, memoryview):
        assert [message.body for message in decode_messages(kind(data), unwrap=False)] == [
            message.body for message in messages
        ]


def test_inner_batch_is_unwrapped_and_counts_offsets_up() -> None:
    entry = next(entry for entry in RECORDS if entry["name"] == "inner batch")
    plain = record(queue_offset=1)
    messages = decode_messages(plain + bytes.fromhex(entry["record"]) + plain, broker_name="b")
    assert [message.offset for message in messages] == [1, 10, 11, 1]
    first, second = messages[1:3]
    assert (first.body, second.body) == (b"one", b"two")
    assert (first.message_id, second.message_id) == ("A", "B")
    assert first.sys_flag == 128
    assert first.topic == "T"
    assert first.store_timestamp == entry["storeTimestamp"]
    assert first.body_crc == body_crc(b"one")
    assert first.broker_name == "b"


def test_broken_inner_batch_names_the_record() -> None:
    data = record() + record(body=encode_batch([(0, b"x", b"")])[:-1], sys_flag=192)
    with pytest.raises(
        RemoteProtocolError, match=rf"record at {len(record())} holds a broken inner batch"
    ):
        decode_messages(data)


def test_only_one_of_the_two_inner_batch_bits_is_left_alone() -> None:
    body = encode_batch([(0, b"x", b"")])
    for sys_flag in (64, 128):
        message = decode_messages(record(body=body, sys_flag=sys_flag))[0]
        assert message.body == body


@pytest.mark.parametrize("compression_type", list(CompressionType))
def test_inflates_and_clears_the_flag(compression_type: CompressionType) -> None:
    body = b"compress me " * 100
    data = record(
        body=compress(body, compression_type), sys_flag=1 | compression_type.sys_flag_bits | 2
    )
    message = decode_messages(data)[0]
    assert message.body == body
    assert message.sys_flag == compression_type.sys_flag_bits | 2
    left = decode_messages(data, inflate=False)[0]
    assert left.body == compress(body, compression_type)
    assert left.sys_flag & 1


def test_damaged_compressed_body_names_the_record() -> None:
    with pytest.raises(RemoteProtocolError, match=f"record at {len(record())} cannot be inflated"):
        decode_messages(record() + record(body=b"not zlib", sys_flag=1))


def test_bombs_are_bounded_over_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = record(body=compress(bytes(60_000)), sys_flag=1)
    monkeypatch.setattr(message_codec, "INFLATED_TOTAL_LIMIT", 100_000)
    assert len(decode_messages(bomb)[0].body) == 60_000
    with pytest.raises(RemoteProtocolError, match="more than 40000 bytes"):
        decode_messages(bomb * 2)
    monkeypatch.setattr(message_codec, "DEFAULT_LIMIT", 50_000)
    with pytest.raises(RemoteProtocolError, match="more than 50000 bytes"):
        decode_messages(bomb)


@pytest.mark.parametrize(
    ("position", "patch", "reason"),
    [
        (4, struct.pack(">I", MAGIC_BLANK), "the magic cbd43194"),
        (0, struct.pack(">i", 0), "claims 0 bytes"),
        (0, struct.pack(">i", -1), "claims -1 bytes"),
        (0, struct.pack(">i", 2**31 - 1), "claims 2147483647 bytes"),
        (0, struct.pack(">i", 98), "do not add up"),
        (84, struct.pack(">i", -1), "do not add up"),
        (84, struct.pack(">i", -200), "do not add up"),
        (84, struct.pack(">i", 2**31 - 1), "do not add up"),
        (92, b"\xff", "do not add up"),
        (94, b"\xff\xff", "do not add up"),
    ],
)
def test_broken_record_is_named(position: int, patch: bytes, reason: str) -> None:
    good = record(properties=b"A\x01b\x02")
    broken = bytearray(good)
    broken[position : position + len(patch)] = patch
    with pytest.raises(RemoteProtocolError, match=f"record at {len(good)} .*{reason}"):
        decode_messages(good + bytes(broken))


@pytest.mark.parametrize("topic", [b"", b"T"])
def test_every_record_needs_a_magic_of_its_own(topic: bytes) -> None:
    broken = bytearray(record(topic))
    broken[4:8] = struct.pack(">I", MAGIC_V2 + 1)
    for data in (bytes(broken), record(topic) + bytes(broken)):
        with pytest.raises(RemoteProtocolError, match="which no message has"):
            decode_messages(data)


def test_every_truncation_is_refused() -> None:
    good = record(properties=b"A\x01b\x02", born_host=V6)
    assert decode_messages(good[:0]) == []
    for length in range(1, len(good)):
        with pytest.raises(RemoteProtocolError, match="record at 0"):
            decode_messages(good[:length])
        with pytest.raises(RemoteProtocolError):
            decode_message(good[:length])
        with pytest.raises(RemoteProtocolError, match=f"record at {len(good)}"):
            decode_messages(good + good[:length])


def test_decode_message_ignores_what_follows() -> None:
    good = record()
    assert decode_message(b"head" + good + b"tail", 4).body == b"body"
    for offset in (-1, len(good), len(good) - 7):
        with pytest.raises(RemoteProtocolError, match="no record starts"):
            decode_message(good, offset)


@pytest.mark.parametrize(
    "changes",
    [
        {"queue_id": 2**31},
        {"queue_offset": 2**63},
        {"flag": -(2**31) - 1},
        {"born_host": b"1234"},
        {"store_host": b""},
        {"properties": bytes(32768)},
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        record(**changes)


def test_host_bits_follow_the_hosts() -> None:
    for born, store, bits in ((V4, V4, 0), (V6, V4, 16), (V4, V6, 32), (V6, V6, 48)):
        for given_bits in (0, 16, 32, 48):
            data = record(born_host=born, store_host=store, sys_flag=given_bits | 4)
            message = decode_messages(data)[0]
            assert message.sys_flag == bits | 4
            assert (message.born_host, message.store_host) == (born, store)
            assert head_size(bits) == len(data) - len(b"body") - 1 - len(b"T") - 2


HOSTS = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
FIELDS = st.fixed_dictionaries(
    {
        "topic": st.text(st.characters(codec="utf-8"), min_size=1, max_size=70).map(str.encode),
        "body": st.binary(max_size=200),
        "properties": st.dictionaries(
            st.text(
                st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=10
            ),
            st.text(
                st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=10
            ),
            max_size=4,
        ),
        "queue_id": INT,
        "flag": INT,
        "queue_offset": LONG,
        "physical_offset": LONG,
        "sys_flag": INT.map(lambda flag: flag & ~0x41),
        "born_timestamp": LONG,
        "born_host": HOSTS,
        "store_timestamp": LONG,
        "store_host": HOSTS,
        "reconsume_times": INT,
        "prepared_offset": LONG,
    }
)


ALIKE = st.sampled_from(
    [
        record(),
        record(sys_flag=4),
        record(topic=b"other-topic"),
        record(topic=b"U"),
        record(body=b"bod", properties=b"P"),
        record(body=b""),
        record(born_host=bytes(20)),
        record(topic=b"x" * 200),
        record(body=zlib.compress(b"text"), sys_flag=1),
        record(body=b"as long as it ", sys_flag=4),
        record(body=encode_batch([(1, b"x", b""), (0, b"y", b"A\x01b\x02")]), sys_flag=192),
    ]
)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(ALIKE, st.integers(1, 4)), max_size=6), st.data())
def test_runs_of_alike_records_are_read_as_each_alone(
    runs: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    records = []
    for number, (one, times) in enumerate(runs):
        for time in range(times):
            changed = bytearray(one)  # each has its offset
            changed[POSITION_QUEUE_OFFSET : POSITION_QUEUE_OFFSET + 8] = struct.pack(
                ">q", 10 * number + time
            )
            records.append(bytes(changed))
    whole = b"".join(records)
    together = decode_messages(whole, broker_name="b")
    alone = [found for one in records for found in decode_messages(one, broker_name="b")]
    assert [values(message) for message in together] == [values(message) for message in alone]
    if records:
        broken = data.draw(st.integers(0, len(records) - 1))
        at = sum(map(len, records[:broken]))
        for place in (POSITION_MAGIC, POSITION_TOTAL_SIZE + 3):
            damaged = bytearray(whole)
            damaged[at + place] ^= 1
            with pytest.raises(RemoteProtocolError, match=f"record at {at} "):
                decode_messages(damaged)


def values(message: ReceivedMessage) -> list[object]:
    return [getattr(message, name) for name in ReceivedMessage.__slots__]


@settings(deadline=None, max_examples=60)
@given(st.lists(FIELDS, max_size=4), st.data())
def test_round_trip(items: list[dict[str, Any]], data: st.DataObject) -> None:
    records = [
        encode_record(
            item["topic"],
            item["body"],
            encode_properties(item["properties"]).encode(),
            **_without_parts(item),
        )
        for item in items
    ]
    whole = b"".join(records)
    messages = decode_messages(whole)
    assert len(messages) == len(items)
    for message, item, raw in zip(messages, items, records, strict=True):
        assert message.topic.encode() == item["topic"]
        assert message.body == item["body"]
        assert message.properties == item["properties"]
        assert (message.queue_id, message.flag, message.offset) == (
            item["queue_id"],
            item["flag"],
            item["queue_offset"],
        )
        assert (message.commit_log_offset, message.reconsume_times) == (
            item["physical_offset"],
            item["reconsume_times"],
        )
        assert (message.born_timestamp, message.store_timestamp) == (
            item["born_timestamp"],
            item["store_timestamp"],
        )
        assert (message.born_host, message.store_host) == (item["born_host"], item["store_host"])
        assert message.prepared_transaction_offset == item["prepared_offset"]
        assert message.sys_flag & ~48 == item["sys_flag"] & ~48
        assert message.store_size == len(raw)
    if whole:
        cut = data.draw(st.integers(1, len(records[-1]) - 1))
        with pytest.raises(RemoteProtocolError):
            decode_messages(whole[:-cut])
    tail = data.draw(st.binary(min_size=1, max_size=40))
    with pytest.raises(RemoteProtocolError):
        decode_messages(whole + tail)


def _without_parts(item: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in item.items() if name not in ("topic", "body", "properties")
    }


GOOD = [
    record(properties=b"A\x01b\x02"),
    record(born_host=V6, store_host=V6, topic=b"t" * 200),
    record(body=compress(b"zz" * 50), sys_flag=1),
    record(body=compress(b"zz" * 50, CompressionType.LZ4), sys_flag=0x101),
    record(body=compress(b"zz" * 50, CompressionType.ZSTD), sys_flag=0x201),
    record(body=encode_batch([(1, b"x", b"A\x01b\x02"), (2, b"y", b"")]), sys_flag=192),
]


PATCH = st.one_of(
    st.sampled_from([b"\x00", b"\xff", b"\x7f", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff"]),
    st.binary(max_size=8),
)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from(GOOD), min_size=1, max_size=3).map(b"".join),
    st.lists(st.tuples(st.integers(0, 10_000), PATCH)),
)
def test_hostile_bytes_raise_nothing_else(data: bytes, patches: list[tuple[int, bytes]]) -> None:
    broken = bytearray(data)
    for position, patch in patches:
        start = position % len(broken)
        broken[start : start + len(patch)] = patch
    try:
        for message in decode_messages(bytes(broken)):
            assert isinstance(message.properties, dict)
            assert isinstance(message.message_id, str)
            assert repr(message)
    except (RemoteProtocolError, CodecMissingError):
        pass


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=300))
def test_noise_raises_nothing_else(data: bytes) -> None:
    try:
        assert decode_messages(data) == [] or data
    except (RemoteProtocolError, CodecMissingError):
        pass
