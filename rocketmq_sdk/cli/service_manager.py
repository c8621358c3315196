"""What a service manager is told: ready, closing, still alive (sd_notify(3)).

Nothing is said unless it asks, by `NOTIFY_SOCKET`.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

import trio

logger = logging.getLogger(__name__)
_MORE_TIME: Final = 60
"""Seconds that are asked for while a start or a stop goes on."""


class ServiceManager:
    """Tells systemd how a process is."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        period = os.environ.get("WATCHDOG_USEC", "")
        mine = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog = int(period) / 1e6 if mine and period.isdigit() and int(period) else None
        """Seconds within which a sign of life is wanted, or None."""

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        # A name in the abstract space begins with a zero byte, written as @.
        path = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
                told.setblocking(False)
                told.sendto("\n".join(lines).encode(), path)
        except OSError as error:
            logger.warning("the service manager at %s cannot be told: %s", self._address, error)

    def starting(self, done: int, total: int) -> None:
        """The log is being recovered; a start may take long then."""
        share = f"{done * 100 // total} %" if total else f"{done} bytes"
        self._tell(
            f"STATUS=recovering the log: {share}", f"EXTEND_TIMEOUT_USEC={_MORE_TIME * 1_000_000}"
        )

    def ready(self, status: str) -> None:
        """Everything is served."""
        self._tell("READY=1", f"STATUS={status}")

    def closing(self, why: str) -> None:
        """The end has begun."""
        self._tell(
            "STOPPING=1", f"STATUS={why}: closing", f"EXTEND_TIMEOUT_USEC={_MORE_TIME * 1_000_000}"
        )

    async def live(self) -> None:
        """Give signs of life as long as the loop turns, if they are wanted."""
        if self.watchdog is None or not self._address:
            return
        while True:
            self._tell("WATCHDOG=1")
            await trio.sleep(self.watchdog / 3)
