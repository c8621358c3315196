"""The services of a store: tasks that run as long as it is open.

Whoever owns the store decides what becomes of their errors. A broker starts them again,
like its own, and ends only when the log can no longer be trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio


class Startable(Protocol):
    """A service that has no task yet."""

    def start(self) -> None:
        """Give it its task, unless those who run services are about to end."""


class OnCall:
    """Lets a service have a task only from the moment when it has something to do.

    Most services of most brokers never have. Who gives one something to do calls it, in
    the loop; who runs services attaches what starts its task. A service that was called
    before that starts at once.
    """

    __slots__ = ("_service", "after", "called")

    def __init__(self, after: float | None = None) -> None:
        self.called = False
        """Whether it has its task, or is to have it at once."""
        self.after = after
        """Seconds from the start on after which it is called whatever happens."""
        self._service: Startable | None = None

    def call(self) -> None:
        """There is something to do; nothing happens if it was called before."""
        if not self.called:
            self.called = True
            if self._service is not None:
                self._service.start()

    def attach(self, service: Startable) -> None:
        """Start a service when it is called."""
        self._service = service
        if self.called:
            service.start()


class StoreService(NamedTuple):
    """One of them; logs and statistics call it `name`."""

    name: str
    run: Callable[[], Awaitable[None]]
    on_call: OnCall | None = None
    """Where it needs no task before it is called."""
    of_log: bool = False
    """Whether the log can no longer be trusted once it has raised."""


StartService: TypeAlias = "Callable[[trio.Nursery, StoreService], None]"
"""Starts a service in a nursery; one on call may wait until it is called."""


def start_at_once(nursery: trio.Nursery, service: StoreService) -> None:
    """Let its error end the block of the store."""
    nursery.start_soon(service.run)
