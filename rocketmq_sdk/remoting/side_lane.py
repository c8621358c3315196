"""One lane for connections that would hold up very many others.

A turn of the loop serves all connections of which something has come. Beside hundreds
of others, those whose requests take long, that hold much memory, or whose requests are
refused, are read and served by this lane instead, and so is what a new one sends first:
one of them in a turn of the loop, in the order in which they came. The others wait for
no more than one of them, however many there are; what the others leave is theirs.

Those of which something has come are not even looked at before it is their turn: where
the system has epoll, the lane has one of its own, and takes one ready connection out of
it at a time. A wake-up of each of hundreds of tasks, only to let them wait for the
lane, would hold up everybody for milliseconds.
"""

from __future__ import annotations

import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.transport.tcp import descriptor_of, receive_now, wait_readable

if TYPE_CHECKING:
    from collections.abc import Callable

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
ASIDE_SIZE: Final = 4096
"""Bytes that are read at a time of a connection in the lane, between two frames: what
that brings is decoded at once.
"""
_HAS_EPOLL: Final = sys.platform == "linux"


class SideLane:
    """The lane of one `trio.run`. Whoever is in it waits for nothing else."""

    __slots__ = ("_busy", "_gate", "_holder", "_lot", "_lot_is_next")

    def __init__(self) -> None:
        self._lot = trio.lowlevel.ParkingLot()
        self._gate: _Gate | None = None
        self._busy = self._lot_is_next = False
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
        if self._holder is who and self._pass_on():
            self._holder = None
            await self._lot.park()
            self._holder = who
        else:
            await trio.lowlevel.checkpoint()
            if self._holder is not who:
                await self.enter(who)

    async def receive(self, who: object, stream: trio.abc.Stream, size: int) -> bytes:
        """What has come over a stream, as soon as the lane is free; `who` is in it
        then.

        Raises `OSError`, and `trio.ClosedResourceError` when the stream is closed.
        """
        while True:
            gate = self._gate or self._make_gate()
            if gate is None:
                await wait_readable(stream)
                await self.enter(who)
            else:
                await gate.wait(descriptor_of(stream))
                self._holder = who
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
        if not self._pass_on():
            trio.lowlevel.current_trio_token().run_sync_soon(self._open)

    def _pass_on(self) -> bool:
        """Give the lane to the next one: in turn to one that goes on and to one of
        which something has come. False when there is none.
        """
        self._lot_is_next = lot_is_next = not self._lot_is_next
        if self._lot and lot_is_next:
            self._lot.unpark()
            return True
        if self._gate is not None and self._gate.open():
            return True
        if self._lot:
            self._lot.unpark()
            return True
        return False

    def _make_gate(self) -> _Gate | None:
        """None where there is no epoll, or too many files are open for one now."""
        if _HAS_EPOLL:
            with suppress(OSError):
                self._gate = _Gate(self._news)
        return self._gate

    def _news(self) -> None:
        if not self._busy:
            self._open()

    def _open(self) -> None:
        self._busy = self._pass_on()
        if not self._busy and self._gate is not None:
            self._gate.watch()


class _Gate:
    """The connections that wait for something to come, in front of the lane."""

    __slots__ = ("_asleep", "_epoll", "_has_news", "_waiting", "_wanted")

    def __init__(self, has_news: Callable[[], None]) -> None:
        """`has_news` is called when something has come while nobody has the lane."""
        self._epoll = select.epoll()
        self._has_news = has_news
        self._waiting: dict[int, trio.lowlevel.Task] = {}
        self._asleep: trio.lowlevel.Task | None = None
        self._wanted = False
        trio.lowlevel.spawn_system_task(self._watch, name="gate of the side lane")

    async def wait(self, descriptor: int) -> None:
        """Wait until something has come, and the lane is given to the caller."""
        epoll, waiting = self._epoll, self._waiting
        if epoll.closed:
            raise trio.ClosedResourceError("the run of trio is over")
        events = select.EPOLLIN | select.EPOLLONESHOT
        try:
            epoll.modify(descriptor, events)
        except FileNotFoundError:
            epoll.register(descriptor, events)
        waiting[descriptor] = trio.lowlevel.current_task()

        def stop(_raise_cancel: object) -> trio.lowlevel.Abort:
            del waiting[descriptor]
            if not epoll.closed:
                epoll.unregister(descriptor)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(stop)

    def open(self) -> bool:
        """Let one go on of which something has come; False when there is none."""
        if self._epoll.closed:
            return False
        for descriptor, _events in self._epoll.poll(0, 1):
            trio.lowlevel.reschedule(self._waiting.pop(descriptor))
            return True
        return False

    def watch(self) -> None:
        """Nobody has the lane: tell when something comes."""
        self._wanted, asleep = True, self._asleep
        if asleep is not None:
            self._asleep = None
            trio.lowlevel.reschedule(asleep)

    @trio.lowlevel.enable_ki_protection
    async def _watch(self) -> None:
        try:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                self._wanted = False
                self._has_news()
                if not self._wanted:
                    self._asleep = trio.lowlevel.current_task()
                    await trio.lowlevel.wait_task_rescheduled(self._stop_sleeping)
        finally:
            self._epoll.close()

    def _stop_sleeping(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._asleep = None
        return trio.lowlevel.Abort.SUCCEEDED
