"""Log records say what they are about, for people and for programs."""

from __future__ import annotations

import ast
import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.log_fields import FIELDS, about
from rocketmq_sdk.log_format import JournalFormatter, JsonFormatter
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.command import Command
from support.paths import ROOT
from support.source import FILES, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def logged(formatter: logging.Formatter) -> tuple[logging.Logger, io.StringIO]:
    """A logger of its own, and what it has written."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(formatter)
    logger = logging.Logger("rocketmq_sdk.test")
    logger.addHandler(handler)
    return logger, written


def test_what_is_known_is_a_field() -> None:
    assert about() == {}
    assert about(topic="orders", group="billing", queue=0) == {
        "topic": "orders",
        "group": "billing",
        "queue": 0,
    }
    assert about(queue=MessageQueue("orders", "broker-a", 3), message_id="X") == {
        "topic": "orders",
        "broker": "broker-a",
        "queue": 3,
        "message_id": "X",
    }


@pytest.mark.parametrize(
    ("code", "fields", "found"),
    [
        (
            RequestCode.SEND_MESSAGE_V2,
            {"a": "shop", "b": "orders", "c": "TBW102"},
            {"topic": "orders", "group": "shop"},
        ),
        (
            RequestCode.PULL_MESSAGE,
            {"consumerGroup": "billing", "topic": "orders", "a": "x", "b": "y"},
            {"topic": "orders", "group": "billing"},
        ),
        (RequestCode.GET_BROKER_RUNTIME_INFO, {}, {}),
    ],
)
def test_a_request_names_its_topic_and_group(
    code: RequestCode, fields: dict[str, str], found: dict[str, str]
) -> None:
    request = Command.request(code)
    request.ext_fields.update(fields)
    assert about(request=request, peer="10.0.0.1:5") == {
        "request": code.name,
        "peer": "10.0.0.1:5",
        **found,
    }


def test_a_line_of_json_holds_all_fields() -> None:
    logger, written = logged(JsonFormatter())
    logger.warning("größer\nthan %d", 1, extra=about(topic="orders", queue=1))
    try:
        raise ValueError("wrong")
    except ValueError:
        logger.exception("failed", extra={"audit_user": None, "other": object})
    first, second = map(json.loads, written.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "WARNING",
        "logger": "rocketmq_sdk.test",
        "message": "größer\nthan 1",
        "topic": "orders",
        "queue": 1,
    }
    assert "ValueError: wrong" in second["error"]
    assert "audit_user" not in second
    assert second["other"] == "<class 'object'>"


def test_each_line_for_the_journal_has_its_level() -> None:
    logger, written = logged(JournalFormatter())
    logger.error("two\nlines")
    logger.warning("w")
    logger.info("i")
    logger.debug("d")
    assert written.getvalue().splitlines() == [
        "<3>rocketmq_sdk.test: two",
        "<3>lines",
        "<4>rocketmq_sdk.test: w",
        "<6>rocketmq_sdk.test: i",
        "<7>rocketmq_sdk.test: d",
    ]


def records() -> Iterator[tuple[Path, ast.Call, str]]:
    """Each call of a logger in the package, with its text."""
    for path in FILES:
        for node in source_of(path).log_calls:
            if node.args and isinstance(node.args[0], ast.Constant):
                yield path, node, str(node.args[0].value)


def test_records_about_a_group_or_a_request_carry_it() -> None:
    bare, fields = [], set()
    for path, node, text in records():
        given = {keyword.arg: keyword.value for keyword in node.keywords}.get("extra")
        if isinstance(given, ast.Dict):  # {**about(...), "more": ...}
            given = next((each for each in given.values if isinstance(each, ast.Call)), None)
        if isinstance(given, ast.Call):
            fields |= {keyword.arg for keyword in given.keywords}
        elif any(f"{what} %{kind}" in text for what in ("group", "request") for kind in "sr"):
            bare.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text}")
    assert not bare, "\n".join(bare)
    assert fields <= {*FIELDS}
    assert {"topic", "group", "queue", "request"} <= fields
