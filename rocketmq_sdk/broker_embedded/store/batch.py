"""Client batches: one encoded body, several records (`MessageExtEncoder.encode` of a `MessageExtBatch` in Apache RocketMQ 5.4.0)."""

from rocketmq_sdk.broker_embedded.store.consume_queue_table import Queue
from rocketmq_sdk.broker_embedded.store.types import MessageToStore
from rocketmq_sdk.protocol.message_codec import encode_record


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
