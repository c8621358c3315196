"""Where rows were read from, as far as a DataFrame still has the source's columns.

Spark is not needed here.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_TYPES: Final = {"brokerName": pa.string(), "queueId": pa.int32(), "queueOffset": pa.int64()}
_join: Any = pc.binary_join_element_wise


def place_column(batch: pa.RecordBatch) -> pa.Array | None:
    """Topic, broker, queue and offset of each row as bytes; null where one is missing.

    None where the columns are not there. Without the column `topic` the rest counts.
    """
    schema = batch.schema
    if any(
        name not in schema.names or schema.field(name).type != kind for name, kind in _TYPES.items()
    ):
        return None
    names = ["topic", *_TYPES] if "topic" in schema.names else list(_TYPES)
    texts = [batch.column(name).cast(pa.string()).cast(pa.binary()) for name in names]
    return _join(*texts, b"\x01", null_handling="emit_null")
