"""Names and Java's string hash against Apache's tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk import names
from rocketmq_sdk.errors import ConfigurationError
from support.paths import CODEC_VECTORS

RULES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "names_and_rules.json").read_text())
VALIDATE = [entry for entry in RULES if entry["kind"] == "validate" and entry["name"] is not None]
HASHES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "hashes.json").read_text())


def test_there_are_vectors() -> None:
    assert (len(VALIDATE), len(HASHES)) == (27, 82)


@pytest.mark.parametrize(
    "entry", VALIDATE, ids=lambda entry: f"{entry['name'][:24]!a} {len(entry['name'])}"
)
def test_rules_are_apaches(entry: dict[str, Any]) -> None:
    name = entry["name"]
    assert (names.topic_problem(name) is None) == entry["topic_result"]["valid"]
    assert (names.group_problem(name) is None) == entry["group_result"]["valid"]
    assert names.is_system_topic(name) == entry["system"]
    assert (name in names.NOT_SENDABLE_TOPICS) == entry["not_allowed_send"]
    assert names.is_system_group(name) == entry["sys_group"]
    sendable = entry["client_check_topic"] == "ok" and not entry["not_allowed_send"]
    if sendable:
        names.check_send_topic(name)
    else:
        with pytest.raises(ConfigurationError, match="topic"):
            names.check_send_topic(name)
    if entry["client_check_group"] == "ok" and name != "DEFAULT_CONSUMER":
        names.check_group(name)
    else:
        with pytest.raises(ConfigurationError, match="group"):
            names.check_group(name)


def test_problems_name_what_is_wrong() -> None:
    assert (
        names.topic_problem("a b.c b")
        == "the topic 'a b.c b' contains ' .'; allowed are letters, digits and % | - _"
    )
    assert names.group_problem("g" * 121) == "the group has 121 characters, more than 120"
    assert names.group_problem("\t") == "the group is blank"


@pytest.mark.parametrize("group", ["DEFAULT_PRODUCER", "DEFAULT_CONSUMER"])
def test_placeholders_are_no_groups(group: str) -> None:
    with pytest.raises(ConfigurationError, match="placeholder"):
        names.check_group(group)


def test_derived_names() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dead_letter_topic("g") == "%DLQ%g"
    assert names.reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"
    longest = "g" * names.MAX_GROUP_LENGTH
    assert names.topic_problem(names.retry_topic(longest)) is None
    names.check_send_topic(names.retry_topic(longest))


def test_a_pop_retry_topic_tells_where_its_messages_come_from() -> None:
    for topic in ("orders", "a_b", "%DLQ%other"):
        for form in (names.pop_retry_topic_v1, names.pop_retry_topic_v2):
            assert names.origin_of_pop_retry(form(topic, "billing"), "billing") == topic
    for topic in (
        "orders",
        "%RETRY%billing",
        "%RETRY%billing_",
        "%RETRY%other_orders",
        "%RETRY%billings",
    ):
        assert names.origin_of_pop_retry(topic, "billing") == topic


@pytest.mark.parametrize("entry", HASHES, ids=lambda entry: ascii(entry["tag"]))
def test_java_hash(entry: dict[str, Any]) -> None:
    assert names.java_hash(entry["tag"]) == entry["hashCode"]
    assert (
        abs(names.java_hash(entry["index_key"])) == entry["indexKeyHash"]
        or entry["indexKeyHash"] == 0
    )


def _slow_hash(text: str) -> int:
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(raw), 2):
        value = 31 * value + int.from_bytes(raw[index : index + 2], "big")
    value %= 1 << 32
    return value - (1 << 32) if value >= 1 << 31 else value


@settings(deadline=None, max_examples=150)
@given(
    st.one_of(
        st.text(),
        st.text(st.characters(max_codepoint=127), max_size=300),
        st.text(st.characters(categories=["Cs"])),
    )
)
def test_java_hash_of_any_text(text: str) -> None:
    assert names.java_hash(text) == _slow_hash(text)


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 129, 1000])
def test_java_hash_of_any_length(length: int) -> None:
    assert names.java_hash("x" * length) == _slow_hash("x" * length)
