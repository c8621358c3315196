"""What the broker does now and then: offsets into their files, silent clients out of
their tables (`ClientHousekeepingService`).

Apache scans each 10 s and writes each 5 s; here each task sleeps until something is
due.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.pull import broadcast_offsets
from rocketmq_sdk.broker_embedded.tables.stats import TICK_SECONDS
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.broker_embedded.core import BrokerContext

logger = logging.getLogger(__name__)

FILTERS_INTERVAL_MS = 10_000
"""How often the expressions of groups are written when one has changed."""
ORDER_INTERVAL_MS = 10_000
"""How often what ordered pops hold is written when it has changed."""
SCAN_INTERVAL = float(TICK_SECONDS)
"""Seconds between two looks for silent clients, which are the steps of the statistics
too.
"""


class Housekeeping:
    """The periodic tasks of a broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def run(self) -> None:
        """Work until cancelled."""
        context = self._context
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                self._persist,
                lambda: context.config.current.flush_consumer_offset_interval,
                self.persist_offsets,
            )
            nursery.start_soon(
                self._persist,
                lambda: context.config.current.flush_delay_offset_interval,
                context.schedule.persist,
            )
            nursery.start_soon(self._persist, lambda: FILTERS_INTERVAL_MS, self._persist_filters)
            nursery.start_soon(self._persist, lambda: ORDER_INTERVAL_MS, context.pop.order.persist)
            nursery.start_soon(self._expire)
            nursery.start_soon(self._scan_broadcast)

    async def persist_offsets(self) -> None:
        """Write the offsets of all groups, those of the broker's own transactions among
        them. Raises `StoreError`.
        """
        if not self._context.config.current.is_slave:  # a slave has its master's
            self._context.transactions.note_progress()
            self.scan_broadcast()
        await self._context.offsets.persist()

    async def _persist(
        self, interval_ms: Callable[[], int], persist: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await trio.sleep(interval_ms() / 1000)
            try:
                await persist()
            except StoreError as error:
                logger.error("a table could not be written; it will be tried again: %s", error)

    async def _persist_filters(self) -> None:
        filters = self._context.filters
        filters.clean(self._context.config.current.filter_data_clean_time_span)
        await filters.persist()

    async def _scan_broadcast(self) -> None:
        while True:
            await trio.sleep(broadcast_offsets.SCAN_INTERVAL)
            self.scan_broadcast()

    def scan_broadcast(self) -> None:
        """Commit how far broadcasting groups are, as far as the broker knows it, and
        forget clients of long ago.
        """
        config = self._context.config.current
        self._context.broadcast_offsets.scan(
            config.broadcast_offset_expire_second, config.broadcast_offset_expire_max_second
        )

    async def _expire(self) -> None:
        while True:
            await trio.sleep(SCAN_INTERVAL)
            self._context.stats.advance(
                datetime.fromtimestamp(self._context.clock.now_ms() / 1000).toordinal()
            )
            self.expire()

    def expire(self) -> None:
        """Close the connections of clients that were silent for too long, and forget
        them.
        """
        context = self._context
        timeout = context.config.current.channel_expired_timeout / 1000
        for channel in [*context.consumers.expire(timeout), *context.producers.expire(timeout)]:
            if not channel.closed:
                logger.warning(
                    "%s sent no heartbeat for %.0f s; its connection is closed",
                    channel.remote_address,
                    timeout,
                )
                channel.abort("no heartbeat in time")
        context.locks.expire()
