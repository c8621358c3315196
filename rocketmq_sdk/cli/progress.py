"""A progress bar on a terminal, silence elsewhere. The bar is rich's when the extra `cli` is installed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress(title: str, total: int) -> Iterator[Advance]:
    """Give a function that is told the number done so far."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ModuleNotFoundError:
        yield _plain(title, total)
        print(file=sys.stderr)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def _plain(title: str, total: int) -> Advance:
    def advance(done: int) -> None:
        print(f"\r{title} {done:,} of {total:,}", end="", file=sys.stderr, flush=True)

    return advance
