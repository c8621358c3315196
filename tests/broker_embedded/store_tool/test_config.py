"""What verify says of config files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk.broker_embedded.store_tool.report import DirectoryReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from support.store import unpack

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack("kitchen-sink", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("topics.json", {"topicConfigTable": []}, "topicConfigTable is no object"),
        ("topics.json", {"topicConfigTable": {"T": 3}}, "topicConfigTable, T is no object"),
        (
            "consumerOffset.json",
            {"offsetTable": {"T@G": {"0": "ten"}}},
            "offsetTable, T@G, 0 is no number of 64 bits",
        ),
        (
            "consumerOffset.json",
            {"offsetTable": {"T@G": {"0": 1 << 63}}},
            "offsetTable, T@G, 0 is no number of 64 bits",
        ),
        ("consumerOffset.json", {"dataVersion": 7}, "dataVersion is no object"),
        (
            "delayOffset.json",
            {"offsetTable": {"1": None}},
            "offsetTable, 1 is no number of 64 bits",
        ),
        (
            "subscriptionGroup.json",
            {"forbiddenTable": {"g": {"T": {}}}},
            "forbiddenTable, g, T is no number of 64 bits",
        ),
        ("consumerOrderInfo.json", {"table": {"T@G": []}}, "table, T@G is no object"),
        (
            "messageRequestMode.json",
            {"messageRequestModeMap": {"T": {"G": 1}}},
            "messageRequestModeMap, T, G is no object",
        ),
        ("timermetrics", {"timingCount": {"T": 1}}, "timingCount, T is no object"),
        ("consumerFilter.json", [], "holds no object"),
    ],
)
def test_a_member_of_another_form_is_named(name: str, content: Any, words: str, root: Path) -> None:
    (root / "config" / name).write_text(json.dumps(content))
    assert [
        (finding.path, finding.kind, finding.problem) for finding in verify_directory(root).findings
    ] == [(f"config/{name}", "config", words)]


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 100])
def test_a_file_that_cannot_be_read_is_named_with_its_backup(content: bytes, root: Path) -> None:
    (root / "config" / "topics.json").write_bytes(content)
    (finding,) = verify_directory(root).findings
    assert finding.path == "config/topics.json"
    assert "its .bak can be read" in finding.problem
    (root / "config" / "topics.json.bak").unlink()
    (finding,) = verify_directory(root).findings
    assert "there is no .bak that can be read" in finding.problem


def test_members_that_nobody_knows_are_no_finding(root: Path) -> None:
    (root / "config" / "delayOffset.json").write_text(
        '{"offsetTable":{1:10},"of a later release":[1]}'
    )
    assert verify_directory(root).findings == []


def test_a_file_that_a_running_broker_is_about_to_replace_is_read_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    read = DirectoryReader.read

    def read_between_renames(reader: DirectoryReader, path: str, offset: int, size: int) -> bytes:
        nonlocal looks
        if path == "config/topics.json":
            looks += 1
            if looks < 3:
                return b""
        return read(reader, path, offset, size)

    monkeypatch.setattr(DirectoryReader, "read", read_between_renames)
    assert [
        finding
        for finding in verify_directory(root, running=True).findings
        if finding.kind == "config"
    ] == []
    assert looks >= 3


@pytest.mark.parametrize("running", [False, True])
def test_an_empty_file_is_a_finding_beside_a_broker_as_well(root: Path, running: bool) -> None:
    (root / "config" / "topics.json").write_bytes(b"")
    [finding] = [
        finding
        for finding in verify_directory(root, running=running).findings
        if finding.kind == "config"
    ]
    assert finding.problem.startswith("the file is empty")
