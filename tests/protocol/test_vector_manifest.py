"""The manifest of recorded vectors and the copies beside it say the same."""

from __future__ import annotations

import json

from support.paths import VECTORS

MANIFEST = json.loads((VECTORS / "MANIFEST.json").read_text())


def test_states_are_in_or_out_with_the_stage_they_wait_for() -> None:
    states = {state for group in MANIFEST.values() for state in group.values()}
    assert "in" in states
    assert all(state == "in" or state.startswith("out, waits for ") for state in states)


def test_the_copies_are_exactly_those_that_are_in() -> None:
    for group, files in MANIFEST.items():
        copies = {
            str(path.relative_to(VECTORS / group))
            for path in (VECTORS / group).rglob("*")
            if path.is_file()
        }
        assert copies == {name for name, state in files.items() if state == "in"}, group


def test_the_recorded_tables_are_listed() -> None:
    assert len(MANIFEST["codec"]) == 28
    assert len(MANIFEST["wire"]) >= 90
