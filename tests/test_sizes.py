"""What is easy to read is small: folders, files and functions of the package."""

from __future__ import annotations

import ast
from collections import Counter

from support.paths import PACKAGE, ROOT

MOST_MODULES, MOST_LINES, MOST_LINES_OF_A_FUNCTION = 25, 600, 60
FILES = sorted(PACKAGE.rglob("*.py"))


def test_no_folder_has_too_many_modules() -> None:
    folders = Counter(path.parent for path in FILES if path.name != "__init__.py")
    found = [
        f"{folder.relative_to(ROOT)}: {count} modules"
        for folder, count in folders.items()
        if count > MOST_MODULES
    ]
    assert not found, "\n" + "\n".join(found)


def test_no_file_is_too_long() -> None:
    lines = {path: path.read_text().count("\n") for path in FILES}
    found = [
        f"{path.relative_to(ROOT)}: {count} lines"
        for path, count in lines.items()
        if count > MOST_LINES
    ]
    assert not found, "\n" + "\n".join(found)


def test_no_function_is_too_long() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}: {length} lines"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (length := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    ]
    assert not found, "\n" + "\n".join(found)
