"""Who gives trio its turns: a thread of its own, or the main thread while it waits.

The run has one thread, the *keeper*, which waits for sockets and timers, as `trio.run`
would. A call of another thread costs two changes of threads. The main thread saves
them: after a call of its own the keeper *lends* the turns for a millisecond, and if the
main thread calls again by then, it gives them itself until its call is done. So a
program that sends message after message runs trio where it stands. When it stays away,
or something else happens, the keeper takes the turns back.

Only the main thread does so, because Python can only be kept from raising exceptions
in the middle of trio there (`signals.py`): in other threads some libraries raise them
with `PyThreadState_SetAsyncExc`, at any instruction (the time limits of dramatiq).
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from rocketmq_sdk.doors.turns import Turns, begin_turns
from rocketmq_sdk.errors import WrongRunError
from rocketmq_sdk.sync.signals import PostponedSignals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

LENT: Final = 0.001
"""Seconds for which nobody may give turns before the keeper looks."""
PATIENCE: Final = 0.02
"""Seconds without an event after which a call goes on without the main thread."""
MANY: Final = 32
"""Entries in the line with which the main thread gives turns without having to wait."""
WAITS: Final = 100
"""Waits of a call after which it goes on without the main thread."""
MORE: Final = 4
"""Turns that the main thread gives after its call, for what the call has set going."""


class Job(Protocol):
    """A call of a thread."""

    @property
    def done(self) -> bool:
        """Whether it is done."""
        ...

    def wait(self) -> object:
        """Wait until it is done."""
        ...


class _Done:
    """A job that nobody waits for."""

    done = True

    def wait(self) -> None: ...


_DONE: Final = _Done()


def nothing() -> None:
    """Begin nothing, as what is wanted was posted already."""


class Driving:
    """Gives a trio run its turns, in the keeper's thread and in the main thread."""

    def __init__(self, line: Sequence[object], serve: Callable[[], None]) -> None:
        self._line = line
        self._serve = serve
        self._turns: Turns
        self._hooks: Any = None
        self._signals: PostponedSignals | None = None
        self._main = threading.main_thread().ident
        self._others: set[Job] = set()
        """Calls of other threads that wait."""
        self._asked: Job | None = None
        """A call of the main thread; when it is done, the turns may be lent."""
        self._baton = threading.Lock()
        """Held by whoever gives turns."""
        self._bell = threading.Lock()
        """Released to call the keeper."""
        self._bell.acquire()
        self._lent = False
        self._driven = 0
        self._due = False
        """Whether there was no turn for a while."""
        self.driver: int | None = None
        """The main thread, while it gives turns."""
        self.lost = False
        """Whether the keeper stayed in the process that this one was forked from."""

    # --- the keeper

    def begin(self, main: Callable[[], Awaitable[None]]) -> bool:
        """Start the run in this thread, the keeper's; False if trio has other parts."""
        turns = begin_turns(main)
        if turns is None:
            return False
        self._turns = turns
        self._hooks = sys.get_asyncgen_hooks()
        self._signals = PostponedSignals(turns.wake)
        wakeup = turns.entries.wakeup
        wake = wakeup.wakeup_thread_and_signal_safe

        def entered() -> None:
            wake()
            if self._lent and self.driver is None:
                self._ring()

        wakeup.wakeup_thread_and_signal_safe = entered
        return True

    def keep(self) -> None:
        """Give turns until the run is over. Raises what has ended it."""
        turns = self._turns
        events = turns.first
        self._baton.acquire()
        while (timeout := turns.turn(events)) is not None:
            if timeout <= 0:
                events = turns.events(0)
                continue
            asked = self._asked
            if asked is not None and asked.done and not self._others:
                self._asked = None
                events = self._lend()
            else:
                events = turns.events(timeout)
        self._baton.release()
        assert turns.ended is not None
        turns.ended.unwrap()

    def _lend(self) -> Any:
        """Let the main thread give turns, until it stays away; the events meanwhile."""
        turns = self._turns
        self._bell.acquire(blocking=False)
        self._lent = True
        events = turns.events(0)  # what came before is not announced by the bell
        while not events and turns.ended is None:
            driven = self._driven
            self._baton.release()
            rung = self._bell.acquire(timeout=LENT)
            while not rung and not self._baton.acquire(blocking=False):
                rung = self._bell.acquire(timeout=LENT)
            if rung:
                self._baton.acquire()
            if turns.ended is None:
                self._serve()
                events = turns.events(0)
            if rung or driven == self._driven or turns.runner.runq:
                break
            self._due = True
        self._lent = False
        if turns.ended is None:
            self._serve()  # after that: what comes now wakes the keeper
        return events

    def _ring(self) -> None:
        with suppress(RuntimeError):  # it was rung already
            self._bell.release()

    # --- the main thread

    def serves_soon(self) -> bool:
        """Whether what this thread has put in the line is served soon without more ado.

        It is by its own next call, or when the keeper looks, or here if it is much. So
        a thread that submits message after message does not wake the keeper for each.
        """
        if not self._lent or get_ident() != self._main or self.lost:
            return False
        return len(self._line) < MANY or self.drive(nothing, _DONE)

    def drive(self, begin: Callable[[], object], job: Job) -> bool:
        """Begin a call here and help it along, if this is the main thread's turn.

        Whether it was begun; it need not be done when this returns. Raises what
        handlers of signals raise.
        """
        if get_ident() != self._main or self.lost:
            return False
        if not self._lent:
            self._asked = job
            return False
        signals = self._signals
        if signals is None or signals.busy or trio.lowlevel.in_trio_run():
            return False
        try:
            signals.postpone()
        except ValueError:  # not what Python takes for its main thread
            self._main = None
            return False
        try:
            if not self._baton.acquire(blocking=False):
                self._asked = job
                return False
            try:
                if self._turns.ended is not None:
                    return False
                self._drive(begin, job, signals)
            finally:
                self._baton.release()
        finally:
            signals.resume()
        return True

    def _drive(self, begin: Callable[[], object], job: Job, signals: PostponedSignals) -> None:
        turns = self._turns
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(*self._hooks)
        turns.context.runner = turns.runner
        self.driver = self._main
        self._driven += 1
        try:
            self._serve()
            begin()
            # What begins and ends here, and sets nothing going, needs no turn.
            rest = (not job.done or turns.runner.runq or self._due) and self._help(job, signals)
        finally:
            self.driver = None
            turns.context.__dict__.clear()
            sys.set_asyncgen_hooks(*hooks)
        if rest or turns.entries.queue:
            self._ring()

    def _help(self, job: Job, signals: PostponedSignals) -> bool:
        """Give turns until the call is done; whether the keeper has to go on."""
        turns, more, waits = self._turns, MORE, WAITS
        events: Any = ()
        if self._due:
            self._due = False
            events = turns.events(0)
        while True:
            timeout = turns.turn(events)
            if self.lost:
                raise WrongRunError("the process was forked inside a call of rocketmq_sdk.sync")
            if timeout is None:
                return True
            if job.done:
                if timeout > 0:
                    return False
                if not more:
                    return True
                more -= 1
                events = turns.events(0)
                continue
            if signals.came or not waits:
                self._asked = job
                return True
            if timeout <= 0:
                events = turns.events(0)
                continue
            waits -= 1
            events = turns.events(min(timeout, PATIENCE))
            if not events and timeout > PATIENCE:
                waits = 0

    # --- other threads

    def wait(self, job: Job) -> None:
        """Wait for a call that the keeper makes."""
        if job is self._asked:
            job.wait()
            return
        try:
            self._others.add(job)
            job.wait()
        finally:
            self._others.discard(job)
