"""Several records for one write: messages that have to be appended together, and client batches.

The latter follow `MessageExtEncoder.encode` of a `MessageExtBatch` in Apache RocketMQ 5.4.0.
"""

from rocketmq_sdk.broker_embedded.store.consume_queue_table import Queue
from rocketmq_sdk.broker_embedded.store.types import MessageToStore, PutResult, PutStatus
from rocketmq_sdk.protocol.message_codec import encode_record

Prepared = tuple[Queue, MessageToStore, bytes]
"""A message with its queue and its encoded properties."""


def batch_records(
    queue: Queue, message: MessageToStore, items: list[tuple[int, bytes, bytes]], position: int, now: int, store_host: bytes
) -> list[bytes]:
    """The records of a batch that begins at a position; `items` are flag, body and properties of its messages. Raises `ProtocolError`."""
    records: list[bytes] = []
    for offset, (flag, body, properties) in enumerate(items, queue.next_offset):
        record = encode_record(
            queue.topic_bytes,
            body,
            properties,
            queue_id=message.queue_id,
            flag=flag,
            queue_offset=offset,
            physical_offset=position,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=now,
            store_host=store_host,
            reconsume_times=message.reconsume_times,
            prepared_offset=0,
        )
        records.append(record)
        position += len(record)
    return records


def joined_records(prepared: list[Prepared], position: int, now: int, store_host: bytes) -> tuple[list[PutResult], list[bytes]]:
    """The records of messages that are appended together from a position on, and where each will be. Raises `ProtocolError`."""
    results: list[PutResult] = []
    records: list[bytes] = []
    taken: dict[Queue, int] = {}
    for queue, message, properties in prepared:
        offset = queue.next_offset + taken.get(queue, 0)
        taken[queue] = taken.get(queue, 0) + 1
        record = encode_record(
            queue.topic_bytes,
            message.body,
            properties,
            queue_id=message.queue_id,
            flag=message.flag,
            queue_offset=offset,
            physical_offset=position,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=now,
            store_host=message.store_host or store_host,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
        )
        results.append(PutResult(PutStatus.PUT_OK, position, len(record), offset, now))
        records.append(record)
        position += len(record)
    return results, records
