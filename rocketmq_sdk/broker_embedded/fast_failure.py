"""Fast failure: refuse requests that waited too long (`BrokerFastFailure`).

Under too much load a quick refusal is better than serving what the client has given up.
Apache (5.4.0) looks at the queues in front of its thread pools each 10 ms. Here
requests are served as they are read, so only those wait that arrived in one chunk
behind others while other connections have their turn. Limits, code and text are
Apache's. A request that has begun is never refused, and a single pause of the machine
fails nobody. The page cache of appends cannot be busy here, because an append runs to
its end before anything else.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.request import Request, Wait
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig


class FastFailure:
    """Judges a request that had to wait; all others are none of its business."""

    def __init__(self, config: LiveConfig, rows: Callable[[], Iterable[Request]]) -> None:
        """`rows`, called once, tells which setting limits the wait of a request."""
        self._config = config
        self._rows = rows
        self.failed = 0
        """Requests refused so far."""

    @cached_property
    def _waits(self) -> dict[int, Wait]:
        return {int(row.code): row.wait for row in self._rows()}

    def __call__(self, request: Command, waited: float, behind: int | None) -> Command | None:
        """The refusal of a request that waited for too many seconds; None to serve it.

        `behind` is the number of requests that wait behind it, None to refuse nothing
        yet.
        """
        config = self._config.current
        setting = self._waits.get(request.code, Wait.ADMIN).value
        if not config.broker_fast_failure_enable or not setting:
            return None
        waited_ms = int(waited * 1000)
        if waited_ms < getattr(config, setting):
            return None
        if behind is not None:
            self.failed += 1
        remark = (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
            f"{waited_ms}ms, size of queue: {behind or 0}"
        )
        return Command.response(ResponseCode.SYSTEM_BUSY, remark=remark)
