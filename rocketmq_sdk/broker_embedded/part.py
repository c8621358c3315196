"""What every subject of a broker offers: `Part`.

`composition` makes the parts, each from the core and from those parts that it names;
everything else is done in loops over them: opening, serving, forgetting, closing.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.broker_embedded.store.services import OnCall
    from rocketmq_sdk.remoting.channel import Channel


class AfterError(Enum):
    """What becomes of a service that raised."""

    RESTART = "restart"
    """It is started again after a back-off."""
    END_BROKER = "end the broker"
    """The broker's block ends with the error; for what nothing can go on without."""


class Service(NamedTuple):
    """A task that runs as long as the broker is open; its errors carry `name`.

    One that is on call has no task before it is called.
    """

    name: str
    run: Callable[[], Awaitable[None]]
    after_error: AfterError = AfterError.RESTART
    trouble: Iterable[str] | None = None
    """What it cannot do now while it goes on with the rest; read when asked."""
    on_call: OnCall | None = None


class SavedTable(NamedTuple):
    """A table that is written periodically, and when the broker closes.

    `interval_ms` gives the milliseconds between two writes, asked before each wait;
    None for a table that is written at the end only. `save` writes what has changed; it
    raises `StoreError`, after which it is tried again. `changed` tells whether there is
    anything to write or being written, at once: most brokers are idle mostly.
    """

    name: str
    interval_ms: Callable[[], int] | None
    save: Callable[[], Awaitable[None]]
    changed: Callable[[], bool] = lambda: True


class Part:
    """One subject of a broker: the requests about it, its services and tables.

    The broker calls the methods in this order. At the start: `saved_tables` and
    `services` once, `load` before anything is served. While it is open: `requests`
    once, when the first client comes; `channel_closed`, `topic_deleted` and
    `group_deleted` as it happens, synchronously. At the end: `release`, `close`, all
    tables are saved, `leave`, then the connections close, with `channel_closed` for
    each, and the tables are saved once more. The defaults do nothing.
    """

    __slots__ = ()

    def requests(self) -> Iterable[Request]:
        """The rows of the requests that it serves."""
        return ()

    def services(self) -> Iterable[Service]:
        """Its tasks."""
        return ()

    def saved_tables(self) -> Iterable[SavedTable]:
        """Its tables that are saved periodically."""
        return ()

    async def load(self) -> None:
        """Read its files and begin to listen to the store.

        Raises `StoreCorruptError` or `FieldError` for a file that is corrupt,
        `StoreError` when the store cannot be read.
        """

    def channel_closed(self, channel: Channel) -> None:
        """A connection has ended."""

    def topic_deleted(self, topic: str) -> None:
        """A topic is gone."""

    def group_deleted(self, group: str) -> None:
        """A consumer group is gone."""

    def release(self) -> None:
        """Answer all requests that are held; from now on nothing is held."""

    async def close(self) -> None:
        """Bring what is in memory into store and tables. Raises `StoreError`."""

    async def leave(self) -> None:
        """Tell others that the broker is gone; its tables are saved by now."""
