"""Words that the code and the pages do without, and how long their lines are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.paths import DOCS, PACKAGE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "newsfragments").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
]
TEXTS = [
    *PAGES,
    *sorted(PACKAGE.rglob("*.py")),
    *sorted((ROOT / "examples").glob("*.py")),
    ROOT / "pyspark_rocketmq.py",
]
APACHES_OWN = (
    "Can not update config in black list.",
    "so can not reset offset",
    "can not consume by broadcast way",
    "can not find message, maybe time range not correct",
    "can not find message by the offset",
    "The actions can not be Any.",
    "username can not be blank",
    "password can not be blank",
    '"can not find message"',  # what both begin with, as the client looks for it
)
"""Texts of Apache's software with "can not" in them."""
REFERENCE = re.compile(r"\(\d/\d\)|until issue")
NOTE = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
MOST_COLUMNS = 100


def lines_with(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Where a pattern is found (file:line), and the line."""
    for path in TEXTS:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}", line


def prose_of(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page, with numbers, but for tables, code and lines that are one
    link.
    """
    fenced = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not (fenced or line.startswith(("|", "    ")) or " " not in line.strip()):
            yield number, line


def test_nothing_can_not() -> None:
    found = [
        f"{place}: {line.strip()}"
        for place, line in lines_with(re.compile(r"\bcan not\b", re.IGNORECASE))
        if not any(text in line for text in APACHES_OWN)
    ]
    assert not found, "\n" + "\n".join(found)


def test_each_text_of_apache_is_still_there() -> None:
    whole = "\n".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    assert [text for text in APACHES_OWN if text not in whole] == []


def test_nothing_refers_to_issues_and_nothing_is_left_to_do() -> None:
    found = [
        f"{place}: {line.strip()}"
        for pattern in (REFERENCE, NOTE)
        for place, line in lines_with(pattern)
    ]
    assert not found, "\n" + "\n".join(found)


def test_prose_keeps_to_its_columns() -> None:
    found = [
        f"{page.relative_to(ROOT)}:{number}: {len(line)} columns"
        for page in PAGES
        for number, line in prose_of(page)
        if len(line) > MOST_COLUMNS
    ]
    assert not found, "\n" + "\n".join(found)
