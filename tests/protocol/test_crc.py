"""Body CRC and property CRC, against Apache's records and against crcmod as a second
opinion.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import crcmod.predefined
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.model.properties import encode_properties
from rocketmq_sdk.protocol.message_codec import body_crc, decode_message
from rocketmq_sdk.protocol.property_crc import (
    PROPERTY_CRC_SIZE,
    fill_property_crc,
    reserve_property_crc,
    verify_property_crc,
)
from support.paths import CODEC_VECTORS
from support.records import encode_entry

BODIES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "crc.json").read_text())
ENTRIES: list[dict[str, Any]] = json.loads(
    gzip.decompress((CODEC_VECTORS / "message_records.json.gz").read_bytes())
)
WITH_CRC = [
    entry
    for entry in ENTRIES
    if entry["append_prop_crc"] and "record" in entry and "254 bytes" not in entry["name"]
]
ORACLE = crcmod.predefined.mkPredefinedCrcFun("crc-32")


@pytest.mark.parametrize("entry", BODIES, ids=lambda entry: str(entry["crc"]))
def test_body_crc(entry: dict[str, Any]) -> None:
    body = bytes.fromhex(entry["body"] or "")
    assert body_crc(body) == entry["crc"] == ORACLE(body) & 0x7FFFFFFF


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=300))
def test_body_crc_agrees_with_the_oracle(body: bytes) -> None:
    assert body_crc(body) == ORACLE(body) & 0x7FFFFFFF


def test_there_are_vectors() -> None:
    assert len(WITH_CRC) == 27


@pytest.mark.parametrize("entry", WITH_CRC, ids=lambda entry: entry["name"])
def test_writes_the_property_crc_as_apache_does(entry: dict[str, Any]) -> None:
    record = fill_property_crc(
        encode_entry(entry, reserve_property_crc(bytes.fromhex(entry["properties_string"])))
    )
    assert record.hex() == entry["record"]
    assert verify_property_crc(record)
    digits = decode_message(record).properties["__CRC32#"]
    assert int(digits[::-1]) == ORACLE(record[:-PROPERTY_CRC_SIZE]) & 0x7FFFFFFF


def test_a_missing_separator_is_added_unless_in_a_batch() -> None:
    assert reserve_property_crc(b"A\x01b") == b"A\x01b\x02__CRC32#\x010000000000\x02"
    assert reserve_property_crc(b"A\x01b", from_batch=True) == b"A\x01b__CRC32#\x010000000000\x02"
    assert reserve_property_crc(b"") == b"__CRC32#\x010000000000\x02"


def test_a_crc_that_came_along_is_replaced() -> None:
    for given_text in (
        b"A\x01b\x02__CRC32#\x0199\x02C\x01d\x02",
        b"__CRC32#\x0199\x02A\x01b\x02C\x01d",
        b"A\x01b\x02C\x01d\x02__CRC32#\x0199",
    ):
        assert reserve_property_crc(given_text) == b"A\x01b\x02C\x01d\x02__CRC32#\x010000000000\x02"
    similar = b"X__CRC32#\x011\x02"
    assert reserve_property_crc(similar).startswith(similar)


@settings(deadline=None, max_examples=60)
@given(
    st.binary(max_size=60),
    st.dictionaries(st.sampled_from(["A", "B", "TAGS"]), st.text("xyz", min_size=1, max_size=5)),
    st.data(),
)
def test_any_changed_byte_is_noticed(
    body: bytes, properties: dict[str, str], data: st.DataObject
) -> None:
    entry = {**WITH_CRC[0], "body": body.hex()}
    record = fill_property_crc(
        encode_entry(entry, reserve_property_crc(encode_properties(properties).encode()))
    )
    for kind in (bytes, bytearray, memoryview):
        assert verify_property_crc(kind(record))
    assert {
        name: value
        for name, value in decode_message(record).properties.items()
        if name != "__CRC32#"
    } == properties
    position = data.draw(st.integers(0, len(record) - 1))
    broken = bytearray(record)
    broken[position] ^= data.draw(st.integers(1, 255))
    assert not verify_property_crc(broken)
    assert not verify_property_crc(record[:-1])


def test_a_record_without_the_property_does_not_verify() -> None:
    assert not verify_property_crc(b"")
    assert not verify_property_crc(encode_entry(WITH_CRC[0], b"A\x01b\x02"))
    assert not verify_property_crc(bytes(100))
