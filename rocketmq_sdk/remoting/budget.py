"""`MemoryBudget`: what the connections of a process may hold together.

A connection holds unfinished frames, requests without an answer, and answers that its
peer has not taken yet. Each tells its sum when that has changed by much; an ordinary
request, which is read and answered at once, never touches the budget.

Above half of the limit those that hold more than their share are read slowly, a
mebibyte in `PAUSE` seconds; above three quarters their requests are answered with
SYSTEM_BUSY; above the limit the connection that holds most is closed, with the reason
in the log. So are those that hold more than their share and move no byte for `STILL`
seconds, while others have to wait for room. Whoever holds no more than `ALWAYS_FAIR` is
never held back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from rocketmq_sdk.remoting.channel import Channel

logger = logging.getLogger("rocketmq_sdk.remoting")

ALWAYS_FAIR: Final = 256 * 1024
"""Bytes that no connection is blamed for."""
PAUSE: Final = 2.0
"""Seconds for which a greedy connection is not read, at most, before the next chunk."""
STILL: Final = 10.0
"""Seconds without a byte in either direction after which a greedy connection is closed.
"""
OPEN_COST: Final = 1024
"""What a request without an answer counts beside its body."""


class MemoryBudget:
    """One for all servers of a process; a limit of bytes that may change."""

    __slots__ = (
        "_heavy",
        "_loads",
        "_looked",
        "_lot",
        "closed",
        "limit",
        "paused",
        "refused",
        "tight",
        "used",
    )

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        """Bytes that all connections hold now."""
        self.tight = False
        """Whether more than half of the limit is used, or was a moment ago."""
        self.paused = 0
        """How often a connection was not read for a while."""
        self.refused = 0
        """Requests answered with SYSTEM_BUSY."""
        self.closed = 0
        """Connections closed because they held too much."""
        self._loads: dict[Channel, int] = {}
        self._heavy = 0
        """Connections that hold more than `ALWAYS_FAIR`."""
        self._looked = 0.0
        """When those that stand still were looked for; there may be thousands."""
        self._lot = trio.lowlevel.ParkingLot()

    @property
    def scarce(self) -> bool:
        """Whether more than three quarters of the limit are used."""
        return self.used > self.limit * 3 // 4

    def weigh(self, channel: Channel, load: int) -> None:
        """A connection holds `load` bytes now; may close the greediest one."""
        loads = self._loads
        before = loads.get(channel, 0)
        self.used += load - before
        self._heavy += (load > ALWAYS_FAIR) - (before > ALWAYS_FAIR)
        if load:
            loads[channel] = load
        else:
            loads.pop(channel, None)
        # Once tight it stays so for an eighth more: those that wait for room, there may
        # be hundreds, are not woken for each byte.
        tight = self.used > (self.limit * 3 // 8 if self.tight else self.limit // 2)
        if tight is not self.tight:
            self.tight = tight
            if not tight:
                self._lot.unpark_all()
        while self.used > self.limit and self._loads:
            self._close_greediest()

    def is_greedy(self, channel: Channel) -> bool:
        """Whether a connection holds more than its share while room is short."""
        if not self.tight:
            return False
        load = self._loads.get(channel, 0)
        return load > ALWAYS_FAIR and load > self.limit // 2 // self._heavy

    async def wait_for_room(self, channel: Channel) -> None:
        """Wait while a connection is greedy, for `PAUSE` seconds at most."""
        if not self.is_greedy(channel):
            return
        self.paused += 1
        with trio.move_on_after(PAUSE) as pause:
            while self.is_greedy(channel):
                await self._lot.park()
        now = trio.current_time()
        if pause.cancelled_caught and now >= self._looked + PAUSE / 2:
            self._looked = now
            self._close_the_still(now - STILL)

    def _close_the_still(self, since: float) -> None:
        for channel in [other for other in self._loads if other.last_progress <= since]:
            if self.is_greedy(channel):
                self._close(channel, f"no byte was moved for {STILL:g} s, others wait for room")

    def _close_greediest(self) -> None:
        self._close(max(self._loads, key=self._loads.__getitem__), "the most of all")

    def _close(self, channel: Channel, why: str) -> None:
        reason = (
            f"it holds {self._loads[channel]} of the {self.used} bytes that all connections hold "
            f"together ({why}); the limit is {self.limit}"
        )
        logger.warning("closing the connection of %s: %s", channel.remote_address, reason)
        self.closed += 1
        channel.abort(reason)
        self.weigh(channel, 0)

    def troubles(self) -> tuple[str, ...]:
        """What is wrong now, in words; empty while there is room."""
        if not self.tight:
            return ()
        return (
            (
                f"connections hold {self.used} of {self.limit} bytes, the greediest are held back; "
                f"{self.closed} were closed so far"
            ),
        )
