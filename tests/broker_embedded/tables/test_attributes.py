"""Attributes in request syntax, against what Apache's parser and rules make of the same
texts.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_sdk.broker_embedded.tables.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    alter_attributes,
    parse_attributes,
)
from rocketmq_sdk.errors import ConfigurationError
from support.paths import CODEC_VECTORS

RULES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "names_and_rules.json").read_text())
ATTRIBUTES = [rule for rule in RULES if rule["kind"] == "attributes"]


@pytest.mark.parametrize("rule", ATTRIBUTES, ids=lambda rule: repr(rule["string"]))
def test_texts(rule: dict[str, Any]) -> None:
    def parsed() -> dict[str, str]:
        return parse_attributes(rule["string"])

    def created() -> dict[str, str]:
        return alter_attributes(TOPIC_ATTRIBUTES, {}, parsed(), creating=True)

    def altered() -> dict[str, str]:
        return alter_attributes(
            TOPIC_ATTRIBUTES, {"message.type": "NORMAL"}, parsed(), creating=False
        )

    for make, expected in (
        (parsed, rule["map"]),
        (created, rule["create"]),
        (altered, rule["alter_existing_message.type_NORMAL"]),
    ):
        if "error" in expected:
            with pytest.raises(ConfigurationError) as error:
                make()
            # Java's own text of an index error, and the order of Java's hash tables,
            # mean nothing.
            if "Index" not in expected["message"]:
                assert str(error.value).partition(": ")[0] == expected["message"].partition(": ")[0]
        else:
            assert make() == expected


def test_the_vector_has_cases() -> None:
    assert len(ATTRIBUTES) >= 25


@pytest.mark.parametrize(
    ("value", "good"), [("0", True), ("100", True), ("101", False), ("x", False), ("-1", False)]
)
def test_priority_of_groups(value: str, good: bool) -> None:
    changes = {"+priority.factor": value}
    if good:
        assert alter_attributes(GROUP_ATTRIBUTES, {}, changes, creating=False) == {
            "priority.factor": value
        }
    else:
        with pytest.raises(ConfigurationError):
            alter_attributes(GROUP_ATTRIBUTES, {}, changes, creating=False)
