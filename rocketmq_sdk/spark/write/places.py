"""Where rows were read from, as far as a DataFrame still has the source's columns.

Spark is not needed here.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_TYPES: Final = {"brokerName": pa.string(), "queueId": pa.int32(), "queueOffset": pa.int64()}
_join: Any = pc.binary_join_element_wise


def place_column(batch: pa.RecordBatch, *, topic_is_source: bool) -> pa.Array | None:
    """Where each row was read from as bytes; null where a column of it is null.

    Broker, queue and offset, and what tells topics apart: the column `topic`, where
    that is the source's (`topic_is_source`), else `messageId`. A column `topic` that
    names where rows go is the same for rows of many topics. None where these columns
    are not there: rows of two topics could have the same place then.
    """
    schema = batch.schema
    told_by_topic = topic_is_source and "topic" in schema.names
    names = ["topic" if told_by_topic else "messageId", *_TYPES]
    if any(
        name not in schema.names or schema.field(name).type != _TYPES.get(name, pa.string())
        for name in names
    ):
        return None
    texts = [batch.column(name).cast(pa.string()).cast(pa.binary()) for name in names]
    return _join(*texts, b"\x01", null_handling="emit_null")
