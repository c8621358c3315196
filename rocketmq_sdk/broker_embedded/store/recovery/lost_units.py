"""Units that queues should have and have not, because a file of theirs is missing.

A start takes the units in the files of a queue as they are, and reads of the log only
what they may lack by the checkpoint. A file that somebody removed shows in no
checkpoint: without its last file a queue ends earlier, without its first it begins
later, as after retention, and without any it is not there. Recovery asks here from
which position of the log on it has to read so that such queues are whole again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.log.record import is_dispatched
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import ConsumeQueue
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import is_rebuilt
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import ANYWHERE
from rocketmq_sdk.broker_embedded.store.recovery.log_scanner import LogScanner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain
    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import (
        ConsumeQueueTable,
        Queue,
    )
    from rocketmq_sdk.broker_embedded.store.recovery.clean_stop import CleanStopNote, NotedQueue

_log = logging.getLogger(__name__)
_NAMED: Final = 10
Key = tuple[str, int]


class LostUnits:
    """One look for them, after the ends of queues were found."""

    def __init__(
        self,
        log: FileChain,
        table: ConsumeQueueTable,
        note: CleanStopNote,
        deleted: Mapping[str, int],
        known_topics: Callable[[], Collection[str] | None],
    ) -> None:
        """`deleted` has deleted topics and the end of the log at that time.

        `known_topics` has all topics, if that can be told.
        """
        self._log = log
        self._table = table
        self._note = note
        self._deleted = deleted
        self._known_topics = known_topics
        self._told = 0

    def read_from(self) -> int | None:
        """From where on the log has to be read for them; None when nothing is missing.

        Clears queues that lack their first units or extensions, as units can only be
        added behind others. Raises `StoreError`.
        """
        positions = [*self._later(), *self._earlier(), *self._without_extension()]
        if self._told > _NAMED:
            _log.error("%d more queues lack units", self._told - _NAMED)
        return min(positions) if positions else None

    def _tell(self, key: Key, lacks: str) -> None:
        self._told += 1
        if self._told <= _NAMED:
            _log.error("%s queue %d lacks %s; built again from the log", *key, lacks)

    def _later(self) -> Iterator[int]:
        """Where to begin for queues that end too early."""
        start, noted = self._log.min_position, self._note.queues
        gone: list[tuple[Key, NotedQueue]] = []
        for key, had in noted.items():
            topic, queue_id = key
            if had.physical <= max(start, self._deleted.get(topic, 0)) or not is_rebuilt(topic):
                continue
            queue = self._table.find(topic, queue_id)
            if queue is None:
                gone.append((key, had))
            elif queue.max_offset < had.end:
                self._tell(key, f"the units from {queue.max_offset} to {had.end}")
                yield max(start, queue.max_physical)
        known = self._known_topics() if gone else None
        for key, had in gone:
            # Apache's broker may have deleted the topic.
            if known is None or key[0] in known:
                self._tell(key, f"all its units, {had.first} to {had.end}")
                yield start
        for queue in self._table:
            # Without a note that says so, a full last file may have had a follower.
            if queue.may_lack_later and is_rebuilt(queue.topic) and not self._is_noted(queue):
                yield max(start, queue.max_physical)

    def _is_noted(self, queue: Queue) -> bool:
        had = self._note.queues.get((queue.topic, queue.queue_id))
        return had is not None and had.end == queue.max_offset

    def _earlier(self) -> Iterator[int]:
        """Where to begin for queues that begin too late."""
        start = self._log.min_position
        doubtful: dict[Key, Queue] = {}
        end = start
        for queue in self._table:
            position = queue.may_lack_earlier
            key = queue.topic, queue.queue_id
            had = self._note.queues.get(key)
            if position is None or position <= start or not is_rebuilt(queue.topic):
                continue
            if had is None or had.first != queue.min_offset:
                doubtful[key] = queue
                end = max(end, position)
        if not doubtful:
            return
        for head in LogScanner(self._log, check_crc=False).records(start):
            if head.position >= end or not doubtful:
                return
            key = head.topic, head.queue_id
            found = doubtful.get(key)
            if (
                found is None
                or not is_dispatched(head.sys_flag)
                or head.position < self._deleted.get(head.topic, 0)
            ):
                continue
            if head.queue_offset < found.min_offset:
                self._tell(key, f"the units from {head.queue_offset} to {found.min_offset}")
                del doubtful[key]
                found.clear()
                yield head.position
            elif found.may_lack_earlier == ANYWHERE:
                del doubtful[key]  # this is its first record

    def _without_extension(self) -> Iterator[int]:
        """Where to begin for queues whose units point to nothing."""
        for queue in self._table:
            if (
                isinstance(queue, ConsumeQueue)
                and is_rebuilt(queue.topic)
                and queue.lacks_extension
            ):
                self._tell((queue.topic, queue.queue_id), "files of its extension")
                queue.clear()
                yield self._log.min_position
