"""A progress bar on a terminal, silence elsewhere.

The bar is rich's when the extra `cli` is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

Advance = Callable[[int], None]


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    """Yield a callback that takes how many are done so far; a total may be unknown."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )
    except ModuleNotFoundError:
        yield _plain(title, total)
        print(file=sys.stderr)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


class StageProgress:
    """A progress bar for each stage of some work, one below the other."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._stage = ""
        self._advance: Advance | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` of a stage is done; another one ends the one before."""
        if self._advance is None or stage != self._stage:
            self._stack.close()
            self._stage = stage
            self._advance = self._stack.enter_context(progress(stage, total))
        self._advance(done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()


class LateProgress:
    """A progress bar that appears with the first report; most starts have none.

    May be called from any thread.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._stack = ExitStack()
        self._advance: Advance | None = None

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` is done."""
        if self._advance is None:
            self._advance = self._stack.enter_context(progress(self._title, total))
        self._advance(done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away; a second time does nothing."""
        self._stack.close()


def _plain(title: str, total: int | None) -> Advance:
    of_all = "" if total is None else f" of {total:,}"

    def advance(done: int) -> None:
        print(f"\r{title} {done:,}{of_all}", end="", file=sys.stderr, flush=True)

    return advance
