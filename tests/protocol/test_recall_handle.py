"""Recall handles, against Apache's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.recall_handle import RecallHandle, decode_recall_handle
from support.paths import CODEC_VECTORS

TABLE = json.loads((CODEC_VECTORS / "names_and_rules.json").read_text())
MADE = [entry for entry in TABLE if entry["kind"] == "recall"]
READ = [entry for entry in TABLE if entry["kind"] in ("recall", "recall_decode")]


@pytest.mark.parametrize("entry", MADE, ids=lambda entry: entry["handle"])
def test_handles_are_written_as_apache_writes_them(entry: dict[str, Any]) -> None:
    handle = RecallHandle(entry["topic"], entry["broker"], entry["timestamp"], entry["messageId"])
    assert handle.encode() == entry["handle"]


@pytest.mark.parametrize("entry", READ, ids=lambda entry: entry["handle"])
def test_handles_are_read_as_apache_reads_them(entry: dict[str, Any]) -> None:
    wanted = entry["decoded"]
    if isinstance(wanted, dict):
        with pytest.raises(RemoteProtocolError, match=wanted["message"]):
            decode_recall_handle(entry["handle"])
    else:
        assert ["v1", *decode_recall_handle(entry["handle"])] == wanted


def test_there_are_entries_of_both_kinds() -> None:
    assert len(MADE) == 5
    assert len(READ) >= 10
