"""Signals of the main thread, postponed while it runs trio.

Python calls its signal handlers in the main thread, between any two of its
instructions, and what a handler raises comes out there: in the middle of trio or of a
broker, which nothing survives. So while the main thread runs them, each handler is
replaced by one that only takes note; afterwards the real ones are called. Reading all
handlers costs 2 microseconds; they change unseen, so that it is done each time.
"""

from __future__ import annotations

import signal as signals
import sys
from _signal import getsignal, signal  # type: ignore[import-not-found]  # without enums: quick
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class PostponedSignals:
    """Postpones the handlers of signals, and calls them afterwards.

    For the main thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.came: list[int] = []
        """Signals that came meanwhile, in their order."""
        self._wake = wake
        self._numbers = sorted(signals.valid_signals())
        self._seen: tuple[Any, ...] = ()
        self._handlers: dict[int, Any] = {}
        self._replaced: list[int] = []
        self.busy = False
        """Whether they are postponed, or about to be.

        A handler that is called in between finds this, and must not postpone.
        """

    def postpone(self) -> None:
        """Take note of signals from now on.

        Raises what the handler of a signal raises that came before, and `ValueError`
        outside of the main thread.
        """
        try:
            self.busy = True
            seen = tuple(map(getsignal, self._numbers))
            if seen != self._seen:
                found = zip(self._numbers, seen, strict=True)
                self._handlers = {number: handler for number, handler in found if callable(handler)}
                self._seen = seen
            for number in self._handlers:
                self._replaced.append(number)  # before, so that an error between is harmless
                signal(number, self._note)
        except BaseException:
            self.resume()
            raise

    def _note(self, number: int, _frame: object) -> None:
        self.came.append(number)
        self._wake()

    def resume(self) -> None:
        """Put the handlers back, and call those whose signals came.

        Raises what they raise, after all of them. Each handler that is back may raise
        at any instruction; so what is left undone is begun again, and again.
        """
        try:
            self._resume()
        finally:
            if self.busy or self.came:
                try:
                    self._resume()
                finally:
                    if self.busy or self.came:
                        try:
                            self._resume()
                        finally:
                            if self.busy or self.came:
                                self.resume()

    def _resume(self) -> None:
        replaced, came = self._replaced, self.came
        while replaced:
            number = replaced[-1]
            if getsignal(number) == self._note:  # not so in other threads, for example
                signal(number, self._handlers[number])
            del replaced[-1]
        self.busy = False
        while came:
            number = came.pop(0)
            self._handlers[number](number, sys._getframe(2))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Postpone signals in a block, if this is the main thread."""
    signals = PostponedSignals(lambda: None)
    try:
        signals.postpone()
    except ValueError:  # it is another thread
        yield
        return
    try:
        yield
    finally:
        signals.resume()
