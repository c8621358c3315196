"""What is easy to read is small: folders, files and functions of the package."""

from __future__ import annotations

from collections import Counter

from support.paths import ROOT
from support.source import FILES, source_of

MOST_MODULES, MOST_LINES, MOST_LINES_OF_A_FUNCTION = 25, 600, 60


def test_no_folder_has_too_many_modules() -> None:
    folders = Counter(path.parent for path in FILES if path.name != "__init__.py")
    found = [
        f"{folder.relative_to(ROOT)}: {count} modules"
        for folder, count in folders.items()
        if count > MOST_MODULES
    ]
    assert not found, "\n" + "\n".join(found)


def test_no_file_is_too_long() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in FILES
        if (lines := source_of(path).lines) > MOST_LINES
    ]
    assert not found, "\n" + "\n".join(found)


def test_no_function_is_too_long() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}: {length} lines"
        for path in FILES
        for name, line, length in source_of(path).functions
        if length > MOST_LINES_OF_A_FUNCTION
    ]
    assert not found, "\n" + "\n".join(found)
