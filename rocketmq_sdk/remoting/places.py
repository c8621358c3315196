"""`Places`: how many connections the servers of a process have together.

Each takes a descriptor, and the files of a store need some as well. When all places are
taken, a connection that never brought a whole request gives its place to a new one: the
one that has been silent for longest. Without one the new connection is closed.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from rocketmq_sdk.transport.tcp import wait_connected

if TYPE_CHECKING:
    from trio.abc import Listener

MOST: Final = 10_000
"""Connections, where the system allows so many descriptors."""
RESERVED: Final = 512
"""Descriptors that are left to files and to other connections."""
LEAST: Final = 64
TELL_EVERY: Final = 10.0
"""Seconds from one line of the log about connections that were refused to the next."""
_ACCEPT_PAUSE: Final = 0.1


class Guest(Protocol):
    """What takes a place."""

    @property
    def heard(self) -> bool:
        """Whether it ever brought a whole request."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it is over; its place may not be free yet."""
        ...

    def abort(self, reason: str) -> None:
        """End it."""
        ...


def most_connections() -> int:
    """How many connections the limit of descriptors leaves room for."""
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return MOST
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST
    return max(LEAST, min(MOST, soft - RESERVED))


class Told:
    """Says something that may happen very often now and then, with how often it did."""

    __slots__ = ("_at", "_untold")

    def __init__(self) -> None:
        self._at = -math.inf
        self._untold = 0

    def say(self, logger: logging.Logger, level: int, text: str) -> None:
        """Log a text, unless one was logged a moment ago."""
        self._untold += 1
        now = trio.current_time()
        if now < self._at + TELL_EVERY:
            return
        more = f" ({self._untold} times since it was told last)" if self._untold > 1 else ""
        self._at, self._untold = now, 0
        logger.log(level, "%s%s", text, more)


class Places:
    """One for all servers of a process."""

    __slots__ = ("_silent", "gave_way", "most", "refused", "taken", "told")

    def __init__(self, most: int | None = None) -> None:
        self.most = most_connections() if most is None else most
        self.taken = 0
        """Connections now."""
        self.refused = 0
        """Those that were closed at once."""
        self.gave_way = 0
        """Those that were silent and gave their place to others."""
        self.told = Told()
        self._silent: dict[Guest, None] = {}
        """By age; with some that have been heard since, or are closed."""

    def take(self, guest: Guest) -> bool:
        """Take a place, that of a silent one if need be; False when there is none."""
        if self.taken >= self.most and not self._make_room():
            self.refused += 1
            return False
        self.taken += 1
        self._silent[guest] = None
        return True

    def leave(self, guest: Guest) -> None:
        """Give a place back."""
        self.taken -= 1
        self._silent.pop(guest, None)

    def _make_room(self) -> bool:
        while self._silent:
            guest = next(iter(self._silent))
            del self._silent[guest]
            if not guest.heard and not guest.closed:
                self.gave_way += 1
                guest.abort("it never brought a whole request, and others wait for a place")
                return True
        return False


class Accepting:
    """The connections of one listener, one after the other.

    What the system cannot accept is tried again, and told now and then: it is out of
    descriptors or memory, or the peer is gone already.
    """

    __slots__ = ("_began", "_listener", "_logger", "_told", "_what")

    def __init__(self, listener: Listener[Any], what: str, logger: logging.Logger) -> None:
        self._listener = listener
        self._what = what
        self._logger = logger
        self._told = Told()
        self._began = False

    async def next(self) -> Any:
        """The next one; None when the listener is closed."""
        while True:
            try:
                if not self._began:  # most likely nobody has come yet
                    self._began = True
                    await wait_connected(self._listener)
                return await self._listener.accept()
            except trio.ClosedResourceError:
                return None
            except OSError as error:
                self._told.say(self._logger, logging.ERROR, f"cannot accept {self._what}: {error}")
                await trio.sleep(_ACCEPT_PAUSE)
