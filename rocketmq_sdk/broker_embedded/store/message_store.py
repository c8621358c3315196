"""The message store (first cut: in memory only)."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files import FileSystem
from rocketmq_sdk.broker_embedded.store.types import Arrival, GetResult, GetStatus, MessageFilter, MessageToStore, PutResult, PutStatus
from rocketmq_sdk.clock import Clock
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.model.properties import decode_properties
from rocketmq_sdk.protocol.batch_codec import decode_batch
from rocketmq_sdk.protocol.message_codec import encode_record
from rocketmq_sdk.watermark import Watermark


class MessageStore:
    """Appends messages and reads them by queue offset."""

    def __init__(self, config: StoreConfig, files: FileSystem, clock: Clock, store_host: bytes) -> None:
        self._config = config
        self._clock = clock
        self._store_host = store_host
        self._position = 0
        self._records: dict[int, bytes] = {}
        self._queues: dict[str, dict[int, list[tuple[int, int, int, int]]]] = {}
        self._properties: dict[int, str] = {}
        self.arrivals: list[Callable[[Arrival], None]] = []
        self.flushed = Watermark()
        self.dispatched = Watermark()
        self.writable = True
        self.needs_wait = False
        self.min_physical_offset = 0

    @property
    def max_physical_offset(self) -> int:
        return self._position

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.writable = False

    def flush_appends(self) -> None:
        """Hand everything appended to the operating system."""

    def put(self, message: MessageToStore) -> PutResult:
        if not self.writable:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        if len(message.body) > self._config.max_message_size or len(message.topic) > 255:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        properties = message.properties.encode()
        if len(properties) > 32767:
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
        units = self._queues.setdefault(message.topic, {}).setdefault(message.queue_id, [])
        now = self._clock.now_ms()
        position = self._position
        record = encode_record(
            message.topic.encode(),
            message.body,
            properties,
            queue_id=message.queue_id,
            flag=message.flag,
            queue_offset=len(units),
            physical_offset=position,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=now,
            store_host=message.store_host or self._store_host,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
        )
        size = len(record)
        self._records[position] = record
        self._properties[position] = message.properties
        self._position = position + size
        offset = len(units)
        units.append((position, size, message.tags_code, now))
        for listener in self.arrivals:
            listener(Arrival(message.topic, message.queue_id, offset, message.tags_code, now, position, size, message.properties))
        return PutResult(PutStatus.PUT_OK, position, size, offset, now)

    def put_batch(self, message: MessageToStore) -> PutResult:
        results = []
        for flag, body, properties in decode_batch(message.body):
            part = MessageToStore(
                message.topic,
                message.queue_id,
                body,
                properties.decode(),
                flag=flag,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=message.born_host,
                reconsume_times=message.reconsume_times,
            )
            results.append(self.put(part))
        first = results[0]
        total = sum(result.size for result in results)
        return PutResult(
            first.status, first.physical_offset, total, first.queue_offset, first.store_timestamp, len(results), [r.physical_offset for r in results]
        )

    async def wait_durable(self, result: PutResult, *, wait_store_ok: bool = True) -> PutStatus:
        return result.status

    def get(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int = 1 << 27, message_filter: MessageFilter | None = None
    ) -> GetResult:
        units = self._queues.get(topic, {}).get(queue_id)
        if not units:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE)
        end = len(units)
        if offset < 0:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, 0, 0, end)
        if offset >= end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE if offset == end else GetStatus.OFFSET_OVERFLOW_BADLY, end, 0, end)
        parts: list[bytes] = []
        total = 0
        limit = min(max_bytes, 262144)
        position = offset
        while position < end and position - offset < 800 and len(parts) < min(max_count, 32):
            physical, size, code, _time = units[position]
            if parts and total + size > limit:
                break
            position += 1
            if message_filter is not None:
                if not message_filter.matches_tags_code(code):
                    continue
                if message_filter.needs_properties and not message_filter.matches_record(decode_properties(self._properties[physical])):
                    continue
            parts.append(self._records[physical])
            total += size
        return GetResult(GetStatus.FOUND if parts else GetStatus.NO_MATCHED_MESSAGE, position, 0, end, b"".join(parts), len(parts))

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        return False

    async def get_cold(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int = 1 << 27, message_filter: MessageFilter | None = None
    ) -> GetResult:
        return self.get(topic, queue_id, offset, max_count, max_bytes, message_filter)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self._queues.get(topic, {}).get(queue_id, ()))

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER) -> int:
        units = self._queues.get(topic, {}).get(queue_id, [])
        return next((index for index, unit in enumerate(units) if unit[3] >= timestamp), len(units))

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        units = self._queues.get(topic, {}).get(queue_id, [])
        return units[offset][3] if 0 <= offset < len(units) else -1

    def earliest_store_time(self) -> int:
        return -1

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        return self._records.get(physical_offset)

    def queue_unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        units = self._queues.get(topic, {}).get(queue_id, [])
        return units[offset][:3] if 0 <= offset < len(units) else None

    def delete_topic(self, topic: str) -> None:
        self._queues.pop(topic, None)

    def topics(self) -> set[str]:
        return set(self._queues)

    def statistics(self) -> dict[str, int]:
        return {"max_physical_offset": self._position}
