"""What a crash must not undo: how far groups have popped.

Offsets are written every few seconds, checkpoints are in the log at once. So at each
start the positions of groups are raised above what the checkpoints say was handed out
since the offsets were written; what is due comes back through revival, not by being
read again. Two things make that sound. Offsets are written only behind the part of the
log that they rest on, so that after a power cut no offset has passed messages whose
checkpoint is gone. And a small file of its own remembers where the log ended when the
offsets were taken, so that a start reads only what came after. (Apache's broker does
neither: it pops those messages again.)
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.pop.records import COMPLETE
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.errors import ProtocolError, StoreError
from rocketmq_sdk.model.properties import ORIGIN_GROUP, REAL_TOPIC, property_in_text
from rocketmq_sdk.names import RETRY_PREFIX, TIMER_TOPIC
from rocketmq_sdk.protocol.bodies.pop_records import CHECKPOINT_TAG, PopCheckPoint
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.tables.groups import GroupManager
    from rocketmq_sdk.broker_embedded.tables.offsets import ConsumerOffsetManager
    from rocketmq_sdk.broker_embedded.tables.topics import TopicManager
    from rocketmq_sdk.model.received import ReceivedMessage

logger = logging.getLogger(__name__)

FILE_NAME: Final = "popProgress.json"
_POSITION: Final = "physicalOffset"
_BEFORE: Final = "physicalOffsetBefore"
_UNWRITTEN: Final = "\0"
_CHECKPOINT_CODE: Final = tags_code(CHECKPOINT_TAG)

QueueKey = tuple[str, str, int]
"""Topic, group, queue id."""
Identity = tuple[str, int, int, int, str]
"""What a copy in a retry topic shares with a second copy of the same message."""


class PopProgress:
    """Tracks the log around writes of the offset file.

    `activity` counts what pop has put into the log. `position` and `before` are the
    ends of the log at the last write of the offsets and at the one before; 0 when
    unknown.
    """

    __slots__ = ("_activity", "_file", "_store", "_written", "before", "position")

    def __init__(self, store: MessageStore, activity: Callable[[], int]) -> None:
        self._store = store
        self._activity = activity
        self._written = 0
        self._file = ConfigFile(store.files, FILE_NAME)
        self.position = 0
        self.before = 0

    def load(self) -> None:
        """Read the file."""
        found = self._file.load()
        values = (
            [found.get(name) for name in (_POSITION, _BEFORE)]
            if isinstance(found, dict)
            else [0, 0]
        )
        end = self._store.max_physical_offset
        self.position, self.before = (
            value if isinstance(value, int) and 0 <= value <= end else 0 for value in values
        )

    @asynccontextmanager
    async def _around(self, position: int, activity: int) -> AsyncIterator[None]:
        if activity == self._written:
            yield
            return
        await self._store.secure(position, replicated=False)
        yield
        before = self.position
        await self._file.save({_POSITION: position, _BEFORE: before})
        self._written, self.position, self.before = activity, position, before

    def writing(self) -> AbstractAsyncContextManager[None]:
        """Context around writing the offsets as they are now.

        Raises `StoreError` when the log cannot be made durable.
        """
        return self._around(self._store.max_physical_offset, self._activity())


def _since(
    store: MessageStore, topic: str, queue_id: int, position: int, end: int | None = None
) -> Iterator[tuple[int, int, int]]:
    """Queue units whose records lie behind a log position, oldest first.

    Only those before the offset `end`.
    """
    low = store.min_offset(topic, queue_id)
    high = end = store.max_offset(topic, queue_id) if end is None else end
    while low < high:
        middle = (low + high) // 2
        unit = store.queue_unit(topic, queue_id, middle)
        if unit is not None and unit[0] < position:
            low = middle + 1
        else:
            high = middle
    for offset in range(low, end):
        unit = store.queue_unit(topic, queue_id, offset)
        if unit is not None and unit[0] >= position:
            yield unit


def _messages(
    store: MessageStore, units: Iterator[tuple[int, int, int]]
) -> Iterator[tuple[int, ReceivedMessage]]:
    for position, size, _code in units:
        try:
            record = store.record_at(position, size)
        except StoreError as error:
            logger.error("a record of pop cannot be read at the start; it is left out: %s", error)
            continue
        if record is None:
            continue
        try:
            yield position, decode_message(record, inflate=False)
        except ProtocolError:
            continue


async def raise_positions(
    store: MessageStore,
    topics: TopicManager,
    groups: GroupManager,
    offsets: ConsumerOffsetManager,
    revive_topic: str,
    since: int,
) -> None:
    """Raise the offsets of groups by the checkpoints behind a log position.

    One that is complete raises an offset above all it covers. Others raise it as far as
    they leave no gap: those of changed invisible times, of pops behind what was in
    memory only and may be gone, and all of Apache's. A checkpoint raises nothing when
    its topic or group is gone, or when it is from a topic's earlier life.
    """
    passed: dict[QueueKey, int] = {}
    taken: dict[QueueKey, set[int]] = {}
    found: list[tuple[QueueKey, PopCheckPoint, bool]] = await store.files.run(
        partial(list, _checkpoints_since(store, revive_topic, since))
    )
    for key, checkpoint, complete in found:
        topic, group, _queue_id = key
        if topics.get(topic) is None or groups.find_existing(group) is None:
            continue
        if complete:
            passed[key] = max(passed.get(key, -1), checkpoint.offset_at(checkpoint.count - 1) + 1)
        else:
            taken.setdefault(key, set()).update(
                checkpoint.offset_at(index) for index in range(checkpoint.count)
            )
    for key in {**passed, **taken}:
        topic, group, queue_id = key
        before, others = offsets.query(group, topic, queue_id), taken.get(key, set())
        # A group whose first offset was never written began at the least one; where it
        # is told to begin elsewhere, that is written at once.
        least = before if before >= 0 else store.min_offset(topic, queue_id)
        reached = max(least, passed.get(key, -1))
        while reached in others:
            reached += 1
        if reached > least:
            offsets.commit(group, topic, queue_id, reached)


def _checkpoints_since(
    store: MessageStore, revive_topic: str, since: int
) -> Iterator[tuple[QueueKey, PopCheckPoint, bool]]:
    """The checkpoints behind a log position, and whether they are complete.

    They are those of existing messages that lie before that position.
    """
    queues = [
        (TIMER_TOPIC, 0),
        *((revive_topic, queue_id) for queue_id in store.queue_ids(revive_topic)),
    ]
    for name, queue_id in queues:
        units = (
            unit for unit in _since(store, name, queue_id, since) if unit[2] == _CHECKPOINT_CODE
        )
        for position, message in _messages(store, units):
            text = message.properties_bytes.decode("utf-8", "replace")
            if name == TIMER_TOPIC and property_in_text(text, REAL_TOPIC) != revive_topic:
                continue
            try:
                checkpoint = PopCheckPoint.decode(message.body)
            except ProtocolError:
                continue
            if not checkpoint.count:
                continue
            topic, queue_id = checkpoint.topic, checkpoint.queue_id
            unit = store.queue_unit(topic, queue_id, checkpoint.offset_at(checkpoint.count - 1))
            if unit is not None and unit[0] < position:
                yield (
                    (topic, checkpoint.group, queue_id),
                    checkpoint,
                    property_in_text(text, COMPLETE) is not None,
                )


def checkpoints_before(
    store: MessageStore, topic: str, queue_id: int, since: int, end: int
) -> Iterator[PopCheckPoint]:
    """The checkpoints in a revive queue behind a log position and before an offset."""
    units = (
        unit for unit in _since(store, topic, queue_id, since, end) if unit[2] == _CHECKPOINT_CODE
    )
    for _position, message in _messages(store, units):
        try:
            yield PopCheckPoint.decode(message.body)
        except ProtocolError:
            continue


def revived_copies(store: MessageStore, since: int) -> Counter[Identity]:
    """The copies that revival put into retry topics behind a log position."""
    found: Counter[Identity] = Counter()
    for topic in store.topics():
        if topic.startswith(RETRY_PREFIX):
            for queue_id in store.queue_ids(topic):
                for _position, message in _messages(store, _since(store, topic, queue_id, since)):
                    text = message.properties_bytes.decode("utf-8", "replace")
                    if property_in_text(text, ORIGIN_GROUP) is not None or text.endswith(
                        _UNWRITTEN
                    ):
                        found[
                            identity_of(
                                topic, message, message.reconsume_times, message.properties_bytes
                            )
                        ] += 1
    return found


def is_torn(found: Identity, wanted: Identity) -> bool:
    """Whether a copy is the expected one with the end of its properties missing."""
    return (
        found[:4] == wanted[:4]
        and found[4].endswith(_UNWRITTEN)
        and wanted[4].startswith(found[4].rstrip(_UNWRITTEN))
    )


def identity_of(
    topic: str, message: ReceivedMessage, reconsume_times: int, properties: bytes
) -> Identity:
    """What tells a copy from others."""
    return (
        topic,
        message.born_timestamp,
        message.body_crc,
        reconsume_times,
        properties.decode("utf-8", "replace"),
    )
