"""Subscriptions against Apache's `FilterAPI.build`, and tag codes against its
hashes.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import ConfigurationError, FieldError
from rocketmq_sdk.names import java_hash
from rocketmq_sdk.protocol.subscription import SubscriptionData, build_subscription, tags_code
from support.paths import CODEC_VECTORS

ENTRIES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "subscription.json").read_text())
HASHES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "hashes.json").read_text())


@pytest.mark.parametrize(
    "entry", ENTRIES, ids=lambda entry: f"{entry['type']}: {entry['expression']!a}"
)
def test_builds_as_apache_does(entry: dict[str, Any]) -> None:
    expected = entry["result"]
    if "error" in expected:
        with pytest.raises(ConfigurationError, match="TopicTest"):
            build_subscription(
                entry["topic"], entry["expression"], entry["type"], sub_version=1700000000000
            )
        return
    data = build_subscription(
        entry["topic"], entry["expression"], entry["type"], sub_version=1700000000000
    )
    assert data.sub_string == expected["subString"]
    assert data.expression_type == expected["expressionType"]
    assert data.tags_set == set(expected["tagsSet"])
    assert data.code_set == set(expected["codeSet"])
    printed = json.loads(expected["json"])
    assert {**data.to_json(), "tagsSet": set(data.tags_set), "codeSet": set(data.code_set)} == {
        **printed,
        "tagsSet": set(printed["tagsSet"]),
        "codeSet": set(printed["codeSet"]),
    }
    assert list(data.to_json()) == list(printed)
    assert SubscriptionData.from_json(printed) == data
    assert data.is_tag_type == entry["isTagType"]
    assert data.matches_all == (entry["isTagType"] and expected["subString"] == "*")


@pytest.mark.parametrize("entry", HASHES, ids=lambda entry: ascii(entry["tag"]))
def test_tags_codes(entry: dict[str, Any]) -> None:
    assert tags_code(entry["tag"]) == entry["tagsCode"] == entry["tagsCode_multi"]
    assert (
        tags_code(entry["tag"]).to_bytes(8, "big", signed=True).hex()
        == entry["tagsCode_as_8_bytes"]
    )


def test_no_tags_have_the_code_0() -> None:
    assert tags_code(None) == 0


def test_only_java_white_space_is_trimmed() -> None:
    data = build_subscription("T", "\x00a\x1f||\u00a0b\u3000", sub_version=0)
    assert data.tags_set == {"a", "\u00a0b\u3000"}


def test_missing_and_null_members_take_defaults() -> None:
    assert SubscriptionData.from_json({}) == SubscriptionData("")
    nothing = dict.fromkeys(
        (
            "topic",
            "subString",
            "tagsSet",
            "codeSet",
            "subVersion",
            "expressionType",
            "classFilterMode",
        )
    )
    assert SubscriptionData.from_json(nothing) == SubscriptionData("")
    assert SubscriptionData.from_json({"topic": "T", "classFilterMode": True}).class_filter_mode


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("topic", 1),
        ("subString", []),
        ("expressionType", {}),
        ("subVersion", "1"),
        ("subVersion", True),
        ("tagsSet", "a"),
        ("tagsSet", [1]),
        ("codeSet", ["a"]),
        ("codeSet", [True]),
        ("codeSet", {}),
    ],
)
def test_members_of_the_wrong_type_are_named(member: str, value: object) -> None:
    with pytest.raises(FieldError, match=f"SubscriptionData.{member} "):
        SubscriptionData.from_json({"topic": "T", member: value})


TAGS = st.lists(
    st.text(st.characters(exclude_characters="|", min_codepoint=0x21), min_size=1, max_size=8),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=80)
@given(TAGS, st.sampled_from(["||", " || ", "||||", "\t||\n"]))
def test_tags_survive(tags: list[str], separator: str) -> None:
    data = build_subscription("T", separator.join(tags), sub_version=5)
    if tags == ["*"]:
        assert data.matches_all
    else:
        assert data.tags_set == set(tags)
        assert data.code_set == set(map(java_hash, tags))
    assert SubscriptionData.from_json(json.loads(json.dumps(data.to_json()))) == data
