"""mqadmin's sub-commands on two clusters, and their outputs side by side.

What cannot be the same is masked: addresses, times, ids, directories of the machine.
The order of lines is that of Java's hash tables and not compared. Everything else must
agree, but for lines that a step drops with its reason; `docs/mqadmin.md` tells users
the same.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Final

import attrs

_MASKS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([:,.]\d+)?"), "<time>"),
    (re.compile(r"\b\d{14,17}\b"), "<time>"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "<ms>"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+@[\w@.-]+(#\d+)*"), "<client>"),
    (re.compile(r"/?127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\b127\.0\.0\.1\b"), "<host>"),
    (re.compile(r"\b[0-9A-F]{32}(?:[0-9A-F]{24})?\b"), "<id>"),
    (re.compile(r"(/[\w.-]+)+/([\w.-]+)"), r"<directory>/\2"),
    (re.compile(r"\brt=\d+ms\b"), "<rt>"),
    (re.compile(r"\s+"), " "),
)
_NOISE: Final = re.compile(r"\|-|^\s*at |^\s*\.\.\. \d+ more|For more information|bestPractice")


@attrs.frozen
class Step:
    """One command; `{broker}` and other places in it are filled from the cluster.

    `drop` and `only` choose lines by a pattern, `mask` hides what a pattern finds in
    them; `reason` says why, where that is a difference. `again` allows to look
    repeatedly, for what settles by and by. `common` compares the lines whose keys both
    sides have. With `ours` the outputs differ on purpose: Apache's has no error, or
    `theirs` in it, ours has this text.
    """

    line: str
    drop: str | None = None
    only: str | None = None
    mask: str | None = None
    again: bool = False
    common: bool = False
    ours: str | None = None
    theirs: str | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """The sub-command."""
        return self.line.partition(" ")[0]

    def arguments(self, places: dict[str, Any]) -> list[str]:
        """The words for one cluster."""
        return [word.format(**places) for word in self.line.split()]

    def differences(self, theirs: str, ours: str) -> list[str]:
        """What is not as it should be; empty when all is well."""
        if self.ours is not None:
            problems = (
                [] if self.ours in ours else [f"ours does not say {self.ours!r}: {ours[:500]}"]
            )
            if self.theirs is not None and self.theirs not in theirs:
                problems.append(f"Apache's does not say {self.theirs!r}: {theirs[:500]}")
            return problems
        left, right = self.lines(theirs), self.lines(ours)
        if self.common:
            both = {_key(line) for line in left} & {_key(line) for line in right}
            left, right = (
                [line for line in lines if _key(line) in both] for lines in (left, right)
            )
        return [
            line
            for line in difflib.unified_diff(left, right, lineterm="", n=0)
            if not line.startswith(("---", "+++", "@@"))
        ]

    def lines(self, text: str) -> list[str]:
        """The lines of an output that count, masked and sorted."""
        lines: list[str] = []
        for line in text.splitlines():
            if _NOISE.search(line) or not line.strip():
                continue
            if (self.drop and re.search(self.drop, line)) or (
                self.only and not re.search(self.only, line)
            ):
                continue
            for pattern, name in _MASKS:
                line = pattern.sub(name, line)
            if self.mask:
                line = re.sub(self.mask, "<masked>", line)
            lines.append(line.strip().rstrip(","))
        return sorted(lines)


def _key(line: str) -> str:
    return re.split(r"\s*[=:]", line, maxsplit=1)[0]


def table(text: str) -> list[dict[str, str]]:
    """The rows below a line of `#names`; two blanks part columns."""
    rows: list[dict[str, str]] = []
    names: list[str] = []
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if line.startswith("#"):
            names = [cell.lstrip("#") for cell in re.split(r"\s+(?=#)", line.strip())]
        elif names and len(cells) > 1:
            rows.append(dict(zip(names, cells, strict=False)))
    return rows


def pairs(text: str, mark: str) -> dict[str, str]:
    """The lines that are a name, a mark and a value."""
    parts = (line.partition(mark) for line in text.splitlines() if mark in line)
    return {name.strip(): value.strip() for name, _mark, value in parts}
