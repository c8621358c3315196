"""How one task sleeps until a moment that others may bring nearer."""

from __future__ import annotations

import math

import trio

from rocketmq_sdk.clock import AlarmClock


class Sleeper:
    """The sleep of one task that does again and again what is due next.

    Under an `AlarmClock` it costs no cancel scope and no exception.
    """

    __slots__ = ("_alarms", "_scope", "_task", "until")

    def __init__(self) -> None:
        self.until = -math.inf
        """When the task wakes, in seconds of trio's clock; -inf while it is awake."""
        self._scope: trio.CancelScope | None = None
        self._task: trio.lowlevel.Task | None = None
        self._alarms: AlarmClock | None = None

    async def sleep_until(self, moment: float) -> None:
        """Sleep until `moment`, or until `wake_at` says an earlier one.

        A checkpoint also when that is over.
        """
        self.until = moment
        clock = trio.lowlevel.current_clock()
        try:
            if isinstance(clock, AlarmClock):
                self._alarms = clock
                if moment != math.inf:
                    clock.call_at(moment, self._ring)
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._stop)
            else:
                with trio.CancelScope(deadline=moment) as self._scope:
                    await trio.sleep_forever()
        finally:
            self.until, self._scope, self._alarms = -math.inf, None, None

    def wake_at(self, moment: float) -> None:
        """Let the task wake at `moment` if it would sleep longer."""
        if moment >= self.until:
            return
        self.until = moment
        if self._scope is not None:
            self._scope.deadline = moment
        elif self._alarms is not None:
            self._alarms.call_at(max(moment, trio.current_time()), self._ring)

    def _ring(self) -> bool:
        """Wake the task, unless it sleeps again by now; whether it was woken."""
        task = self._task
        if task is None or self.until > trio.current_time():
            return False
        self._task = None
        trio.lowlevel.reschedule(task)
        return True

    def _stop(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
