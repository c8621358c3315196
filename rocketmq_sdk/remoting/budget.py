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

import heapq
import logging
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY
from rocketmq_sdk.remoting.heap import return_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.remoting.channel import Channel

logger = logging.getLogger("rocketmq_sdk.remoting")

ALWAYS_FAIR: Final = 256 * 1024
"""Bytes that no connection is blamed for."""
PAUSE: Final = 2.0
"""Seconds for which a greedy connection is not read, at most, before the next chunk."""
STILL: Final = 10.0
"""Seconds without a byte in either direction after which a greedy connection is closed.
"""
TELL_EVERY: Final = 1.0
"""Seconds from one warning of a closed connection to the next, at least."""
RETURN_EVERY: Final = 1.0
"""Seconds from one return of freed memory to the system to the next, at least."""
RETURNED: Final = 16
"""Memory is returned when this part of the limit was freed while room was short."""
OPEN_COST: Final = 1024
"""What a request without an answer counts beside its body."""


class MemoryBudget:
    """One for all servers of a process; a limit of bytes that may change."""

    __slots__ = (
        "_freed",
        "_greediest",
        "_heavy",
        "_loads",
        "_looked",
        "_lot",
        "_returned",
        "_told",
        "_untold",
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
        self._heavy: dict[Channel, None] = {}
        """Connections that hold more than `ALWAYS_FAIR`, of which there is only room
        for some, however many others there are.
        """
        self._greediest: list[tuple[int, int, Channel]] = []
        """While `tight`: a heap of loads, negative, with those that have changed since
        as well.
        """
        self._looked = 0.0
        """When those that stand still were looked for; there may be thousands."""
        self._freed = 0
        """Bytes freed while `tight` since memory was returned to the system."""
        self._returned = -math.inf
        self._lot = trio.lowlevel.ParkingLot()
        self._told = -math.inf
        self._untold = 0

    @property
    def scarce(self) -> bool:
        """Whether more than three quarters of the limit are used."""
        return self.used > self.limit * 3 // 4

    def weigh(self, channel: Channel, load: int) -> None:
        """A connection holds `load` bytes now; may close the greediest ones."""
        self._count(channel, load)
        while self.used > self.limit and self._loads:
            self._close_greediest()

    @contextmanager
    def working_on(self, size: int) -> Iterator[None]:
        """Count what the work for a request takes, for the length of the block."""
        self._use(size)
        while self.used > self.limit and self._loads:
            self._close_greediest()
        try:
            yield
        finally:
            self._use(-size)

    def _count(self, channel: Channel, load: int) -> None:
        loads = self._loads
        before = loads.get(channel, 0)
        if load > ALWAYS_FAIR:
            self._heavy[channel] = None
        elif before > ALWAYS_FAIR:
            del self._heavy[channel]
        if load:
            loads[channel] = load
        else:
            loads.pop(channel, None)
        self._use(load - before)
        if self.tight and load:
            heapq.heappush(self._greediest, (-load, channel.channel_id, channel))
            if len(self._greediest) > 2 * len(loads) + 64:
                self._rank()

    def _use(self, more: int) -> None:
        """Count bytes, and see whether there is room."""
        self.used += more
        if more < 0 and self.tight:
            self._freed -= more
            if self._freed > self.limit // RETURNED:
                self._return_memory()
        # Once tight it stays so for an eighth more: those that wait for room, there may
        # be hundreds, are not woken for each byte.
        tight = self.used > (self.limit * 3 // 8 if self.tight else self.limit // 2)
        if tight is not self.tight:
            self.tight = tight
            self._rank()
            if not tight:
                self._lot.unpark_all()

    def _return_memory(self) -> None:
        now = trio.current_time()
        if now >= self._returned + RETURN_EVERY:
            self._returned, self._freed = now, 0
            return_memory()

    def is_greedy(self, channel: Channel) -> bool:
        """Whether a connection holds more than its share while room is short."""
        if not self.tight:
            return False
        load = self._loads.get(channel, 0)
        return load > ALWAYS_FAIR and load > self.limit // 2 // len(self._heavy)

    def refusal(self, channel: Channel, load: int, request: Command) -> Command | None:
        """The refusal of a request of a greedy connection while memory is scarce.

        `load` is what the connection holds.
        """
        if not (self.scarce and self.is_greedy(channel)):
            return None
        self.refused += 1
        if request.flag & FLAG_ONEWAY:
            logger.warning(
                "dropping %r of %s: memory is scarce",
                request,
                channel.remote_address,
                extra=about(request=request, peer=channel.remote_address),
            )
        return Command.response(
            ResponseCode.SYSTEM_BUSY,
            remark=f"[OVERLOAD]this connection holds {load} bytes of the {self.limit} that "
            "all connections may hold, start flow control for a while",
        )

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
        for channel in [other for other in self._heavy if other.last_progress <= since]:
            if self.is_greedy(channel):
                self._close(channel, f"no byte was moved for {STILL:g} s, others wait for room")

    def _rank(self) -> None:
        """Order all that is held, when room becomes short and now and then later."""
        self._greediest = [
            (-load, channel.channel_id, channel)
            for channel, load in (self._loads.items() if self.tight else ())
        ]
        heapq.heapify(self._greediest)

    def _close_greediest(self) -> None:
        ranked, loads = self._greediest, self._loads
        while loads.get(ranked[0][2]) != -ranked[0][0]:
            heapq.heappop(ranked)
        self._close(ranked[0][2], "the most of all")

    def _close(self, channel: Channel, why: str) -> None:
        reason = (
            f"it holds {self._loads[channel]} of the {self.used} bytes that all connections hold "
            f"together ({why}); the limit is {self.limit}"
        )
        self.closed += 1
        self._tell(channel, reason)
        channel.abort(reason)
        self._count(channel, 0)

    def _tell(self, channel: Channel, reason: str) -> None:
        """Log a closing, those that follow within `TELL_EVERY` seconds as a number."""
        now = trio.current_time()
        if now < self._told + TELL_EVERY:
            self._untold += 1
            return
        others = f"; {self._untold} others were closed before it" if self._untold else ""
        self._told, self._untold = now, 0
        logger.warning(
            "closing the connection of %s: %s%s",
            channel.remote_address,
            reason,
            others,
            extra=about(peer=channel.remote_address),
        )

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
