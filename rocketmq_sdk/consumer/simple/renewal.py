"""Extending the invisible duration of messages while they are processed.

One task does it for all messages of a consumer.
"""

from __future__ import annotations

import heapq
import logging
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.consumer.retry_states import State
from rocketmq_sdk.errors import ConfigurationError, ReceiptHandleError, RocketMQError
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage, Receipt

logger = logging.getLogger("rocketmq_sdk.consumer")

AHEAD: Final = 10.0
"""Seconds before the end of an invisible duration at which it is extended.

Half of the duration if that is shorter (`ReceiptHandleProcessor` of the proxy).
"""
RETRY_INTERVAL: Final = 1.0


class Extended:
    """One message that is being processed."""

    __slots__ = ("duration", "ended", "known", "message", "until")

    def __init__(self, message: PoppedMessage, duration: float, until: float) -> None:
        self.message = message
        self.duration = duration
        self.until = until
        self.ended = False
        self.known = message.receipt
        """The receipt when it was added, or of its last extension.

        The message has another one when the program has changed its time.
        """


class Renewals:
    """Keeps messages invisible until they are removed."""

    def __init__(self, group: str, change: Callable[[Receipt, float], Awaitable[Receipt]]) -> None:
        self._group = group
        self._change = change
        self._due: list[tuple[float, int, Extended]] = []
        self._order = count()
        self._woken = trio.Event()
        self.extended = 0

    def add(self, message: PoppedMessage, duration: float, limit: float) -> Extended:
        """Extend a message's time by `duration` whenever it is nearly over.

        For at most `limit` seconds.
        """
        if duration <= 0:
            raise ConfigurationError(
                f"an invisible duration of {duration} s cannot be extended; give one above 0"
            )
        entry = Extended(message, duration, trio.current_time() + limit)
        self._plan(entry, self._moment(entry))
        return entry

    def _moment(self, entry: Extended) -> float:
        return entry.message.receipt.expires_at - min(AHEAD, entry.duration / 2)

    def _plan(self, entry: Extended, due: float) -> None:
        heapq.heappush(self._due, (due, next(self._order), entry))
        if self._due[0][2] is entry:
            self._woken.set()

    async def run(self) -> None:
        """Extend what is due until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._woken = trio.Event()
                now = trio.current_time()
                while self._due and (self._due[0][2].ended or self._due[0][0] <= now):
                    entry = heapq.heappop(self._due)[2]
                    if not entry.ended:
                        nursery.start_soon(self._extend, entry)
                with trio.move_on_at(self._due[0][0] if self._due else float("inf")):
                    await self._woken.wait()

    async def _extend(self, entry: Extended) -> None:
        receipt = entry.message.receipt
        now = trio.current_time()
        if receipt.state is not State.INFLIGHT or now >= entry.until:
            if now >= entry.until:
                logger.warning(
                    "group %s: message %s is processed for so long that its time is not extended "
                    "again",
                    self._group,
                    receipt,
                    extra=about(group=self._group),
                )
            return
        if self._moment(entry) > now:  # the program has changed it
            self._plan(entry, self._moment(entry))
            return
        try:
            entry.known = await self._change(receipt, entry.duration)
        except ReceiptHandleError as error:
            if entry.ended or receipt.newest.state is State.COMMIT:
                return  # acknowledged at the same moment
            logger.warning(
                "group %s: the invisible duration of a message that is processed cannot be "
                "extended: %s",
                self._group,
                error,
                extra=about(group=self._group),
            )
            return
        except RocketMQError as error:
            logger.info(
                "group %s: an invisible duration could not be extended, to be tried again: %s",
                self._group,
                error,
                extra=about(group=self._group),
            )
            self._plan(entry, trio.current_time() + RETRY_INTERVAL)
            return
        self.extended += 1
        if not entry.ended:
            self._plan(entry, self._moment(entry))
