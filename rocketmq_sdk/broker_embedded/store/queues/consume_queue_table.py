"""All queues of a store (`ConsumeQueueStore` of Apache RocketMQ 5.4.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.log.record import MAX_TOPIC_BYTES, is_directory_name
from rocketmq_sdk.broker_embedded.store.queues.batch_consume_queue import (
    BATCH_DIRECTORY,
    BatchConsumeQueue,
)
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import DIRECTORY, ConsumeQueue
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_ext import DIRECTORY as EXT_DIRECTORY
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_ext import ConsumeQueueExt
from rocketmq_sdk.broker_embedded.store.queues.removed_queues import (
    MAX_QUEUE_ID,
    RemovedQueues,
    queue_directories,
    topic_directories,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

MULTI_DISPATCH_PREFIX = "%LMQ%"
Queue = ConsumeQueue | BatchConsumeQueue


def is_rebuilt(topic: str) -> bool:
    """Whether the queues of a topic can be built from the log.

    Apache's broker alone can do that for the queues of multi dispatch.
    """
    return not topic.startswith(MULTI_DISPATCH_PREFIX)


class ConsumeQueueTable:
    """Topic → queue id → queue."""

    __slots__ = (
        "_batch_file_size",
        "_ext_enabled",
        "_ext_file_size",
        "_file_size",
        "_files",
        "_has_ext_directory",
        "batch_topics",
        "dirty",
        "in_doubt",
        "is_batch_topic",
        "queues",
        "removed",
        "unsynced",
    )

    def __init__(self, files: FileSystem, config: StoreConfig) -> None:
        self._files = files
        self._has_ext_directory = False
        self._file_size = config.mapped_file_size_consume_queue
        self._ext_file_size = config.mapped_file_size_consume_queue_ext
        self._ext_enabled = config.enable_consume_queue_ext
        self._batch_file_size = config.mapper_file_size_batch_consume_queue
        self.queues: dict[str, dict[int, Queue]] = {}
        self.removed = RemovedQueues(files)
        """The directories of deleted topics."""
        self.dirty: list[Queue] = []
        """Queues with units that the file system does not have."""
        self.unsynced: dict[Queue, None] = {}
        self.in_doubt = False
        """Whether files of any queue may not have a durable name."""
        self.batch_topics: set[str] = set()
        """The known topics with batch consume queues (`queue.type=BatchCQ`)."""
        self.is_batch_topic: Callable[[str], bool] = self.batch_topics.__contains__
        """Asked before the first queue of a topic is made."""

    def __iter__(self) -> Iterator[Queue]:
        for queues in self.queues.values():
            yield from queues.values()

    def load(self, *, mend: bool = False) -> None:
        """Find the queues; changes nothing unless `mend` (see `FileChain.load`).

        Raises `StoreCorruptError`.
        """
        for parent in (BATCH_DIRECTORY, DIRECTORY, EXT_DIRECTORY):
            self.removed.find(parent)
        self.batch_topics.update(topic_directories(self._files.directory_names(BATCH_DIRECTORY)))
        self._has_ext_directory = self._files.exists(EXT_DIRECTORY)
        self.in_doubt = mend
        for directory in (BATCH_DIRECTORY, DIRECTORY):
            for topic in topic_directories(self._files.directory_names(directory)):
                if (topic in self.batch_topics) is not (directory == BATCH_DIRECTORY):
                    continue
                names = self._files.directory_names(f"{directory}/{topic}")
                for queue_id in queue_directories(names):
                    self._add(topic, queue_id).load(mend=mend)

    def find_ends(self, log_start: int, *, clean: bool) -> None:
        """Find the last unit of each queue and the first one, and drop what follows.

        The first one is that whose record is in a log that begins at `log_start`.
        """
        for queue in self:
            if is_rebuilt(queue.topic):
                queue.drop_behind_gap()
            queue.find_end(clean=clean)
            queue.correct_min_offset(log_start)

    def forget_from(self, physical_offset: int) -> None:
        """Forget the units of records from a position on, which are rebuilt.

        Call `trim` afterwards. Units that only Apache's broker can build stay.
        """
        for topic, queues in self.queues.items():
            if is_rebuilt(topic):
                for queue in queues.values():
                    queue.forget(physical_offset)

    def trim(self) -> None:
        """Drop from the files what follows the last units."""
        for queue in self:
            queue.trim()

    def finish_deletions(self, positions: Mapping[str, int]) -> None:
        """Finish interrupted deletions of topics, by topic and log position."""
        for topic, position in positions.items():
            queues = self.queues.get(topic)
            if queues and all(queue.max_physical <= position for queue in queues.values()):
                self.sync_directories(self.delete_topic(topic))

    def settle_extensions(self) -> None:
        """Cut the extensions after the last units. Raises `StoreError`."""
        for queue in self:
            if isinstance(queue, ConsumeQueue):
                queue.settle_ext()

    def doubt_contents(self) -> None:
        """Let the next sync cover all units.

        An earlier process may have written them and died before it synced them.
        """
        for queue in self:
            if queue.doubt_contents():
                self.unsynced[queue] = None

    def settle(self) -> None:
        """Make the removal of files durable. Raises `StoreError`."""
        self.sync_directories(self.unsettled(removals=True))

    def unsettled(self, *, removals: bool = False) -> list[str]:
        """All directories to sync, as `UnitChain.unsettled`; each one once."""
        found = {path for queue in self for path in queue.unsettled(removals=removals)}
        return sorted(found, key=lambda path: (path == ".", -path.count("/"), path))

    def sync_directories(self, directories: list[str]) -> None:
        """Sync what `unsettled` found; may run in a thread. Raises `StoreError`."""
        for path in directories:
            self._files.sync_directory(path)

    def _add(self, topic: str, queue_id: int) -> Queue:
        queue: Queue
        if topic in self.batch_topics:
            queue = BatchConsumeQueue(self._files, topic, queue_id, self._batch_file_size)
        else:
            wanted = self._ext_enabled or (
                self._has_ext_directory
                and self._files.exists(f"{EXT_DIRECTORY}/{topic}/{queue_id}")
            )
            ext = (
                ConsumeQueueExt(self._files, topic, queue_id, self._ext_file_size)
                if wanted
                else None
            )
            queue = ConsumeQueue(self._files, topic, queue_id, self._file_size, ext)
        self.queues.setdefault(topic, {})[queue_id] = queue
        return queue

    def find(self, topic: str, queue_id: int) -> Queue | None:
        """The queue, if there is one."""
        queues = self.queues.get(topic)
        return None if queues is None else queues.get(queue_id)

    def obtain(self, topic: str, queue_id: int) -> Queue | None:
        """The queue, made when it is missing.

        None when topic or id cannot name a queue.
        """
        queue = self.find(topic, queue_id)
        if queue is None:
            if not 0 <= queue_id <= MAX_QUEUE_ID or not is_directory_name(topic):
                return None
            try:
                if len(topic.encode()) > MAX_TOPIC_BYTES:
                    return None
            except UnicodeEncodeError:
                return None
            if topic not in self.queues and self.is_batch_topic(topic):
                self.batch_topics.add(topic)
            queue = self._add(topic, queue_id)
        return queue

    def mark_dirty(self, queue: Queue) -> None:
        """Remember that a queue has units to write."""
        if not queue.dirty:
            queue.dirty = True
            self.dirty.append(queue)

    def write_out(self, queue: Queue) -> None:
        """Write the units of one queue. Raises `StoreError`."""
        if not queue.removed:
            queue.write_out()
            self.unsynced[queue] = None
        queue.dirty = False

    def delete_topic(self, topic: str) -> list[str]:
        """Drop the queues of a topic with their files. Raises `StoreError`.

        That is durable when the directories it returns are synced.
        """
        queues = self.queues.pop(topic, None)
        if queues is None:
            return []
        for queue in queues.values():
            queue.leave_files()
            self.unsynced.pop(queue, None)
        parents = (BATCH_DIRECTORY if topic in self.batch_topics else DIRECTORY, EXT_DIRECTORY)
        self.batch_topics.discard(topic)
        return [parent for parent in parents if self.removed.put_away(parent, topic)]

    def clear(self) -> None:
        """Drop all queues, durably. Raises `StoreError`."""
        for topic in list(self.queues):
            self.sync_directories(self.delete_topic(topic))

    def max_physical(self) -> int:
        """The largest end of a record in any queue; 0 without any."""
        return max((queue.max_physical for queue in self), default=0)

    def truncate(self, physical_end: int) -> None:
        """Drop units after the end of the log."""
        for queue in self:
            queue.truncate(physical_end)

    def correct_min_offsets(self, min_physical: int) -> None:
        """Bring the lowest offsets of all queues in line with the oldest log file."""
        for queue in self:
            queue.correct_min_offset(min_physical)

    def pass_empty(self) -> None:
        """Let no queue begin with units that a power cut left empty."""
        for queue in self:
            if isinstance(queue, ConsumeQueue):
                queue.pass_empty()

    def close(self) -> None:
        """Close all descriptors."""
        for queue in self:
            queue.close()
