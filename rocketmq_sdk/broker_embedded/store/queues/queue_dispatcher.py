"""The way of a record into its queue.

`ReputMessageService` and `CommitLogDispatcherBuildConsumeQueue` of Apache RocketMQ
5.4.0. In normal operation the append itself dispatches a message. Apache's service,
which reads the log after the appends, exists here only for the records that recovery
finds in the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.log.record import RecordHead, is_dispatched
from rocketmq_sdk.broker_embedded.store.messages import Arrival
from rocketmq_sdk.broker_embedded.store.queues.batch_consume_queue import (
    BatchConsumeQueue,
    BatchUnit,
)
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import MAX_QUEUE_OFFSET, ConsumeQueue
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.delay_levels import DelayLevels
from rocketmq_sdk.model.properties import (
    DELAY,
    INNER_NUM,
    TAGS,
    decode_properties,
    property_in_text,
)
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.subscription import tags_code
from rocketmq_sdk.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import (
        ConsumeQueueTable,
        Queue,
    )

_log = logging.getLogger(__name__)
_MAX_LONG = (1 << 63) - 1
_DIGITS = 10
_NOT_PLAIN = int(SysFlag.TRANSACTION_ROLLBACK | SysFlag.INNER_BATCH)
_TAGS = TAGS.encode()
MAX_INNER = 0x7FFF


def inner_count(properties: str, sys_flag: int) -> int:
    """How many messages a record of a batch consume queue holds."""
    text = property_in_text(properties, INNER_NUM) if sys_flag & SysFlag.INNER_BATCH else None
    count = (
        int(text)
        if text is not None and text.isascii() and text.isdecimal() and len(text) < _DIGITS
        else 1
    )
    return min(max(count, 1), MAX_INNER)


class QueueDispatcher:
    """Puts records into their queues and calls the listeners."""

    __slots__ = (
        "_levels",
        "_of_topics",
        "_watchers",
        "arrivals",
        "bit_map",
        "deleted_topics",
        "dispatched",
        "log_start",
        "table",
    )

    def __init__(self, table: ConsumeQueueTable, delay_levels: str) -> None:
        self.table = table
        self.arrivals: list[Callable[[Arrival], None]] = []
        self._of_topics: dict[str, list[Callable[[Arrival], None]]] = {}
        self._watchers: list[tuple[Collection[object], Callable[[Arrival], None]]] = []
        self.dispatched = Watermark()
        self.deleted_topics: Mapping[str, int] = {}
        """Deleted topics with the end of the log at that time.

        Records of the topic below that are in no queue.
        """
        self.log_start = 0
        """Where the log began when it was recovered.

        Units that point to earlier positions point to nothing.
        """
        self.bit_map: Callable[[str, Mapping[str, str]], bytes | None] | None = None
        """The bit map of the filters that a message passes, by topic and properties."""
        self._levels = DelayLevels(delay_levels)

    def deliver_code(self, properties: str, store_timestamp: int, code: int) -> int:
        """What a unit of the delay topic holds: the time when its record is due.

        For a record that names no level above 0 it is `code`, the tags code.
        """
        text = property_in_text(properties, DELAY)
        try:
            level = int(text) if text is not None else 0
        except ValueError:
            level = 0
        if level <= 0:
            return code
        return min(store_timestamp + self._levels.delay_ms(level), _MAX_LONG)

    def extended(
        self, queue: ConsumeQueue, code: int, store_timestamp: int, properties: str
    ) -> int:
        """What a unit holds in place of a tags code.

        The address of the extension with it and a bit map, if the queue has extensions.
        """
        if queue.ext is None:
            return code
        bits = (
            self.bit_map(queue.topic, decode_properties(properties))
            if self.bit_map is not None
            else None
        )
        address = queue.ext.put(code, store_timestamp, bits or b"")
        return code if address is None else address

    def listen(
        self,
        listener: Callable[[Arrival], None],
        *,
        topic: str | None = None,
        waiting: Collection[object] | None = None,
    ) -> None:
        """Add a listener for some arrivals or for all of them.

        It is called for messages of `topic` only, or only while `waiting` is not empty.
        """
        if topic is not None:
            self._of_topics.setdefault(topic, []).append(listener)
        elif waiting is not None:
            self._watchers.append((waiting, listener))
        else:
            self.arrivals.append(listener)

    def is_heard(self, topic: str) -> bool:
        """Whether anybody listens to messages of a topic now.

        Every message asks, and mostly nobody does.
        """
        if self.arrivals or topic in self._of_topics:
            return True
        # A generator would cost more than the loop.
        for waiting, _listener in self._watchers:  # noqa: SIM110
            if waiting:
                return True
        return False

    def tell(
        self,
        queue: Queue,
        offset: int,
        code: int,
        store_timestamp: int,
        physical_offset: int,
        size: int,
        properties: str,
    ) -> None:
        """Call the listeners for a message that can be read now.

        Their errors are logged and stop nothing.
        """
        arrival = Arrival(
            queue.topic,
            queue.queue_id,
            offset,
            code,
            store_timestamp,
            physical_offset,
            size,
            properties,
        )
        listeners = [
            *self.arrivals,
            *self._of_topics.get(queue.topic, ()),
            *[listener for waiting, listener in self._watchers if waiting],
        ]
        for listener in listeners:
            try:
                listener(arrival)
            except Exception:  # noqa: BLE001
                # The message is stored; a listener must not turn that into a failed
                # put.
                _log.exception(
                    "a listener for arrivals failed at %s queue %d offset %d",
                    queue.topic,
                    queue.queue_id,
                    offset,
                    extra=about(topic=queue.topic, queue=queue.queue_id),
                )

    def rebuild(self, head: RecordHead, *, from_start: bool) -> bool:
        """Put a record found in the log into its queue, unless the queue has it.

        False when the queue lacks earlier records that an older part of the log may
        hold; with `from_start` there is no older part.
        """
        position, size, queue_id, offset, _, sys_flag, stored, topic, properties = head
        queues = self.table.queues.get(topic)
        known = None if queues is None else queues.get(queue_id)
        if known is not None and position + size <= known.max_physical:
            return True
        if sys_flag & _NOT_PLAIN and not is_dispatched(sys_flag):
            return True
        if position < self.deleted_topics.get(topic, 0):
            return True
        if (
            type(known) is ConsumeQueue
            and offset == known.end
            and known.ext is None
            and not known.is_schedule
            and not sys_flag & _NOT_PLAIN
        ):
            # The short way, for nearly every record in nearly every queue.
            known.append(position, size, self.code_of(known, head) if _TAGS in properties else 0)
            if not known.dirty:
                self.table.mark_dirty(known)
            return True
        if head.sys_flag & SysFlag.INNER_BATCH and head.topic not in self.table.queues:
            self.table.batch_topics.add(head.topic)
        queue = known or self.table.obtain(topic, queue_id)
        if queue is None or position + size <= queue.max_physical:
            return True
        if isinstance(queue, ConsumeQueue) and head.sys_flag & SysFlag.INNER_BATCH:
            return True
        if offset != queue.max_offset:
            if offset > queue.max_offset and not from_start:
                return False
            if not self._bridge(queue, offset, head.position):
                return True
        if isinstance(queue, BatchConsumeQueue):
            text = properties.decode("utf-8", "replace")
            code = tags_code(property_in_text(text, TAGS))
            count = inner_count(text, sys_flag)
            queue.append_unit(BatchUnit(position, size, code, stored, offset, count))
        else:
            code = self.code_of(queue, head)
            if queue.ext is not None:
                text = properties.decode("utf-8", "replace")
                code = self.extended(queue, code, stored, text)
            queue.append(position, size, code)
        self.table.mark_dirty(queue)
        return True

    def _bridge(self, queue: Queue, offset: int, position: int) -> bool:
        """Prepare a queue for a record whose offset is not the next one.

        False when the record is left out.
        """
        where = queue.topic, queue.queue_id
        fields = about(topic=queue.topic, queue=queue.queue_id)
        if offset > MAX_QUEUE_OFFSET:
            _log.error(
                "the record at %d claims the impossible offset %d in %s queue %d; left out",
                position,
                offset,
                *where,
                extra=fields,
            )
            return False
        if offset > queue.max_offset:
            if queue.max_physical <= self.log_start:
                queue.clear()
                if isinstance(queue, ConsumeQueue):
                    queue.start_at(offset)
            else:
                _log.error(
                    "%s queue %d ends at %d, the next record (at %d) has the offset %d",
                    *where,
                    queue.max_offset,
                    position,
                    offset,
                    extra=fields,
                )
            return True
        if isinstance(queue, ConsumeQueue) and queue.end - queue.first == 1 and queue.first > 0:
            _log.error(
                "%s queue %d begins at offset %d: %s %d; left out",
                *where,
                offset,
                "the record in front of it, the first one, claimed",
                queue.first,
                extra=fields,
            )
            queue.clear()
            queue.start_at(offset)
            return True
        if offset == 0:
            _log.warning("%s queue %d begins again at position %d", *where, position, extra=fields)
            queue.clear()
            return True
        _log.warning(
            "%s queue %d: the record at %d repeats the offset %d; left out",
            *where,
            position,
            offset,
            extra=fields,
        )
        return False

    def code_of(self, queue: ConsumeQueue, head: RecordHead) -> int:
        """The tags code of a queue unit: the hash of the tag.

        In the delay topic, the time of delivery.
        """
        text = head.properties.decode("utf-8", "replace")
        code = tags_code(property_in_text(text, TAGS))
        return self.deliver_code(text, head.store_timestamp, code) if queue.is_schedule else code
