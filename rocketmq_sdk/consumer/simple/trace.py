"""Trace records of a simple consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.protocol.trace import ConsumeResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage, Receipt
    from rocketmq_sdk.consumer.trace import ConsumeTrace

EXPIRY_INTERVAL: Final = 5.0
"""Seconds between two looks for deliveries whose time is over."""


class ReceiptTrace:
    """Traces each delivery from the receive to its acknowledgement, or time-out."""

    def __init__(self, trace: ConsumeTrace) -> None:
        self._trace = trace
        self._open: dict[Receipt, tuple[PoppedMessage, str, float]] = {}

    def received(self, messages: Sequence[PoppedMessage]) -> None:
        """Messages of one topic were received."""
        wanted = [message for message in messages if self._trace.wanted(message)]
        if wanted:
            request_id, now = self._trace.begin(wanted), trio.current_time()
            for message in wanted:
                self._open[message.receipt] = message, request_id, now

    def replaced(self, old: Receipt, new: Receipt) -> None:
        """The invisible duration of a message was changed."""
        entry = self._open.pop(old, None)
        if entry is not None:
            self._open[new] = entry

    def acknowledged(self, receipt: Receipt) -> None:
        """A message was acknowledged."""
        self._close(receipt, ConsumeResult.SUCCESS)

    async def expire(self) -> float:
        """A periodic job: end deliveries whose time is over."""
        now = trio.current_time()
        for receipt in [receipt for receipt in self._open if receipt.expires_at <= now]:
            self._close(receipt, ConsumeResult.TIME_OUT)
        return EXPIRY_INTERVAL

    def _close(self, receipt: Receipt, result: ConsumeResult) -> None:
        entry = self._open.pop(receipt, None)
        if entry is not None:
            message, request_id, began = entry
            self._trace.end(
                [message], request_id, min(trio.current_time(), receipt.expires_at) - began, result
            )
