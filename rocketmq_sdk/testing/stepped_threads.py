"""Threads that run only while the event loop stands still, step by step.

What a store does in threads is done here by the same code, in real threads. But a
thread goes on only when the loop lets it, until its next `pause`, and the loop waits
for that. So the steps of threads and tasks interleave in an order that a test chooses,
and each run with the same choices is the same.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Result = TypeVar("Result")


class Turns(Protocol):
    """How the loop and a function that it steps through change places."""

    def go(self) -> None:
        """Let the function go on until its `stop` or its end; called by the loop."""

    def stop(self) -> None:
        """Let the loop go on until its `go`; called by the function."""


class Abandoned(BaseException):
    """Ends a thread that nobody lets go on any more."""


class ThreadTurns:
    """Turns of the loop and a real thread: two locks, each released by one side for the
    other.
    """

    __slots__ = ("_go", "_stopped")

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._go, self._stopped = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._stopped.acquire()

        def run() -> None:
            self._go.acquire()
            work()
            self._stopped.release()

        # A thread that trio keeps: to start another costs more than most steps.
        trio.lowlevel.start_thread_soon(run, _forget, name)

    def go(self) -> None:
        """Let the other side go on until its `stop` or its end; called by the loop."""
        self._go.release()
        self._stopped.acquire()

    def stop(self) -> None:
        """Let the loop go on until its `go`; called by the other side."""
        self._stopped.release()
        self._go.acquire()


class SteppedThread(Generic[Result]):
    """Runs a function in a thread, from `advance` to `advance`."""

    __slots__ = ("_abandoned", "_delay", "_error", "_result", "_turns", "ended")
    turns: ClassVar[Callable[[str, Callable[[], None]], Turns]] = ThreadTurns
    """What takes the turns: a real thread, or what a suite with very many runs puts
    here instead of it.
    """

    def __init__(self, name: str, work: Callable[[], Result]) -> None:
        self.ended = False
        """Whether the function has returned or raised."""
        self._result: list[Result] = []
        self._error: BaseException | None = None
        self._abandoned = False
        self._delay = 0.0
        self._turns = SteppedThread.turns(name, lambda: self._run(work))

    def _run(self, work: Callable[[], Result]) -> None:
        try:
            if not self._abandoned:
                self._result.append(work())
        except BaseException as error:  # noqa: BLE001 - handed over
            self._error = error
        self.ended = True

    def advance(self) -> float:
        """Let the thread go on to its next pause, or to its end.

        Returns how many seconds that pause lasts at least.
        """
        self._delay = 0.0
        self._turns.go()
        return self._delay

    def pause(self, delay: float = 0.0) -> None:
        """Let the loop go on; called in the thread."""
        self._delay = delay
        self._turns.stop()
        if self._abandoned:
            raise Abandoned

    def abandon(self) -> None:
        """End the thread where it is, unless it has ended."""
        self._abandoned = True
        while not self.ended:
            self.advance()

    def result(self) -> Result:
        """What the function returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result[0]


def _forget(_outcome: object) -> None:
    """What trio does with the end of a thread: nothing, `_run` has told it."""


class SteppedMailbox:
    """A queue of work for a stepped thread."""

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause
        self._items: deque[object] = deque()
        self.waiting = False
        """Whether the thread waits for work."""
        self.filled = trio.Event()

    def put(self, item: object) -> None:
        """Hand something over."""
        self._items.append(item)
        self.filled.set()

    def get(self) -> object:
        """The first item; the thread pauses before and while there is none."""
        self._pause()
        while not self._items:
            self.waiting = True
            self._pause()
        self.waiting = False
        return self._items.popleft()

    def get_nowait(self) -> object:
        """The first item. Raises `queue.Empty` without one."""
        if not self._items:
            raise Empty
        return self._items.popleft()

    async def wait_filled(self) -> None:
        """Wait until there is work."""
        while not self._items:
            self.filled = trio.Event()
            await self.filled.wait()


def start_stepped(
    name: str,
    work: Callable[[SteppedMailbox], None],
    drive: Callable[[SteppedThread[None], SteppedMailbox], Awaitable[None]] | None = None,
    pause: Callable[[], None] | None = None,
) -> tuple[SteppedMailbox, Callable[[], Awaitable[None]]]:
    """Start a thread that runs from one item of its mailbox to the next.

    Gives the mailbox and what waits for the end. `drive` lets the thread and the tasks
    take turns until it ends, `pause` is what the thread calls between its steps. Call
    it in trio.
    """
    mailbox = SteppedMailbox(pause or (lambda: thread.pause()))
    thread = SteppedThread(name, lambda: work(mailbox))
    ended = trio.Event()

    async def run() -> None:
        try:
            await (drive or _by_turns)(thread, mailbox)
        finally:
            thread.abandon()
            ended.set()

    async def join() -> None:
        with trio.CancelScope(shield=True):
            await ended.wait()
        thread.result()

    trio.lowlevel.spawn_system_task(run)
    return mailbox, join


async def _by_turns(thread: SteppedThread[None], mailbox: SteppedMailbox) -> None:
    while not thread.ended:
        if mailbox.waiting:
            await mailbox.wait_filled()
        await trio.lowlevel.checkpoint()
        thread.advance()
