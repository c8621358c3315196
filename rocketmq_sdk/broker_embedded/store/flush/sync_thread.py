"""The thread that syncs the log with SYNC_FLUSH.

It lives as long as its store: a round costs one system call on each side and no search
for a thread, and the next round begins as soon as the last one has ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from queue import Empty
from typing import TYPE_CHECKING

import attrs
import trio

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem, Mailbox


@attrs.frozen
class SyncRound:
    """What one sync makes durable."""

    target: int
    """The position up to which the log is durable afterwards."""
    timestamp: int
    """Store time of the last message before that position."""
    sync: Callable[[], None]


class SyncThread:
    """Runs rounds one at a time, always the newest one.

    A round covers those that were submitted before it and have not begun. `done` is
    called on the loop's thread for every round that ran, with the exception it raised;
    after the first exception no round runs.
    """

    def __init__(
        self, files: FileSystem, done: Callable[[SyncRound, BaseException | None], None]
    ) -> None:
        self._done = done
        self._token = trio.lowlevel.current_trio_token()
        self._rounds, self._join = files.start_thread("rocketmq log sync", self._run)

    def submit(self, sync_round: SyncRound) -> None:
        """Run a round as soon as the current one has ended."""
        self._rounds.put(sync_round)

    async def aclose(self) -> None:
        """End the thread after its current round."""
        self._rounds.put(None)
        await self._join()

    @staticmethod
    def _newest(rounds: Mailbox) -> SyncRound | None:
        newest: SyncRound | None = rounds.get()
        with contextlib.suppress(Empty):
            while newest is not None:
                newest = rounds.get_nowait()
        return newest

    def _run(self, rounds: Mailbox) -> None:
        failure: BaseException | None = None
        # The loop may have ended without closing the store.
        with contextlib.suppress(trio.RunFinishedError):
            while failure is None and (sync_round := self._newest(rounds)) is not None:
                try:
                    sync_round.sync()
                except BaseException as error:  # noqa: BLE001 - handed over
                    failure = error
                self._token.run_sync_soon(self._done, sync_round, failure)
