"""The source of the package, read once for all tests about it.

Syntax trees are big, and garbage collections would walk over them until the end of the
run: only what a test asks for is kept.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

import attrs

from support.paths import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted(PACKAGE.rglob("*.py"))
LEVELS = ("debug", "info", "warning", "error", "exception")


@attrs.frozen
class Source:
    """What the tests want to know of a file."""

    lines: int
    imports: list[ast.Import | ast.ImportFrom]
    """Those for typing and inside functions, too."""
    functions: list[tuple[str, int, int]]
    """Name, line and length of each."""
    attributes: list[ast.Attribute]
    """Those of a module `time`, and of classes with dates."""
    log_calls: list[ast.Call]


@cache
def source_of(path: Path) -> Source:
    """What a file holds."""
    text = path.read_text("utf-8")
    found = Source(text.count("\n"), [], [], [], [])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            found.functions.append((node.name, node.lineno, length))
        elif isinstance(node, ast.Attribute):
            if _last_name(node.value) in ("time", "datetime", "date"):
                found.attributes.append(node)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
            and _last_name(node.func.value) in ("logger", "_log")
        ):
            found.log_calls.append(node)
    return found


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
