"""Rows without doubles, and writes whose doubles can be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spark.write.input_schema import SINK_NAMES

if TYPE_CHECKING:
    from datetime import timedelta

    from pyspark.sql import DataFrame, DataFrameWriter

_PLACE = ("topic", "brokerName", "queueId", "queueOffset")
_KEY, _READ_AT = "__rocketmq_dedup", "__rocketmq_read_at"


def deduplicated(df: DataFrame, *, within: timedelta | str | None = None) -> DataFrame:
    """The rows of a source without those that the sink sent twice.

    Keeps the first row of each dedup id in each topic; rows without an id always pass.
    `df` needs the columns dedupId and topic, brokerName, queueId, queueOffset.

    A stream must say `within`: how long it remembers an id ("10 minutes" or a
    `timedelta`), from the moment the query reads its first row. A double that is read
    later than that passes. A row that was not seen before is never dropped, however old
    it is and however unevenly the queues are read; so the time is that of reading. With
    the time of storing as a watermark Spark would drop what lags behind it. The state
    takes some 450 bytes for each row that was read within that time. For a batch
    `within` means nothing, and all doubles are found.

    A query has one watermark in Spark, and this is it: windows over the result belong
    in a second query.

    Raises `ConfigurationError` for missing columns or a missing `within`.
    """
    from pyspark.sql import functions as f

    needed = ("dedupId", *_PLACE)
    missing = [name for name in needed if name not in df.columns]
    if missing:
        raise ConfigurationError(
            f"deduplicated needs the columns {', '.join(needed)} of the source; missing: "
            f"{', '.join(missing)}"
        )
    topic, *place = (f.col(name).cast("string") for name in _PLACE)
    # The same id in two topics is that of two rows: one may go to both.
    own = f.coalesce(f.col("dedupId"), f.concat_ws("\x01", *place))
    keyed = df.withColumn(_KEY, f.concat_ws("\x01", topic, own))
    if not df.isStreaming:
        return keyed.dropDuplicates([_KEY]).drop(_KEY)
    if within is None:
        raise ConfigurationError(
            "a stream remembers ids for a time only; say how long: within='10 minutes'"
        )
    delay = within if isinstance(within, str) else f"{within.total_seconds():.3f} seconds"
    return (
        keyed.withColumn(_READ_AT, f.current_timestamp())
        .withWatermark(_READ_AT, delay)
        .dropDuplicatesWithinWatermark([_KEY])
        .drop(_KEY, _READ_AT)
    )


def in_batch(writer: DataFrameWriter, batch: int | str, *, scope: str) -> DataFrameWriter:
    """A writer whose rows have the dedup ids of one batch of `scope`.

    For writes that Spark does not know as part of a query: in `foreachBatch` of Spark
    Connect, in threads that `foreachBatch` starts, and in jobs that may run again:

        in_batch(df.write.format("rocketmq"), batch_id, scope="orders").options(...)

    `batch` is the number that `foreachBatch` gives, or names the run of a job. The same
    rows under the same scope and batch get the same ids. `scope` must differ between
    queries, and between the writes of one batch.
    """
    return writer.options(dedupScope=scope, dedupBatch=str(batch))


def with_dedup_keys(df: DataFrame, batch: int | str, *, scope: str) -> DataFrame:
    """The same rows with ids in the column dedupKey that no partition is part of.

    For rows that have lost their place. `df` has the columns of the sink. Each id is
    made of `scope`, `batch`, a 128-bit hash of the row, and a number that tells equal
    rows of the whole frame apart. So the same rows get the same ids in whatever tasks
    and order they come; a dedupKey that is there already is kept. In `foreachBatch`:

        with_dedup_keys(df, batch_id, scope="orders").write.format("rocketmq")...

    `batch` and `scope` mean what they do for `in_batch`. It costs a shuffle and a sort
    by the hash; all rows that are equal to one another go through one task. A sink
    cannot do that, as each of its tasks sees its own rows only.

    Raises `ConfigurationError` for a stream, which Spark does not number, and for a
    frame without the column body.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if df.isStreaming:
        raise ConfigurationError(
            "Spark numbers no rows of a stream; use with_dedup_keys in foreachBatch, with the "
            "number of the batch"
        )
    if "body" not in df.columns:
        raise ConfigurationError(f"with_dedup_keys needs the column body; there are {df.columns}")
    content = {name: f.col(name) for name in sorted(SINK_NAMES & set(df.columns))}
    content["body"] = f.sha2(f.col("body"), 256)
    if "properties" in content:
        content["properties"] = f.array_sort(f.map_entries("properties"))
    if "deliverAt" in content:
        content["deliverAt"] = f.unix_micros("deliverAt")
    text = f.to_json(f.struct(*(value.alias(name) for name, value in content.items())))
    digits = f.substring(f.sha2(text, 256), 1, 32)
    number = f.row_number().over(Window.partitionBy(_KEY).orderBy(_KEY)) - 1
    made = f.concat_ws(":", f.lit(f"{scope}:{batch}:-"), f.col(_KEY), number.cast("string"))
    given = f.nullif(f.col("dedupKey"), f.lit("")) if "dedupKey" in content else f.lit(None)
    return df.withColumn(_KEY, digits).withColumn("dedupKey", f.coalesce(given, made)).drop(_KEY)
