"""Property text both ways, against Apache's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.model import properties as names
from rocketmq_sdk.model.properties import (
    RESERVED_NAMES,
    decode_properties,
    encode_properties,
    property_in_text,
    without_property,
)
from support.paths import CODEC_VECTORS

ENTRIES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "properties.json").read_text())
CONSTANTS: dict[str, Any] = next(
    entry
    for entry in json.loads((CODEC_VECTORS / "constants.json").read_text())
    if entry["class"] == "MessageConst"
)
NEW_IN_5_5 = {"__LITE_TOPIC"}
"""`MessageConst.PROPERTY_LITE_TOPIC` of release 5.5.0; the vectors are of 5.4.0."""


@pytest.mark.parametrize(
    "entry",
    [entry for entry in ENTRIES if entry["kind"] == "encode"],
    ids=lambda entry: ascii(entry["string"])[:40],
)
def test_encodes_as_apache_does(entry: dict[str, Any]) -> None:
    assert encode_properties(entry["map"] or {}) == entry["string"]
    assert decode_properties(entry["string"]) == entry["back"]


@pytest.mark.parametrize(
    "entry",
    [entry for entry in ENTRIES if entry["kind"] == "decode"],
    ids=lambda entry: ascii(entry["string"])[:40],
)
def test_decodes_as_apache_does(entry: dict[str, Any]) -> None:
    assert decode_properties(entry["string"] or "") == entry["map"]
    for name in ("A", "B", "C", "AB", "X", "a", "\u4f60"):
        assert property_in_text(entry["string"] or "", name) == entry["map"].get(name)


def test_there_are_vectors() -> None:
    assert {entry["kind"] for entry in ENTRIES} == {"encode", "decode"}
    assert len(ENTRIES) == 34


def test_reserved_names_are_apaches() -> None:
    assert set(CONSTANTS["reserved"]) | NEW_IN_5_5 == RESERVED_NAMES


def test_our_names_are_apaches() -> None:
    ours = {
        value
        for name, value in vars(names).items()
        if name.isupper() and isinstance(value, str) and not name.startswith("_")
    }
    assert len(ours) > 40
    assert ours <= set(CONSTANTS["values"].values()) | NEW_IN_5_5


PART = st.text(st.characters(exclude_characters="\x01\x02"), min_size=1, max_size=8)
BROKEN = st.text(st.sampled_from("AB1\x01\x02"), max_size=30)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(PART, PART, max_size=6))
def test_round_trip(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert decode_properties(text.removesuffix("\x02")) == properties
    for name, value in properties.items():
        assert property_in_text(text, name) == value
        assert decode_properties(without_property(text, name)) == {
            other: value for other, value in properties.items() if other != name
        }


@settings(deadline=None, max_examples=300)
@given(BROKEN)
def test_one_property_is_what_decoding_all_gives(text: str) -> None:
    found = decode_properties(text)
    for name in ("A", "B", "AB", "1"):
        assert property_in_text(text, name) == found.get(name)
        assert name not in decode_properties(without_property(text, name))
    for name, value in found.items():
        assert name
        assert value
        assert decode_properties(encode_properties({name: value})) == {name: value}
