"""Who gives trio its turns: a thread of its own, or another one that saves changes of
threads by it.

The run has one thread, the *keeper*, which waits for sockets and timers, as `trio.run`
would. A call of another thread costs two changes of threads. The main thread saves
them: after a call of its own the keeper *lends* the turns for a millisecond, and if the
main thread calls again by then, it gives them itself until its call is done. So a
program that sends message after message runs trio where it stands. When it stays away,
or something else happens, the keeper takes the turns back.

Of the user's threads only the main thread does so, because Python can only be kept from
raising exceptions in the middle of trio there (`signals.py`): in other threads some
libraries raise them with `PyThreadState_SetAsyncExc`, at any instruction (the time
limits of dramatiq).

A *caller*, a thread of ours that makes the calls of listeners, does so too. The keeper
lends it the turns with the first calls. When they are made, it gives turns until there
are more calls, and so on. While it is away, inside the user's functions, the keeper
looks each millisecond whether it has come back, and takes the turns if it has not.
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
    from collections import deque
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.remoting.channel import SocketWait

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
TURNS: Final = 0.3
"""What a look at a socket and trio's selector costs, in turns of trio's loop.

A socket is looked at for as long as by a sender of trio's, by this measure.
"""


class Job(Protocol):
    """A call of a thread."""

    @property
    def done(self) -> bool:
        """Whether it is done."""
        ...

    def wait(self) -> object:
        """Wait until it is done."""
        ...

    def socket_wait(self) -> SocketWait | None:
        """How whoever gives turns may wait for it at a socket; None if he cannot."""
        ...


class Caller(Protocol):
    """A thread of ours that makes calls."""

    ident: int | None
    wake: threading.Lock
    """Released to wake it."""


class Calls(Protocol):
    """Calls that callers make."""

    line: deque[Any]
    """Those to make next."""
    closed: bool
    """Whether none is to be made any more."""

    def collect(self) -> None:
        """Take in what has become of those that were made. Call it in trio."""
        ...


class _Done:
    """A job that nobody waits for."""

    done = True

    def wait(self) -> None: ...

    def socket_wait(self) -> None: ...


class _NoSignals:
    """Those of a thread that is not the main thread."""

    came: Final = ()


_DONE: Final = _Done()
_NO_SIGNALS: Final = _NoSignals()


def nothing() -> None:
    """Begin nothing, as what is wanted was posted already."""


class Driving:
    """Gives a trio run its turns, in the keeper's thread and in the main thread."""

    def __init__(self, line: deque[Any], serve: Callable[[], None]) -> None:
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
        """The thread that gives turns in place of the keeper, while it does."""
        self._away: int | None = None
        """The caller that was lent the turns and makes calls before it goes on."""
        self._offered: list[Caller] = []
        """Callers that wait, and have calls to make now."""
        self._socket: SocketWait | None = None
        """Whose reader stands aside, since somebody who gave turns has looked at it."""
        self._returned = 0
        """How often a caller was back."""
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
            if self._lent and self.driver is None and self._away is None:
                self._ring()

        wakeup.wakeup_thread_and_signal_safe = entered
        return True

    def keep(self) -> None:
        """Give turns until the run is over. Raises what has ended it."""
        turns = self._turns
        events = turns.first
        self._baton.acquire()
        while (timeout := turns.turn(events)) is not None:
            if self._offered:
                events = self._lend()
            elif timeout <= 0:
                events = turns.events(0)
            elif self._asked is not None and self._asked.done and not self._others:
                self._asked = None
                events = self._lend()
            else:
                events = turns.events(timeout)
        self._wake_callers()
        self._baton.release()
        assert turns.ended is not None
        turns.ended.unwrap()

    def _lend(self) -> Any:
        """Let others give turns, until they stay away; the events meanwhile."""
        turns = self._turns
        self._bell.acquire(blocking=False)
        self._lent = True
        # What came before is not announced by the bell. Callers look for themselves.
        events = () if self._offered else turns.events(0)
        while not events and turns.ended is None:
            driven, returned = self._driven, self._returned
            self._lend_to_callers()
            while not (rung := self._bell.acquire(timeout=LENT)):
                if self._away is not None and returned != self._returned:
                    returned = self._returned  # it makes quick calls, or gives turns
                elif self._baton.acquire(blocking=False):
                    break
            if rung:
                self._baton.acquire()
            self._away = None
            if turns.ended is None:
                self._serve()
                events = turns.events(0)
            if rung or driven == self._driven or turns.runner.runq:
                break
            self._due = True
        self._lent = False
        if turns.ended is None:
            self._leave_socket()
            self._serve()  # after that: what comes now wakes the keeper
        return events

    def _ring(self) -> None:
        with suppress(RuntimeError):  # it was rung already
            self._bell.release()

    # --- callers

    @property
    def may_lend(self) -> bool:
        """Whether anybody but the keeper can give turns."""
        return self._hooks is not None and self._turns.ended is None

    def offer(self, caller: Caller) -> None:
        """Wake a caller that has calls to make now, and lend it the turns.

        Call it in trio. It is woken at the end of the turn.
        """
        if not self.may_lend:
            caller.wake.release()
        else:
            self._offered.append(caller)

    def _lend_to_callers(self) -> None:
        """Pass the baton, to the last one of those that were offered the turns."""
        offered, self._offered = self._offered, []
        if offered:
            self._away = offered[-1].ident
        self._baton.release()
        for caller in offered:
            caller.wake.release()

    def _wake_callers(self) -> None:
        """Wake those that were offered the turns, which somebody else gives now."""
        while self._offered:
            self._offered.pop().wake.release()

    def work(self, calls: Calls) -> bool:
        """Give turns in the caller that was lent them, until there are calls to make.

        Whether there are; otherwise it was not lent them, or nothing came for a while.
        """
        turns, thread = self._turns, get_ident()
        if self._away != thread or self.lost:
            return False
        if not self._baton.acquire(blocking=False):
            self._away = None
            return False
        try:
            if self._away != thread or turns.ended is not None:
                return False
            hooks = sys.get_asyncgen_hooks()
            sys.set_asyncgen_hooks(*self._hooks)
            turns.context.runner = turns.runner
            self.driver = thread
            try:
                self._leave_socket()
                self._serve()
                calls.collect()
                goes_on = self._work(calls)
            finally:
                self.driver = None
                turns.context.__dict__.clear()
                sys.set_asyncgen_hooks(*hooks)
                self._wake_callers()
            if not goes_on:
                self._away = None
                self._ring()
            return goes_on
        finally:
            self._baton.release()

    def _work(self, calls: Calls) -> bool:
        """Give turns; whether there are calls to make, not something for the keeper."""
        turns = self._turns
        events = turns.events(0)
        while True:
            timeout = turns.turn(events)
            self._driven += 1
            self._returned += 1
            if timeout is None or self.lost or calls.closed:
                return False
            if calls.line:
                return True
            self._wake_callers()
            if timeout <= 0:
                events = turns.events(0)
                continue
            if self._asked is not None and self._asked.done:
                return False  # the main thread may want the turns next
            events = turns.events(min(timeout, PATIENCE))
            if not events and timeout > PATIENCE:
                return False

    def serves_after_calls(self, function: Callable[[], None]) -> bool:
        """Have a function called in trio when a caller is back from its calls.

        False when there is none: whoever asks has to wake the keeper.
        """
        if self._away is None:
            return False
        self._line.append((function, ()))
        return self._away is not None  # else the keeper may not have seen it

    # --- the main thread

    def serves_soon(self) -> bool:
        """Whether what this thread has put in the line is served soon without more ado.

        It is by its own next call, or when the keeper looks, or here if it is much. So
        a thread that submits message after message does not wake the keeper for each.
        """
        thread, away = get_ident(), self._away
        if not self._lent or self.lost or thread != (self._main if away is None else away):
            return False  # who waits for the selector in place of the keeper has to be woken
        return len(self._line) < MANY or self.drive(nothing, _DONE)

    def drive(self, begin: Callable[[], object], job: Job) -> bool:
        """Begin a call here and help it along, if this is the turn of this thread.

        Whether it was begun; it need not be done when this returns. Raises what
        handlers of signals raise.
        """
        thread = get_ident()
        if self.lost:
            return False
        if thread == self._away:
            return self._drive_away(begin, job)
        if thread != self._main:
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

    def _drive_away(self, begin: Callable[[], object], job: Job) -> bool:
        """Begin a call of a listener in the caller that has the turns."""
        if not self._baton.acquire(blocking=False):
            self._away = None
            return False
        try:
            if self._away != get_ident() or self._turns.ended is not None:
                return False
            self._returned += 1
            self._drive(begin, job, _NO_SIGNALS)
        finally:
            self._baton.release()
        return True

    def _drive(
        self, begin: Callable[[], object], job: Job, signals: PostponedSignals | _NoSignals
    ) -> None:
        turns = self._turns
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(*self._hooks)
        turns.context.runner = turns.runner
        self.driver = get_ident()
        self._driven += 1
        try:
            self._serve()
            begin()
            looks = self._begins_to_look(job)
            # What begins and ends here, and sets nothing going, needs no turn.
            rest = (not job.done or turns.runner.runq or self._due) and self._help(
                job, signals, looks=looks
            )
        finally:
            self._end_looks(job)
            self.driver = None
            turns.context.__dict__.clear()
            sys.set_asyncgen_hooks(*hooks)
            self._wake_callers()
        if (rest or turns.entries.queue) and not (self._away == get_ident() and job.done):
            self._ring()

    def _help(self, job: Job, signals: PostponedSignals | _NoSignals, *, looks: bool) -> bool:
        """Give turns until the call is done; whether the keeper has to go on.

        `looks` tells to look for its answer at the socket meanwhile.
        """
        turns, more, waits = self._turns, MORE, WAITS
        events: Any = ()
        if self._due:
            self._due = False
            events = turns.events(0)
        while True:
            timeout = turns.turn(events)
            self._refuse_fork()
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
            if looks:
                looks, events = self._look(job, signals, busy=timeout <= 0)
                if events is None:
                    return False
                continue
            if timeout <= 0:
                events = turns.events(0)
                continue
            waits -= 1
            events = turns.events(min(timeout, PATIENCE))
            if not events and timeout > PATIENCE:
                waits = 0

    # --- at the socket

    def _begins_to_look(self, job: Job) -> bool:
        """Hold the socket at which the answer to a call will come, if that pays."""
        wait = None if job.done else job.socket_wait()
        if wait is not self._socket:
            self._leave_socket()
        if wait is None:
            return False
        self._socket = wait
        if wait.hold():
            return True
        self._leave_socket()
        return False

    def _look(
        self, job: Job, signals: PostponedSignals | _NoSignals, *, busy: bool
    ) -> tuple[bool, Any]:
        """Look for the answer until it has come, or trio has something to do.

        Once if it is `busy`, since nobody else looks. Whether to go on looking, and
        what trio's selector has: None when the call is done, and there is nothing to
        do.
        """
        wait, turns = self._socket, self._turns
        assert wait is not None
        cost = 1.0 if busy else TURNS
        while (found := wait.look(cost)) is None:
            events = turns.events(0)
            if events or busy or signals.came:
                return True, events
        self._refuse_fork()
        if job.done:
            return False, () if turns.runner.runq else None
        if found and wait.hold():  # it was for others, or not all
            return True, ()
        self._leave_socket()
        return False, ()

    def _end_looks(self, job: Job) -> None:
        """The call is done, or goes on without this thread.

        If it is done, the next call is likely to wait at the same socket: so its reader
        stands aside until then, or until trio gets a turn.
        """
        if job.done and self._socket is not None:
            self._socket.release()
        else:
            self._leave_socket()

    def _refuse_fork(self) -> None:
        if self.lost:
            raise WrongRunError("the process was forked inside a call of rocketmq_sdk.sync")

    def _leave_socket(self) -> None:
        """Let the reader watch its socket again, before somebody waits for trio's."""
        wait, self._socket = self._socket, None
        if wait is not None and not self.lost:
            wait.release()
            wait.leave()

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
