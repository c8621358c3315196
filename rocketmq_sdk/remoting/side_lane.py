"""One lane for connections that would hold up very many others.

A turn of the loop serves all connections of which something has come. Beside hundreds
of others, those whose requests take long, that hold much memory, or whose requests are
refused, are read and served by this lane instead, and so is what a new one sends first:
one of them in a turn of the loop, in the order in which they came. The others wait for
no more than one of them, however many there are; what the others leave is theirs.
"""

from __future__ import annotations

from typing import Final

import trio

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.transport.tcp import receive_now, wait_readable

REFUSED: Final = frozenset(
    map(
        int,
        (
            ResponseCode.SYSTEM_ERROR,
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            ResponseCode.MESSAGE_ILLEGAL,
            ResponseCode.NO_PERMISSION,
            ResponseCode.INVALID_PARAMETER,
        ),
    )
)
"""Codes of answers to requests that nobody should send."""


ASIDE: Final = 4
"""How many requests of a connection in the lane are served together."""


class SideLane:
    """The lane of one `trio.run`. Whoever is in it waits for nothing else."""

    __slots__ = ("_busy", "_holder", "_lot")

    def __init__(self) -> None:
        self._lot = trio.lowlevel.ParkingLot()
        self._busy = False
        self._holder: object = None

    async def enter(self, who: object) -> None:
        """Wait for the lane; no checkpoint while it is free."""
        if self._busy:
            await self._lot.park()
        self._busy, self._holder = True, who

    async def take_turns(self, who: object) -> None:
        """Let others have a turn of the loop, and those that wait for the lane theirs;
        `who` is in it afterwards.
        """
        if self._holder is who and self._lot:
            self.leave(who)
            await self.enter(who)
        else:
            await trio.lowlevel.checkpoint()
            if self._holder is not who:
                await self.enter(who)

    async def receive(self, who: object, stream: trio.abc.Stream, size: int) -> bytes:
        """What has come over a stream, as soon as the lane is free; `who` is in it
        then.
        """
        while True:
            await wait_readable(stream)
            await self.enter(who)
            data = receive_now(stream, size)
            if data is not None:
                return data
            self.leave(who)

    def leave(self, who: object) -> None:
        """Leave it, if `who` is in it; the next one comes in the next turn of the
        loop.
        """
        if self._holder is not who:
            return
        self._holder = None
        if self._lot:
            self._lot.unpark()
        else:
            trio.lowlevel.current_trio_token().run_sync_soon(self._open)

    def _open(self) -> None:
        if self._lot:
            self._lot.unpark()
        else:
            self._busy = False
