"""Acknowledging popped messages that are done.

Each broker has a line of its own, so that a slow or unreachable one holds up no other.
While a request to a broker is under way, further receipts gather for its next one. A
failed acknowledgement is repeated while its receipt is good; after that its message
comes again (`ConsumeMessagePopConcurrentlyService` of Apache RocketMQ 5.4.0 sends one
request for each message, and repeats none).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.client.api.pop import batch_ack_messages
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.pop.receipt import Receipt

logger = logging.getLogger("rocketmq_sdk.consumer")

RETRY_PAUSE: Final = 1.0
"""Seconds until acknowledgements that have failed are sent again."""


class _Line:
    """The receipts waiting to be acknowledged at one broker."""

    __slots__ = ("broker_name", "due", "receipts", "sending")

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.receipts: list[Receipt] = []
        self.due = trio.Event()
        self.sending = trio.Lock()


class Acknowledgements:
    """Sends the acknowledgements of one consumer as messages are finished."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._lines: dict[str, _Line] = {}
        self._new: list[_Line] = []
        self._added = trio.Event()

    def add(self, receipt: Receipt) -> None:
        """A message is done: acknowledge it."""
        broker_name = receipt.handle.broker_name
        line = self._lines.get(broker_name)
        if line is None:
            line = self._lines[broker_name] = _Line(broker_name)
            self._new.append(line)
            self._added.set()
        line.receipts.append(receipt)
        line.due.set()

    def extend(self, receipts: Iterable[Receipt]) -> None:
        """Several messages are done: acknowledge them."""
        for receipt in receipts:
            self.add(receipt)

    async def run(self) -> None:
        """Send until cancelled."""
        async with open_quiet_nursery() as nursery:
            while True:
                for line in self._new:
                    nursery.start_soon(
                        self._serve,
                        line,
                        name=f"acknowledgements of group {self._group} at {line.broker_name}",
                    )
                self._new.clear()
                self._added = trio.Event()
                await self._added.wait()

    async def flush(self) -> None:
        """Send what has gathered, to all brokers at once.

        Returns when each has answered, including requests that were under way before.
        """
        async with open_quiet_nursery() as nursery:
            for line in self._lines.values():
                nursery.start_soon(self._send, line)

    async def _serve(self, line: _Line) -> None:
        while True:
            await line.due.wait()
            line.due = trio.Event()
            if not await self._send(line):
                await trio.sleep(RETRY_PAUSE)
                line.due.set()

    async def _send(self, line: _Line) -> bool:
        """Send what has gathered; returns whether nothing is left to be sent again."""
        async with line.sending:
            gathered, line.receipts = line.receipts, []
            receipts = [
                receipt for receipt in gathered if receipt.is_good
            ]  # while the line was held up, others may have got the messages
            if not receipts:
                return True
            entries = [(receipt.topic, self._group, receipt.handle) for receipt in receipts]
            try:
                await batch_ack_messages(self._client, line.broker_name, entries)
            except RocketMQError as error:
                line.receipts[:0] = receipts
                logger.info(
                    "group %s: %d acknowledgements at broker %s failed; they are sent again as "
                    "long as their messages are invisible: %s",
                    self._group,
                    len(receipts),
                    line.broker_name,
                    error,
                    extra=about(group=self._group),
                )
                return False
            for receipt in receipts:
                receipt.acknowledged()
            return True
