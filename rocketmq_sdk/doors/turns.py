"""Turns of a trio run that somebody else gives: all that is private of trio.

`trio.lowlevel.start_guest_run` has a host run trio's tasks, but waits for sockets in a
helper thread, which costs two changes of threads for each answer. Who gives the turns
here waits for trio's selector himself. `Turns` does what `GuestState.guest_tick` of
trio does; where trio has other parts, as on Windows or in a future release, making one
raises `AttributeError`, and doors do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import outcome
import sniffio
import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_library = sniffio.thread_local


class Turns:
    """How to give a guest run of trio its turns, given its `GuestState`.

    Any thread may, one at a time.
    """

    def __init__(self, state: Any) -> None:
        self.runner = state.runner
        self.events: Callable[[float], Any] = state.runner.io_manager.get_events
        """Waits up to so many seconds for the selector, and takes what it has."""
        self.wake: Callable[[], None] = state.runner.io_manager.force_wakeup
        """Ends such a wait; signal handlers may call it."""
        self.descriptor: int = state.runner.io_manager._epoll.fileno()
        self.entries = state.runner.entry_queue
        """What other threads have handed over by a token of the run."""
        self.first: Any = state.unrolled_run_next_send.unwrap()
        """The events of the next turn."""
        self.ended: outcome.Outcome[None] | None = None
        """How the run has ended."""
        self.context = cast("Any", trio)._core._run.GLOBAL_RUN_CONTEXT
        """What trio keeps for each thread: the run in which it is."""
        self._send: Callable[[Any], float] = state.unrolled_run_gen.send
        _ = self.runner.guest_tick_scheduled, self.runner.main_task_outcome

    def turn(self, events: Any) -> float | None:
        """Run the tasks that can run, after events of the selector.

        Gives the seconds until the next turn, or None at the end.
        """
        before, _library.name = _library.name, "trio"
        try:
            return self._send(events)
        except StopIteration:
            if self.ended is None:
                self.ended = self.runner.main_task_outcome
        except trio.TrioInternalError as error:
            self.ended = outcome.Error(error)
        finally:
            _library.name = before
        return None


def begin_turns(main: Callable[[], Awaitable[None]]) -> Turns | None:
    """Start a trio run in this thread; None where trio has other parts."""
    if not _known():
        return None
    states: list[Any] = []

    def first(tick: Any) -> None:
        states.append(tick.__self__)

    trio.lowlevel.start_guest_run(
        main,
        run_sync_soon_threadsafe=first,
        done_callback=states.append,
        host_uses_signal_set_wakeup_fd=True,
    )
    return Turns(states[0])


def _known() -> bool:
    """Whether trio has the parts that `Turns` needs."""
    parts: Any = getattr(cast("Any", trio)._core, "_run", None)
    return all(
        hasattr(getattr(parts, name, None), part)
        for name, part in (
            ("GuestState", "runner"),
            ("GuestState", "unrolled_run_gen"),
            ("GuestState", "unrolled_run_next_send"),
            ("Runner", "entry_queue"),
            ("Runner", "guest_tick_scheduled"),
            ("Runner", "io_manager"),
            ("Runner", "main_task_outcome"),
            ("TheIOManager", "_epoll"),
            ("TheIOManager", "get_events"),
            ("TheIOManager", "force_wakeup"),
            ("GLOBAL_RUN_CONTEXT", "__dict__"),
        )
    )
