"""How long the loop is busy at a time, which is how long others have to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rocketmq_sdk.broker_embedded.tables.figures import Distribution


class LoopWatch(trio.abc.Instrument):
    """Measures the turns of the loop as long as its block lasts.

    A turn is what all tasks that can run do, from one look for news to the next.
    """

    def __init__(self, turns: Distribution) -> None:
        self._turns = turns
        self._began: float | None = None
        self._now: Callable[[], float] = trio.current_time

    def after_io_wait(self, _timeout: float) -> None:
        """A turn begins."""
        self._began = self._now()

    def before_io_wait(self, _timeout: float) -> None:
        """A turn is over."""
        if self._began is not None:
            self._turns.add(self._now() - self._began)

    def __enter__(self) -> None:
        # The clock itself, as each turn asks it twice.
        self._now = trio.lowlevel.current_clock().current_time
        trio.lowlevel.add_instrument(self)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        trio.lowlevel.remove_instrument(self)
