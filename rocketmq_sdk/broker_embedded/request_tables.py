"""The rows and the handlers of a broker's requests."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.admin.refused import REFUSED_REMARKS
from rocketmq_sdk.broker_embedded.request import handlers_of, together_of
from rocketmq_sdk.remoting.dispatch import Dispatcher

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.composition import Parts
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.remoting.channel import Handler


class RequestTables:
    """Made for the first client that comes, and not for a broker that nobody asks.

    Without a TCP port nobody needs the table of the VIP port.
    """

    def __init__(self, core: Core, parts: Parts) -> None:
        self._core = core
        self._parts = parts

    @cached_property
    def rows(self) -> tuple[Request, ...]:
        """A row for each request that the parts serve."""
        return tuple(row for part in self._parts for row in part.requests())

    @cached_property
    def _handlers(self) -> dict[int, Handler]:
        core = self._core
        return handlers_of(
            self.rows,
            slave=core.config.current.is_slave,
            answers=core.unwritten,
            memory=core.memory,
        )

    @cached_property
    def dispatcher(self) -> Dispatcher:
        """What serves the broker's own port, and clients in the process."""
        return self._dispatcher(self._handlers)

    @cached_property
    def of_vip(self) -> Dispatcher:
        """What serves the VIP port."""
        handlers = self._handlers
        return self._dispatcher({int(row.code): handlers[row.code] for row in self.rows if row.vip})

    def _dispatcher(self, handlers: dict[int, Handler]) -> Dispatcher:
        slave = self._core.config.current.is_slave
        together = together_of(self.rows, self._handlers, slave=slave)
        return Dispatcher(handlers, REFUSED_REMARKS, together)
