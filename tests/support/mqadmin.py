"""mqadmin's sub-commands on two clusters, and their outputs side by side.

What can not be the same is masked: addresses, times, ids, the directories of the machines. Order of lines is that of Java's hash tables and not
compared. Everything else must agree, but for what `DIFFERENCES` names with its reason; `docs/mqadmin.md` shows the same table to users.
"""

import re
from typing import Any, Final

import attrs

_MASKS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([:,.]\d+)?"), "<time>"),
    (re.compile(r"\b\d{14,17}\b"), "<time>"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "<ms>"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+@[\w@]+(#\d+)*"), "<client>"),
    (re.compile(r"/?127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\b127\.0\.0\.1\b"), "<host>"),
    (re.compile(r"\b[0-9A-F]{32}(?:[0-9A-F]{24})?\b"), "<id>"),
    (re.compile(r"\b[0-9A-F]{16}\b"), "<offset id>"),
    (re.compile(r"\s+"), " "),
)


@attrs.frozen
class Step:
    """One command line; `{broker}` and other places in it are filled from the cluster. `drop` takes lines out that hold a pattern."""

    args: tuple[str, ...]
    drop: str | None = None
    only: str | None = None
    compared: bool = True

    @property
    def name(self) -> str:
        return self.args[0]


def step(line: str, *, drop: str | None = None, only: str | None = None, compared: bool = True) -> Step:
    """A command written as on a command line; a place of several words stands in quotes there and as one word with `_` for spaces here."""
    return Step(tuple(line.split()), drop, only, compared)


def lines_of(text: str, wanted: Step) -> list[str]:
    """The lines of an output, masked and sorted."""
    lines: list[str] = []
    for line in text.splitlines():
        if "|-" in line or not line.strip():
            continue
        if wanted.drop is not None and re.search(wanted.drop, line):
            continue
        if wanted.only is not None and not re.search(wanted.only, line):
            continue
        for pattern, name in _MASKS:
            line = pattern.sub(name, line)
        lines.append(line.strip().rstrip(","))
    return sorted(lines)


def filled(wanted: Step, places: dict[str, Any], namesrv: str) -> list[str]:
    """The arguments for one cluster."""
    return [argument.format(**places) for argument in wanted.args] + ["-n", namesrv]
