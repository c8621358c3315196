"""Building what the index lacks, while the store is open already.

After a kill that may be millions of records, and after a time without index files that
can be written all that came meanwhile. The builder follows the log until it has caught
up with the messages that are appended; from then on these note themselves. Lookups wait
for it, or say that the index is being built. What of the log cannot be read is tried
again and then set aside as for each `Follower`; the records behind it are indexed.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.following.unreadable import Place
from rocketmq_sdk.broker_embedded.store.recovery.behind import next_record
from rocketmq_sdk.broker_embedded.store.recovery.log_scanner import LogScanner
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.following.follower import Follower
    from rocketmq_sdk.broker_embedded.store.index.service import IndexService
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
    from rocketmq_sdk.broker_embedded.store.log.record import RecordHead
    from rocketmq_sdk.broker_embedded.store.queues.queue_dispatcher import QueueDispatcher

_log = logging.getLogger(__name__)
_AT_A_TIME: Final = 1000
_PER_SLICE: Final = 50
_WRITE_AT_BYTES: Final = 1024 * 1024
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 30.0


class IndexBuilder:
    """Builds the index from the position where it ends up to the end of the log."""

    def __init__(
        self,
        files: FileSystem,
        log: CommitLog,
        index: IndexService,
        dispatcher: QueueDispatcher,
        follower: Follower,
    ) -> None:
        self._files = files
        self._follower = follower
        self._log = log
        self._index = index
        self._dispatched = dispatcher.dispatched
        self._busy = trio.Lock()
        self._retry = 0.0
        self._failed_at: Place | None = None
        self._one_by_one = False
        self.problem: StoreError | None = None
        """Why nothing is built for now; the next try may change it."""

    async def serve(self) -> None:
        """Build whenever the index falls behind, until cancelled."""
        if self._index.lacks_from is not None:
            await self.run()  # it was begun before an error ended this task
        while True:
            await self._index.behind.wait()
            self._index.behind = trio.Event()
            await self.run()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Build until the index has caught up; cancellation leaves it for later."""
        index, wait = self._index, _FIRST_WAIT
        async with self._busy:
            if index.lacks_from is None:
                return
            _log.info("the index is built from %d to %d", index.lacks_from, self._dispatched.value)
            if index.sync_failure is not None:
                # It may fail again after all has been built.
                self._tell(index.sync_failure)
                await trio.sleep(_LONGEST_WAIT)
            while True:
                try:
                    if await self._build():
                        break
                except StoreError as error:
                    self._tell(error)
                    self._retry, retry = 0.0, self._retry
                    await trio.sleep(retry or wait)
                    wait = min(2 * wait, _LONGEST_WAIT)
                else:
                    self.problem, wait = None, _FIRST_WAIT
            self.problem = None
            _log.info("the index is complete up to %d", self._dispatched.value)

    def _tell(self, error: StoreError) -> None:
        if self.problem is None:
            _log.warning("the index is not built for now: %s", error)
        self.problem = error

    async def _build(self) -> bool:
        """Index the records up to where the log ends now; True when nothing is missing.

        Raises `StoreError`; a later call continues.
        """
        index, log = self._index, self._log
        await index.mend()
        position = index.lacks_from = max(index.lacks_from or 0, log.min_position)
        log.write_out()
        end = self._dispatched.value
        if position >= end:
            index.completed()  # in one step with the look at the end
            return True
        scanner = LogScanner(log.chain, check_crc=False, one_by_one=self._one_by_one)
        records = scanner.records(position)
        while heads := await self._read(records, end):
            for start in range(0, len(heads), _PER_SLICE):
                await index.add_all(heads[start : start + _PER_SLICE])
            if index.files and index.files[-1].unwritten_bytes >= _WRITE_AT_BYTES:
                await index.flush(thorough=False)
        if heads is None:
            return False
        index.lacks_from = max(index.lacks_from, min(scanner.end, end))
        if index.lacks_from == position:
            place = Place(position=position)
            self._follower.give_up(place, "no record begins there")
            await self._pass_over(place, end)
        return False

    async def _read(self, records: Iterator[RecordHead], end: int) -> list[RecordHead] | None:
        """Some records before a position. Raises `StoreError`.

        None when the first one could not be read; it was tried often enough and is left
        out, or not tried without the others yet.
        """
        place = Place(position=self._index.lacks_from or 0)
        try:
            found = await self._files.run(lambda: _some(records, end))
        except StoreError as error:
            if not self._one_by_one:
                self._one_by_one = True
                return None
            delay = await self._follower.failed(place, error)
            if delay is not None:
                self._retry, self._failed_at = delay, place
                raise
            await self._pass_over(place, end)
            return None
        if self._failed_at is not None:
            self._follower.went_well(self._failed_at)
            self._failed_at = None
        if len(found) == _AT_A_TIME:
            self._one_by_one = False
        return found

    async def _pass_over(self, place: Place, end: int) -> None:
        """Go on with the next record, or at the end of the file."""
        self._one_by_one = False
        file = self._log.chain.find(place.position)
        if file is None:
            self._index.lacks_from = end
            return
        limit = min(file.end, end)
        behind = await self._files.run(lambda: next_record(file, place.position + 1, limit))
        self._index.lacks_from = limit if behind is None else behind
        _log.error(
            "%s is not in the index from %d to %d",
            file.file.path,
            place.position,
            self._index.lacks_from,
        )


def _some(records: Iterator[RecordHead], end: int) -> list[RecordHead]:
    """The next records before a position, those in front of one that cannot be read.

    Raises `StoreError` when that is the first one.
    """
    found: list[RecordHead] = []
    try:
        for head in islice(records, _AT_A_TIME):
            if head.position >= end:
                break
            found.append(head)
    except StoreError:
        if not found:
            raise
    return found
