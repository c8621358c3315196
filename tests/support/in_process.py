"""Programs that run in the tests' own process: an interpreter for each costs half a
second, most of it imports.
"""

from __future__ import annotations

import io
import logging
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import ModuleType
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.cli import main
from rocketmq_sdk.client import observers

if TYPE_CHECKING:
    from collections.abc import Iterator


@attrs.frozen
class Done:
    """How a program ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


@contextmanager
def own_logging() -> Iterator[None]:
    """Handlers and level of the root logger are afterwards as they were before."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    root.handlers = []
    try:
        yield
    finally:
        root.handlers, root.level = handlers, level


def rocketmq_here(*arguments: str) -> Done:
    """`rocketmq ARGUMENTS`, without a process of its own. Its texts are what a process
    would say; signals, environment and the end of an interpreter need a real one.
    """
    out, err = io.StringIO(), io.StringIO()
    with own_logging(), redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return Done(code, out.getvalue(), err.getvalue())


def run_program(text: str, name: str) -> str:
    """Run the text of a program as `__main__`; gives what it printed."""
    code = compile(text, name, "exec")
    out = io.StringIO()
    before, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    observers_before = observers.installed()
    try:
        with own_logging(), redirect_stdout(out):
            exec(code, sys.modules["__main__"].__dict__)
    finally:
        sys.modules["__main__"] = before
        observers._installed = observers_before
    return out.getvalue()
