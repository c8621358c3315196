"""`rocketmq store`: exit codes, text and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rocketmq_sdk.cli import main
from support.store import expected, unpack

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_verify_a_clean_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack("plain", tmp_path)
    assert main(["store", "verify", str(root)]) == 0
    assert capsys.readouterr().out.startswith("nothing wrong: 2,000 records")


def test_a_directory_that_was_not_closed_is_told_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = unpack("plain", tmp_path)
    (root / "abort").touch()
    assert main(["store", "verify", str(root)]) == 0
    out = capsys.readouterr().out
    assert "the store was not closed; the next start recovers it" in out
    assert "nothing wrong: 2,000 records" in out
    assert main(["store", "dump", str(root)]) == 0


def test_a_log_that_is_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack("torn", tmp_path)
    log = (root / "commitlog").rename(tmp_path / "log")
    assert main(["store", "repair", str(root)]) == 2
    assert "no log in commitlog" in capsys.readouterr().err
    assert main(["store", "repair", str(root), "--commit-log", str(log)]) == 0
    assert main(["store", "verify", str(root), "--commit-log", str(log)]) == 0
    assert "3,871 records" in capsys.readouterr().out


def test_verify_repair_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack("torn", tmp_path)
    assert main(["store", "verify", "--json", str(root)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {
        "file": "commitlog/00000000000001441792",
        "offset": 57856,
        "kind": "tail",
    }.items() <= found["findings"][1].items()
    assert main(["store", "repair", "--dry-run", str(root)]) == 1
    assert "would cut the log at 1499648" in capsys.readouterr().out
    assert (root / "abort").exists()
    assert main(["store", "repair", "--json", str(root)]) == 0
    repaired = json.loads(capsys.readouterr().out)
    assert (repaired["repaired"], repaired["findings"]) == (True, [])
    assert repaired["steps"][0] == "cut the log at 1499648"
    assert main(["store", "verify", str(root)]) == 0


def test_repair_of_queues_that_are_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack("killed-noindex", tmp_path)
    size = expected("killed-noindex.full")["sizes"]["mappedFileSizeConsumeQueue"]
    assert main(["store", "repair", "--queue-file-size", str(size), str(root)]) == 0
    assert "3,872 units in 6 queues" in capsys.readouterr().out


def test_damage_that_cannot_be_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack("plain", tmp_path)
    log = root / "commitlog" / "00000000000000131072"
    data = bytearray(log.read_bytes())
    data[int.from_bytes(data[:4]) + 4] ^= 1
    log.write_bytes(data)
    assert main(["store", "repair", str(root)]) == 1
    out = capsys.readouterr().out
    assert "cannot be repaired: commitlog/00000000000000131072" in out
    assert "nothing was changed" in out


def test_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack("plain", tmp_path)
    assert main(["store", "dump", "--json", "--topic", "PlainC", str(root)]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = [
        item
        for queue in expected("plain")["queues"]
        if queue["topic"] == "PlainC"
        for item in queue["messages"]
    ]
    assert [(record["queue_offset"], record["position"], record["size"]) for record in records] == [
        (item["queueOffset"], item["physicalOffset"], item["size"]) for item in wanted
    ]
    assert records[0]["properties"]["UNIQ_KEY"] == wanted[0]["uniqueKey"]
    assert main(["store", "dump", str(root)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2000


def test_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("verify", "dump", "repair"):
        (tmp_path / "file").touch()
        for name in ("missing", "file"):
            assert main(["store", action, str(tmp_path / name)]) == 2
            assert f"{name} is no directory" in capsys.readouterr().err


def test_an_index_behind_the_log_is_told_and_no_failure_after_an_unclean_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = unpack("plain", tmp_path)
    last = sorted((root / "index").iterdir())[-1]
    last.unlink()
    assert main(["store", "verify", str(root)]) == 1
    assert "1 finding:" in capsys.readouterr().out
    (root / "abort").touch()
    assert main(["store", "verify", str(root)]) == 0
    out = capsys.readouterr().out
    assert "the next start adds them" in out
    assert "nothing wrong: 2,000 records" in out
    first = sorted((root / "index").iterdir())[0]
    first.write_bytes(first.read_bytes()[:36] + bytes(4) + first.read_bytes()[40:])
    assert main(["store", "verify", str(root)]) == 1
