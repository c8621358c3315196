"""Several records for one write: messages appended together, and client batches.

Client batches follow `MessageExtEncoder.encode` of a `MessageExtBatch` in Apache
RocketMQ 5.4.0.
"""

from __future__ import annotations

from typing import Final

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutResult, PutStatus
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import Queue
from rocketmq_sdk.model.properties import TAGS, UNIQ_KEY, property_in_text
from rocketmq_sdk.protocol.message_codec import encode_record
from rocketmq_sdk.protocol.subscription import tags_code

CheckedMessage = tuple[Queue, MessageToStore, bytes]
"""A message with its queue and its encoded properties."""
_UNIQ_KEY: Final = f"{UNIQ_KEY}\x01".encode()
_UNIQ_KEY_SIZE: Final = len(_UNIQ_KEY)
_END: Final = b"\x02"


def tags_codes(properties: list[bytes]) -> list[int]:
    """The tags codes of the messages of a batch.

    Messages of a batch often differ only in their unique keys; equal rests are parsed
    once.
    """
    known: dict[bytes, int] = {}
    codes: list[int] = []
    for raw in properties:
        # When the key has no end this is the last byte, which holds no tag either.
        rest = raw[raw.find(_END, _UNIQ_KEY_SIZE) :] if raw.startswith(_UNIQ_KEY) else raw
        code = known.get(rest)
        if code is None:
            code = known[rest] = tags_code(property_in_text(rest.decode("utf-8", "replace"), TAGS))
        codes.append(code)
    return codes


def joined_records(
    checked: list[CheckedMessage], position: int, now: int, store_host: bytes
) -> tuple[list[PutResult], list[bytes]]:
    """Encode the records of messages that are appended together at a position.

    Returns a result for each message and the records. Raises `ProtocolError`.
    """
    results: list[PutResult] = []
    records: list[bytes] = []
    taken: dict[Queue, int] = {}
    for queue, message, properties in checked:
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
