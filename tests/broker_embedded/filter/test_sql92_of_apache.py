"""SQL92 expressions against the recorded table: what compiles, the tree, the result of
an evaluation, and whether the message is delivered.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest

from rocketmq_sdk.broker_embedded.filter.conversions import EvaluationError
from rocketmq_sdk.broker_embedded.filter.evaluate import compile_expression
from rocketmq_sdk.errors import FilterSyntaxError
from rocketmq_sdk.protocol.sql92.parser import parse
from support.paths import CODEC_VECTORS

TABLE = json.loads(gzip.decompress((CODEC_VECTORS / "sql92.json.gz").read_bytes()))
DEFAULT = TABLE[0]["default_props"]
ENTRIES = TABLE[1:]
RESULTS = {True: "TRUE", False: "FALSE", None: "NULL"}


def outcome(entry: dict[str, Any]) -> dict[str, Any]:
    """What we make of an entry, in the words of the table."""
    properties = DEFAULT if entry["props"] == "default" else entry["props"]
    try:
        expression = compile_expression(entry["expr"])
    except FilterSyntaxError:
        return {"compile": "error", "result": None}
    try:
        result = RESULTS[expression.evaluate(properties)]
    except EvaluationError:
        result = "EXCEPTION"
    return {"compile": "ok", "result": result, "delivered": expression.matches(properties)}


def test_every_recorded_expression_comes_out_as_with_apache() -> None:
    pairs = [(entry, outcome(entry)) for entry in ENTRIES]
    wrong = [
        (entry, ours)
        for entry, ours in pairs
        if any(entry[name] != value for name, value in ours.items())
    ]
    assert not wrong, f"{len(wrong)} of {len(ENTRIES)}, the first: {wrong[:5]}"
    assert len(ENTRIES) == 2075


def _plain_numbers(text: str) -> str:
    """Java and Python write numbers differently; the values count."""
    return re.sub(
        r"[0-9]+\.[0-9]+(?:E-?[0-9]+)?|[0-9]+(?:\.[0-9]+)?e[+-]?[0-9]+",
        lambda found: str(float(found[0])),
        text,
    )


@pytest.mark.parametrize("part", range(4))
def test_trees_are_those_of_apache(part: int) -> None:
    for entry in ENTRIES[part::4]:
        if entry["compile"] == "ok":
            assert _plain_numbers(str(parse(entry["expr"]))) == _plain_numbers(
                entry["to_string"]
            ), entry["expr"]
