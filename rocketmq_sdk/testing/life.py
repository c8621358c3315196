"""One life of a broker under test, from a start to the next stop or kill."""

from __future__ import annotations

import gc
import math
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import attrs

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.composition import OPTIONS, check_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import trio

    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.remoting.channel import Handler
    from rocketmq_sdk.remoting.dispatch import Dispatcher
    from rocketmq_sdk.remoting.source import ChannelSource
    from rocketmq_sdk.testing.traffic.releases import Release

KILLED = "the broker was killed"


@contextmanager
def without_collections() -> Iterator[None]:
    """Look for no circles of garbage in the block.

    A broker makes a few thousand objects when it opens, which else are looked at again
    and again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


TEST_OPTIONS: Final = ("files", "strict", "network", "patient", "emulate")
"""What `TestBroker` takes besides what `EmbeddedBroker` takes."""


class BrokerLife(EmbeddedBroker):
    """A broker on given files, with something in front of its handlers."""

    def __init__(
        self,
        path: Any,
        files: FileSystem | None,
        front: Callable[[BrokerLife, Dispatcher], Handler],
        *,
        outgoing: ChannelSource | None = None,
        connect: Callable[[str], Any] | None = None,
        patient: bool = False,
        **options: Any,
    ) -> None:
        """`outgoing` and `connect` replace TCP for what the broker itself asks.

        A `patient` broker closes no connection because it is silent.
        """
        check_names(options.keys() - set(OPTIONS), (*OPTIONS, *TEST_OPTIONS))
        super().__init__(path, **options)
        self.killed = False
        self._given_files = files
        self._put_in_front = front
        self._out = outgoing
        self._connect_to = connect
        self._patient = patient

    @cached_property
    def rows(self) -> dict[int, Request]:
        """All requests that are served, by the name server too."""
        return {int(row.code): row for row in (*self.requests, *self.namesrv.requests)}

    def _files(self) -> FileSystem:
        return super()._files() if self._given_files is None else self._given_files

    def _front(self, handler: Dispatcher) -> Handler:
        return self._put_in_front(self, handler)

    def _make_servers(self) -> None:
        super()._make_servers()
        if self._patient:
            for server in (self.server, self.vip_server, self.namesrv_server):
                server.limits = attrs.evolve(
                    server.limits, idle_timeout=math.inf, stall_timeout=math.inf
                )

    def _outgoing(self) -> ChannelSource:
        return super()._outgoing() if self._out is None else self._out

    async def _connect(self, address: str) -> trio.abc.Stream:
        if self._connect_to is None:
            return await super()._connect(address)
        stream: trio.abc.Stream = await self._connect_to(address)
        return stream

    def be_of(self, release: Release | None) -> None:
        """Do with messages what an older release did; None is this package's own."""
        self.parts.timers.intake.knows_timers = release is None or release.knows_timers

    @property
    def address_for_slaves(self) -> str:
        """`host:port` where slaves reach this broker, as it is registered."""
        return self._identity().ha_server_address

    def die(self) -> None:
        """End all connections at once; nothing more is written while it closes.

        The caller ends the block.
        """
        self.killed = True
        self._abort_channels(KILLED)

    async def _close(self, problems: list[Exception], leaving: float) -> None:
        if not self.killed:
            await super()._close(problems, leaving)
            return
        await self._ports.stop_accepting()
        for server in (self.server, self.vip_server, self.namesrv_server):
            await server.aclose()

    async def _save_all(self, problems: list[Exception]) -> None:
        if not self.killed:
            await super()._save_all(problems)
