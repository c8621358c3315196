"""The format `rocketmq` as Spark sees it (`pyspark.sql.datasource.DataSource`).

Everything else is imported when Spark asks for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from rocketmq_sdk.spark.options.settings import SparkOptions
    from rocketmq_sdk.spark.schema import Column


class RocketMQDataSource(DataSource):
    """`format("rocketmq")`: batch and streaming reads and writes."""

    default_tasks: ClassVar[int | None] = None
    """The parallelism of the session that registered it; None: the driver's CPUs."""
    default_namesrv: ClassVar[str | None] = None
    """`NAMESRV_ADDR` of the Python process that registered the format.

    The processes that Spark plans in may lack it.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns of the source, as DDL.

        Raises `OptionError` for the option that decides about them.
        """
        from rocketmq_sdk.spark.options.table import OptionError
        from rocketmq_sdk.spark.options.values import boolean
        from rocketmq_sdk.spark.schema import ddl, default_columns

        given = str(self.options.get("includeproperties", "true"))
        try:
            return ddl(default_columns(include_properties=boolean(given)))
        except ValueError as error:
            raise OptionError(
                f"the option includeProperties {given!r} cannot be used: {error}"
            ) from None

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        settings = self._settings("BATCH")
        from rocketmq_sdk.spark.read.batch import BatchReader
        from rocketmq_sdk.spark.read.pushdown import PushingReader, are_pushed

        kind = PushingReader if are_pushed() else BatchReader
        return kind(settings, _columns(schema, settings), self._tasks())

    # Spark's name.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a stream."""
        settings = self._settings("STREAM")
        from rocketmq_sdk.spark.read.stream import StreamReader

        return StreamReader(settings, _columns(schema, settings), self._tasks())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of a batch."""
        settings = self._settings("SINK")
        from rocketmq_sdk.spark.write.writer import BatchWriter

        return BatchWriter(settings, schema, overwrite=overwrite)

    # Spark's name.
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """The writer of a stream; `overwrite` is the output mode complete."""
        settings = self._settings("SINK")
        from rocketmq_sdk.spark.write.writer import StreamWriter

        return StreamWriter(settings, schema, complete=overwrite)

    def _settings(self, use: str) -> SparkOptions:
        """The parsed options.

        Parsed before anything else is imported, so a worker that lacks something says
        what.
        """
        _check_workers()
        from rocketmq_sdk.spark.options.parsing import NAMESRV_VARIABLE, parse
        from rocketmq_sdk.spark.options.table import Use

        environment = dict(os.environ)
        if self.default_namesrv is not None:
            environment[NAMESRV_VARIABLE] = self.default_namesrv
        return parse(dict(self.options), Use[use], environment=environment)

    def _tasks(self) -> int:
        if self.default_tasks is not None:
            return self.default_tasks
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )


def _check_workers() -> None:
    """Raise one clear error where a worker lacks what the format needs."""
    from importlib import import_module

    for needed in ("pyarrow", "trio", "attrs"):
        try:
            import_module(needed)
        except ImportError as error:
            raise ImportError(
                f"the format rocketmq needs {needed}, which this Python lacks ({error}): install "
                "rocketmq-trio[spark] on the driver and in the "
                "Python of every worker (PYSPARK_PYTHON), or ship a packed environment with it"
            ) from error


def _columns(schema: StructType, settings: SparkOptions) -> tuple[Column, ...]:
    """The columns of a schema.

    Raises `SchemaError` for what the source cannot give, `OptionError` for a column
    that an option leaves out.
    """
    from rocketmq_sdk.spark.options.table import OptionError
    from rocketmq_sdk.spark.schema import PROPERTIES, SchemaError, columns_of

    columns = columns_of([(field.name, field.dataType.simpleString()) for field in schema.fields])
    for field, column in zip(schema.fields, columns, strict=True):
        inner = field.dataType.jsonValue()
        strict = isinstance(inner, dict) and not (
            inner.get("containsNull", True) and inner.get("valueContainsNull", True)
        )
        if not field.nullable or strict:
            raise SchemaError(
                f"the column {field.name} must be nullable, as all columns of the source are; "
                f"write it as {column.name} {column.type}"
            )
    if not settings.include_properties and any(column.name == PROPERTIES for column in columns):
        raise OptionError(
            "includeProperties is false, but the schema has the column properties; leave one of "
            "them out"
        )
    return columns
