"""A thread with a `trio.run`, in which the brokers of other threads live as tasks.

A thread and a run of trio cost more than to open a broker in them. So a session of
pytest keeps one of each for all of its tests, and each test's broker is a task there.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import trio

from rocketmq_sdk.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
END_WITHIN: Final = 20.0
"""Seconds that the end of a thread, or of a task in it, may take."""


class Tenant(Protocol):
    """What lives in such a thread as a task."""

    async def live(self) -> None:
        """Its life; it raises nothing but what cancels the thread."""
        ...

    def lost(self) -> None:
        """The run has ended, and the task with it."""
        ...


class TrioThread:
    """A thread that runs trio until `end`.

    Any thread may use it. It does not outlive the interpreter.
    """

    def __init__(self) -> None:
        """Start it, and wait until it runs. Raises what `trio.run` raises."""
        self._process = os.getpid()
        self._ready = threading.Event()
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._error: BaseException | None = None
        self._tenants: set[Tenant] = set()
        self._given_up = False
        self._thread = threading.Thread(target=self._main, name="rocketmq test broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    @property
    def usable(self) -> bool:
        """Whether anything else can live in it.

        Not in a forked child, which has no other threads than the one that forked.
        """
        return self.runs and not self._given_up

    @property
    def runs(self) -> bool:
        """Whether what lives in it can still end as it should."""
        return self._is_here and self._thread.is_alive()

    @property
    def _is_here(self) -> bool:
        return self._process == os.getpid()

    def give_up(self) -> None:
        """Something in it does not end: nothing else can live there."""
        self._given_up = True

    def admit(self, tenant: Tenant) -> None:
        """Let a task live in it; does not wait.

        Raises `ClosedError` once it has ended.
        """
        try:
            self._token.run_sync_soon(self._admit, tenant)
        except trio.RunFinishedError:
            raise ClosedError("the thread of the test broker has ended") from None

    def _admit(self, tenant: Tenant) -> None:
        self._tenants.add(tenant)
        self._nursery.start_soon(self._house, tenant)

    async def _house(self, tenant: Tenant) -> None:
        try:
            await tenant.live()
        finally:
            self._tenants.discard(tenant)

    def tell(self, function: Callable[[], object]) -> None:
        """Call a plain function in its loop, soon, if that is still there."""
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            return

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in its loop, and wait for what it returns.

        Raises `ClosedError` when the loop has ended.
        """
        self._check_here()
        try:
            return trio.from_thread.run(function, trio_token=self._token)
        except trio.RunFinishedError:
            raise ClosedError("the test broker has ended") from None

    def look(self, function: Callable[[], T]) -> T:
        """The same for a plain function."""
        self._check_here()
        try:
            return trio.from_thread.run_sync(function, trio_token=self._token)
        except trio.RunFinishedError:
            raise ClosedError("the test broker has ended") from None

    def _check_here(self) -> None:
        if not self._is_here:
            raise ClosedError("the test broker runs in the process that this one was forked from")

    def end(self) -> None:
        """Cancel whatever lives in it, and wait for its end."""
        if self._is_here:
            self.tell(lambda: self._nursery.cancel_scope.cancel())
            self._thread.join(END_WITHIN)

    def _main(self) -> None:
        try:
            trio.run(self._stay)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        finally:
            self._ready.set()
            for tenant in tuple(self._tenants):
                tenant.lost()

    async def _stay(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            self._ready.set()
            await trio.sleep_forever()


class KeptThread:
    """The `TrioThread` that the tests of a session share."""

    def __init__(self) -> None:
        self._thread: TrioThread | None = None

    def get(self) -> TrioThread:
        """A thread that can be used: the one that is kept, else a new one."""
        if self._thread is None or not self._thread.usable:
            self._thread = TrioThread()
        return self._thread

    def end(self) -> None:
        """End it."""
        if self._thread is not None:
            self._thread.end()
