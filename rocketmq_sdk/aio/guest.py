"""A trio run inside an asyncio loop, as its guest.

Both run in the thread of the loop, in turns, so that nothing crosses threads: what
trio has finished resolves futures at once, and asyncio code may call trio's synchronous
functions. trio's own guest mode waits for sockets in a helper thread, which costs two
changes of threads for each answer (a TCP send takes 1.4 times as long as on trio alone,
and 1.2 times without them). So the loop itself watches trio's epoll descriptor where
that can be reached (`doors/turns.py`). Where it cannot, as on Windows or in a future
release, trio's helper thread does it.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.doors.turns import Turns
from rocketmq_sdk.errors import WrongRunError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    import outcome

END_TIMEOUT: Final = 3.0
"""Seconds that a run whose loop is closed may take to end."""
_active = threading.local()
"""The guest of each thread; trio allows one."""


class Guest:
    """One trio run of one loop: `main` runs in it, `ended` is called with its outcome.

    Make it in a callback or task of the loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        main: Callable[[], Awaitable[None]],
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._loop = loop
        self._ended = ended
        self._scope = trio.CancelScope()
        self._main = main
        self._watched: _Watched | None = None
        self._first = True
        self.over = False
        _make_room()
        self.generators = _Generators()
        trio.lowlevel.start_guest_run(
            self._run,
            run_sync_soon_threadsafe=self._from_thread,
            run_sync_soon_not_threadsafe=self._soon,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
        )
        self.generators.learn()
        _active.guest = self

    async def _run(self) -> None:
        with self._scope:
            await self._main()

    def _from_thread(self, call: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(self._unwatched, call)

    def _unwatched(self, call: Callable[[], object]) -> None:
        """A turn that trio's helper thread, or trio itself, has asked for."""
        self.generators.are_trios()
        call()

    def _soon(self, tick: Callable[[], object]) -> None:
        """trio wants its next turn. The first time it shows how to give it."""
        if self._first:
            self._first = False
            self._watched = watched(self._loop, tick, self.generators)
            if self._watched is not None:
                tick = self._watched.tick
        if self._watched is None:
            self._loop.call_soon(self._unwatched, tick)
        else:
            self._loop.call_soon(tick)

    def _done(self, result: outcome.Outcome[None]) -> None:
        self.over = True
        if getattr(_active, "guest", None) is self:
            _active.guest = None
        self._ended(getattr(result, "error", None))

    def cancel(self) -> None:
        """Cancel everything in the run. Call it in the thread of the loop."""
        if not self.over:
            self._scope.cancel()

    @property
    def loop_is_closed(self) -> bool:
        """Whether the loop was closed, so that nothing gives the run its turns."""
        return self._loop.is_closed()

    def end_without_loop(self) -> None:
        """Cancel and end a run whose loop is closed; takes up to `END_TIMEOUT`."""
        self.cancel()
        if self._watched is None:
            return
        hooks = sys.get_asyncgen_hooks()
        try:
            self._watched.run_out(lambda: self.over)
        finally:
            sys.set_asyncgen_hooks(*hooks)  # not those of the loop, which is closed


class _Generators:
    """Lets async generators of trio's tasks be trio's.

    trio puts hooks for them in place when its run begins, asyncio its own each time
    that its loop is run. A loop that runs several times, as those of pytest-asyncio do,
    and `asyncio.run` when it shuts down, would take trio's generators for asyncio's,
    and close them in the middle of trio's tasks. trio's hooks pass those of asyncio on.
    """

    __slots__ = ("_hooks", "of_loop")

    def __init__(self) -> None:
        """Make it where the loop runs, before trio does."""
        self.of_loop = sys.get_asyncgen_hooks()
        """asyncio's hooks, for what is asyncio's in the middle of a turn of trio."""
        self._hooks: sys._asyncgen_hooks | None = None

    def learn(self) -> None:
        """trio's hooks are in place now."""
        self._hooks = sys.get_asyncgen_hooks()

    def are_trios(self) -> None:
        """Before trio has a turn."""
        hooks = self._hooks
        if hooks is not None and sys.get_asyncgen_hooks().firstiter is not hooks.firstiter:
            sys.set_asyncgen_hooks(*hooks)


def generator_hooks_of_loop() -> sys._asyncgen_hooks:
    """The hooks of the loop whose guest runs in this thread."""
    guest: Guest = _active.guest
    return guest.generators.of_loop


def _make_room() -> None:
    """End a guest that a closed loop has left behind in this thread.

    Raises `WrongRunError` for one whose loop is open.
    """
    left: Guest | None = getattr(_active, "guest", None)
    if left is not None and left.loop_is_closed:
        left.end_without_loop()
    if trio.lowlevel.in_trio_run():
        raise WrongRunError(
            "this thread runs trio already: another event loop of the thread has producers, "
            "consumers or brokers open (leave their blocks first, or run that loop in a thread of "
            "its own), or this is a trio program, which imports rocketmq_sdk itself"
        )


def watched(
    loop: asyncio.AbstractEventLoop, tick: Callable[[], object], generators: _Generators
) -> _Watched | None:
    """Turns without a helper thread; None where trio or the loop has no way to it."""
    try:
        return _Watched(loop, tick.__self__, generators)  # type: ignore[attr-defined]
    except (AttributeError, NotImplementedError, OSError):
        return None


class _Watched:
    """Gives trio its turns when its selector, its deadlines or its tasks ask for one.

    The loop waits for the selector.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, state: Any, generators: _Generators
    ) -> None:
        self._loop = loop
        self._generators = generators
        self._turns = Turns(state)
        self._runner = self._turns.runner
        self._events = self._turns.events
        self._next = self._turns.first
        self._ended: Callable[[outcome.Outcome[None]], None] = state.done_callback
        # A descriptor of our own, as trio closes its one before the loop can let it go.
        self._fd = os.dup(self._turns.descriptor)
        self._waits = False
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        loop.add_reader(self._fd, self._ready)

    def tick(self) -> None:
        """One turn of trio."""
        timeout = self._turn()
        if timeout is None:
            return
        events = self._next = self._events(0)
        if timeout <= 0 or events:
            self._runner.guest_tick_scheduled = True
            self._loop.call_soon(self.tick)
            return
        self._runner.guest_tick_scheduled = False
        self._waits = True
        self._due = self._loop.time() + timeout
        if timeout < 86400 and (self._timer is None or self._timer.when() > self._due):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._due, self._time_is_up)

    def _turn(self) -> float | None:
        """Run trio's tasks; the seconds until the next turn, or None at the end."""
        self._generators.are_trios()
        timeout = self._turns.turn(self._next)
        if timeout is None:
            self._forget()
            assert self._turns.ended is not None
            self._ended(self._turns.ended)
        return timeout

    def _forget(self) -> None:
        self._waits = False
        if self._timer is not None:
            self._timer.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _ready(self) -> None:
        """trio's selector has something."""
        if self._waits:
            self._go_on()

    def _time_is_up(self) -> None:
        self._timer = None
        if not self._waits:
            return
        if self._loop.time() < self._due - 0.0005:  # the deadline has moved meanwhile
            self._timer = self._loop.call_at(self._due, self._time_is_up)
            return
        self._go_on()

    def _go_on(self) -> None:
        self._waits = False
        self._next = self._events(0)
        self._runner.guest_tick_scheduled = True
        self.tick()

    def run_out(self, over: Callable[[], bool]) -> None:
        """Give turns until the run is over, without the loop, which is closed."""
        deadline = trio.current_time() + END_TIMEOUT
        while not over() and trio.current_time() < deadline:
            timeout = self._turn()
            if timeout is None:
                return
            left = max(0.0, deadline - trio.current_time())
            self._next = self._events(min(timeout, left))
