"""Benchmarks that reach into parts of the product still measure what they name."""

from __future__ import annotations

import sys

import pytest
import trio

from benchmarks import against, append, stages
from benchmarks.__main__ import main
from benchmarks.harness import Report
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from support.paths import ROOT

CHUNK = {
    "client: submit",
    "client: outbox to frames",
    "broker: cut the requests",
    "broker: serve plain sends",
    "broker: index entries",
    "client: cut the answers",
    "client: sweep the answers",
    "broker: cut Java's requests",
    "broker: admit plain sends to a run",
    "broker: put a run into the store",
    "broker: frames of the answers",
}


def test_stages_have_the_way_of_a_message_alone_and_of_a_chunk() -> None:
    report = Report()
    stages.run(report, 0.02)
    assert all(figure.median > 0 for figure in report.figures.values())
    assert {f"stage: chunk, {name}" for name in CHUNK} <= report.figures.keys()
    message = report.figures["stage: client: make a message"]
    assert message.baseline in report.figures


def test_a_store_grows_by_runs_with_their_index() -> None:
    report = Report()
    files = MemoryFileSystem(256 * 1024**2)
    trio.run(append.grow_by_runs, files, "memory", report, 0.02)
    grown = report.figures["put by runs with index, memory, 40,000 stored"]
    assert report.ratio(grown)


def test_a_figure_that_one_tree_lacks_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = {"both": ("us", 1.0), "new": ("us", 1.0)}
    there = {"both": ("us", 2.0), "old": ("us", 1.0)}

    def measure(tree: object, _name: str, _scale: float) -> against.Medians:
        return here if tree == against.HERE else there

    monkeypatch.setattr(against, "measure", measure)
    pairs = against.compare(ROOT / "other", ["stages"], 2, 1.0)
    assert pairs.keys() == {"both"}
    assert pairs["both"].ratio == 2.0
    assert "not in both trees: new, old" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [("nosuch", "there is no 'nosuch'; there are append, "), ("apend", "; did you mean append?")],
)
def test_a_name_that_is_no_benchmark_is_told_the_others(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", name])
    with pytest.raises(SystemExit):
        main()
    error = capsys.readouterr().err
    assert said in error
    assert "[]" not in error.rpartition("error:")[2]
