"""Batches as Spark hands them over by default, whatever the session asked for.

With `spark.sql.execution.arrow.useLargeVarTypes` texts and bytes come with offsets of
64 bits. A batch of the sink is small, so it is taken apart in one way only.

Spark is not needed here.
"""

from __future__ import annotations

import pyarrow as pa


def usual_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with texts, bytes and lists whose offsets have 32 bits."""
    schema = batch.schema
    wanted = [_usual(kind) for kind in schema.types]
    if wanted == schema.types:
        return batch
    return batch.cast(pa.schema(list(zip(schema.names, wanted, strict=True))))


def _usual(kind: pa.DataType) -> pa.DataType:
    """A type with offsets of 32 bits; the same object where it has them already."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        inner = _usual(kind.key_type), _usual(kind.item_type)
        return kind if inner == (kind.key_type, kind.item_type) else pa.map_(*inner)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _usual(kind.value_type)
        return kind if pa.types.is_list(kind) and item == kind.value_type else pa.list_(item)
    return kind
