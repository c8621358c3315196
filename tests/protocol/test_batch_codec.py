"""Batch bodies against Apache's encoder, and against bytes that nobody should send."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_sdk.model.properties import decode_properties, encode_properties
from rocketmq_sdk.model.route import pack_host
from rocketmq_sdk.protocol.batch_codec import BatchItem, count_batch, decode_batch, encode_batch
from rocketmq_sdk.protocol.message_codec import encode_record
from support.paths import CODEC_VECTORS

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRIES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "message_batch.json").read_text())


def _items(entry: dict[str, Any]) -> list[BatchItem]:
    return [
        (
            message["flag"],
            bytes.fromhex(message["body"]),
            encode_properties(message["properties_in_map_order"]).encode(),
        )
        for message in entry["messages"]
    ]


@pytest.mark.parametrize("entry", ENTRIES)
def test_encodes_and_decodes_as_apache_does(entry: dict[str, Any]) -> None:
    items = _items(entry)
    body = encode_batch(items)
    assert body.hex() == entry["batch_body"]
    assert decode_batch(body) == items
    decoded = [
        {"body": part.hex(), "flag": flag, "properties": decode_properties(text.decode())}
        for flag, part, text in decode_batch(body)
    ]
    assert decoded == entry["decoded"]
    assert len(decoded) == entry["count"]


@pytest.mark.parametrize("entry", ENTRIES)
def test_makes_the_records_that_the_store_makes_of_it(entry: dict[str, Any]) -> None:
    records = [
        encode_record(
            b"T",
            body,
            properties,
            queue_id=2,
            flag=flag,
            queue_offset=0,
            physical_offset=0,
            sys_flag=0,
            born_timestamp=1700000000000,
            born_host=pack_host("10.1.2.3", 4567),
            store_timestamp=1700000000123,
            store_host=pack_host("127.0.0.1", 10911),
            reconsume_times=0,
            prepared_offset=0,
        )
        for flag, body, properties in decode_batch(bytes.fromhex(entry["batch_body"]))
    ]
    assert b"".join(records).hex() == entry["store_records_before_offsets_are_filled"]


def test_long_properties_are_refused() -> None:
    assert decode_batch(encode_batch([(0, b"", bytes(32767))])) == [(0, b"", bytes(32767))]
    with pytest.raises(LocalProtocolError, match="32768 bytes, more than 32767"):
        encode_batch([(0, b"", bytes(32768))])


@pytest.mark.parametrize(
    ("position", "patch", "reason"),
    [
        (0, struct.pack(">i", 0), "claims 0 bytes"),
        (0, struct.pack(">i", -5), "claims -5 bytes"),
        (0, struct.pack(">i", 2**31 - 1), "claims 2147483647 bytes"),
        (16, struct.pack(">i", -1), "a body of -1"),
        (16, struct.pack(">i", 2**31 - 1), "a body of 2147483647"),
        (24, b"\xff\xff", "do not end where the message does"),
        (24, b"\x00\x00", "do not end where the message does"),
    ],
)
def test_broken_frames_are_named(position: int, patch: bytes, reason: str) -> None:
    good = encode_batch([(1, b"body", b"A\x01b\x02")])
    broken = bytearray(good)
    broken[position : position + len(patch)] = patch
    with pytest.raises(RemoteProtocolError, match=f"message at {len(good)} .*{reason}"):
        decode_batch(good + bytes(broken))
    with pytest.raises(RemoteProtocolError, match=f"message at {len(good)} .*{reason}"):
        count_batch(good + bytes(broken))


ITEMS = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=60), st.binary(max_size=60)),
    max_size=5,
)


@settings(deadline=None, max_examples=100)
@given(ITEMS, st.data())
def test_round_trip_truncated_and_with_tail(items: list[BatchItem], data: st.DataObject) -> None:
    body = encode_batch(items)
    assert decode_batch(body) == items
    assert decode_batch(memoryview(body)) == items
    if items:
        last = len(encode_batch(items[-1:]))
        with pytest.raises(RemoteProtocolError):
            decode_batch(body[: -data.draw(st.integers(1, last - 1))])
    with pytest.raises(RemoteProtocolError):
        decode_batch(body + data.draw(st.binary(min_size=1, max_size=21)))


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=100), ITEMS)
def test_noise_raises_nothing_else(noise: bytes, items: list[BatchItem]) -> None:
    data = encode_batch(items) + noise
    try:
        assert encode_batch(decode_batch(data))[:4] == data[:4]
    except RemoteProtocolError:
        pass


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=100), ITEMS)
def test_counting_agrees_with_decoding(noise: bytes, items: list[BatchItem]) -> None:
    assert count_batch(encode_batch(items)) == len(items)
    data = encode_batch(items) + noise
    assert _outcome(count_batch, data) == _outcome(lambda body: len(decode_batch(body)), data)


def _outcome(function: Callable[[bytes], int], data: bytes) -> int | str:
    try:
        return function(data)
    except RemoteProtocolError as error:
        return str(error)
