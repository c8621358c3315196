"""Each alert has a runbook, and each runbook is about an alert."""

from __future__ import annotations

import re
import shlex

import yaml

from rocketmq_sdk.cli import parser
from support.paths import ROOT

RULES = sorted((ROOT / "examples" / "monitoring").glob("alerts*.yml"))
PAGE = (ROOT / "docs" / "runbooks.md").read_text("utf-8")
PROGRAMS = {"df", "iostat", "journalctl", "ls", "rocketmq", "systemctl", "top"}
SECTIONS = re.findall(r"^## (\S+)$", PAGE, re.M)


def alerts() -> dict[str, dict[str, str]]:
    """The annotations of each alert by its name."""
    return {
        rule["alert"]: rule["annotations"]
        for file in RULES
        for group in yaml.safe_load(file.read_text("utf-8"))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }


def test_each_alert_has_its_runbook() -> None:
    found = alerts()
    assert len(found) >= 10
    assert sorted(found) == sorted(SECTIONS)
    for name, notes in found.items():
        assert notes["runbook_url"] == f"docs/runbooks.md#{name.lower()}"


def test_each_runbook_says_what_it_means_and_what_helps() -> None:
    parts = re.split(r"^## \S+$", PAGE, flags=re.M)[1:]
    assert len(parts) == len(SECTIONS)
    for name, text in zip(SECTIONS, parts, strict=True):
        assert "**Means:**" in text, name
        assert re.search(r"\*\*(Do|Look and do):\*\*", text), name
        assert "**Look" in text, name


def test_each_runbook_names_a_command_and_those_of_rocketmq_are_right() -> None:
    known = parser()
    for name, text in zip(SECTIONS, re.split(r"^## \S+$", PAGE, flags=re.M)[1:], strict=True):
        spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
        assert PROGRAMS & {span.split()[0] for span in spans}, name
        for span in spans:
            program, *words = shlex.split(span) if span.startswith("rocketmq ") else [""]
            if program:  # N stands for a number
                known.parse_all(["7" if word == "N" else word for word in words])
