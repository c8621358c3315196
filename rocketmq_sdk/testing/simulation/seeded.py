"""Runs that are the same each time: what they draw depends on a seed alone.

Python's own order of a set of texts depends on PYTHONHASHSEED, so nothing that happens
in this package may depend on the order of a set.
"""

from __future__ import annotations

import gc
import math
import random
from contextlib import contextmanager, suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio

from rocketmq_sdk.clock import AlarmClock, begin_at, without_suspensions
from rocketmq_sdk.distinct import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableSequence

Result = TypeVar("Result")
EPOCH_MS = 1_700_000_000_000
"""When a simulation begins: 2023-11-14, 22:13:20 UTC."""
POLLS = 64
"""Turns of the loop for each of which a real system call would be made."""
THREAD_PAUSE = 0.0005
"""Real seconds between two looks at what works in threads."""
NEW_OBJECTS = 50_000
"""So many objects are made between two looks for circles of garbage: an hour of virtual
time makes millions within seconds, which else are looked at again and again.
"""


class JumpingClock(AlarmClock):
    """Virtual time that jumps to the next deadline whenever no task can run.

    What trio's `MockClock` does, in one turn of the loop for each jump instead of two.
    While a function works in a thread it stands still.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._alarms: list[tuple[float, int, Callable[[], bool]]] = []
        self._numbers = count()
        self._threads: trio.CapacityLimiter | None = None
        self._runner: Any = None

    def start_clock(self) -> None:
        """A run begins."""
        self._threads = None
        scheduler = cast("Any", trio)._core._run
        with suppress(AttributeError):  # as on Windows: all polls are made there
            runner = scheduler.GLOBAL_RUN_CONTEXT.runner
            runner.io_manager._epoll = _FewPolls(runner.io_manager._epoll, self)
            runner.instruments = _QuickInstruments(runner.instruments)
            _ = runner.runq
            self._runner = runner

    def has_runnable_tasks(self) -> bool:
        """Whether any task can run now."""
        runner = self._runner
        return super().has_runnable_tasks() if runner is None else bool(runner.runq)

    @property
    def waits_for_threads(self) -> bool:
        """Whether something works in a thread."""
        return self._threads is None or bool(self._threads.borrowed_tokens)

    def current_time(self) -> float:
        """Virtual seconds since the begin."""
        return self._now

    def call_at(self, moment: float, function: Callable[[], bool]) -> None:
        """Call a function at a moment, while all tasks wait."""
        heappush(self._alarms, (moment, next(self._numbers), function))

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """trio asks this when all tasks wait, and sleeps so long."""
        alarms, threads = self._alarms, self._threads
        if threads is None:
            threads = self._threads = trio.to_thread.current_default_thread_limiter()
        while alarms and alarms[0][0] < deadline:
            if alarms[0][0] > self._now:
                if threads.borrowed_tokens:
                    return THREAD_PAUSE
                self._now = alarms[0][0]
            if heappop(alarms)[2]():
                return 0.0
        if deadline <= self._now:
            return 0.0
        if threads.borrowed_tokens:
            return THREAD_PAUSE
        if deadline == math.inf:
            return math.inf
        self._now = deadline
        return 0.0


class _QuickInstruments(dict[str, Any]):
    """trio's instruments, which it looks for several times in each turn of the loop.

    There they are a mapping written in Python.
    """

    def __init__(self, instruments: Any) -> None:
        super().__init__(instruments.data)
        kind = type(instruments)
        self.add_instrument = partial(kind.add_instrument, self)
        self.remove_instrument = partial(kind.remove_instrument, self)
        self.call = partial(kind.call, self)

    @property
    def data(self) -> dict[str, Any]:
        """Itself, as trio calls it."""
        return self


class _FewPolls:
    """trio's epoll object, asked seldom: in virtual time only threads make events."""

    def __init__(self, epoll: Any, clock: JumpingClock) -> None:
        self._clock = clock
        self._poll = epoll.poll
        self._left = POLLS
        self.close = epoll.close
        self.modify = epoll.modify
        self.register = epoll.register
        self.unregister = epoll.unregister

    def poll(self, timeout: float, most: int) -> Any:
        """The events; without a wait each 64th time, or while threads work."""
        self._left -= 1
        if timeout <= 0 and self._left and not self._clock.waits_for_threads:
            return ()
        self._left = POLLS
        return self._poll(timeout, most)


class _Draws(random.Random):
    """What the order of tasks is drawn from: most often there is one."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        if len(x) > 1:
            super().shuffle(x)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Look seldom for circles of garbage, and not in what was there before."""
    collected, frozen = gc.get_threshold(), gc.get_freeze_count()
    if collected[0]:
        gc.set_threshold(max(NEW_OBJECTS, collected[0]), *collected[1:])
    if not frozen:
        gc.freeze()
    try:
        yield
    finally:
        gc.set_threshold(*collected)
        if not frozen:
            gc.unfreeze()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let what runs inside depend on a seed, and not on what ran before it.

    It holds for the whole process: draws of the module `random`, the order in which
    trio runs tasks that can run, and the numbers that ids are made of.

    trio has no public switch for a fixed order of tasks. It has one for hypothesis,
    which turns it on when it is imported: the two names used here.
    """
    scheduler = cast("Any", trio)._core._run
    ordered, drawn, draws = (
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING,
        random.getstate(),
        scheduler._r,
    )
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r = _Draws(seed)
    random.seed(seed)
    try:
        with counted(), _few_collections(), without_suspensions():
            yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = ordered
        scheduler._r = draws
        random.setstate(drawn)


def run_seeded(seed: int, function: Callable[[], Awaitable[Result]]) -> Result:
    """Run an async function alone, in virtual time that begins at 0 and at `EPOCH_MS`.

    The clock jumps whenever all tasks wait.
    """

    async def run() -> Result:
        begin_at(EPOCH_MS)
        return await function()

    with seeded(seed):
        return trio.run(run, clock=JumpingClock())
