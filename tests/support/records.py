"""Entries of the recorded table of message records."""

from __future__ import annotations

from typing import Any

from rocketmq_sdk.model.route import pack_host
from rocketmq_sdk.protocol.message_codec import encode_record


def encode_entry(entry: dict[str, Any], properties: bytes) -> bytes:
    """The record that our encoder makes of an entry of `message_records`."""
    return encode_record(
        entry["topic"].encode(),
        bytes.fromhex(entry["body"] or ""),
        properties,
        queue_id=entry["queueId"],
        flag=entry["flag"],
        queue_offset=entry["queueOffset"],
        physical_offset=entry["commitLogOffset"],
        sys_flag=entry["sysFlag"],
        born_timestamp=entry["bornTimestamp"],
        born_host=pack_host(entry["bornHost"], entry["bornPort"]),
        store_timestamp=entry["storeTimestamp"],
        store_host=pack_host(entry["storeHost"], entry["storePort"]),
        reconsume_times=entry["reconsumeTimes"],
        prepared_offset=entry["preparedTransactionOffset"],
    )
