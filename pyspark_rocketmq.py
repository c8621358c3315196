"""Makes `format("rocketmq")` known to Spark without registering.

Spark looks into every top-level module whose name begins with `pyspark_`.

It imports nothing but Spark's own interface: a module of this kind that fails to import
would hide all others.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Stands for `rocketmq_sdk.spark.source.RocketMQDataSource`."""

    @classmethod
    def name(cls):  # type: ignore[no-untyped-def]
        return "rocketmq"

    def _source(self):  # type: ignore[no-untyped-def]
        try:
            from rocketmq_sdk.spark.source import RocketMQDataSource
        except ImportError as error:
            raise ImportError(
                f"the format rocketmq cannot be loaded ({error}): install rocketmq-trio[spark] in "
                "the Python of the driver and of every worker"
            ) from error
        return RocketMQDataSource(self.options)

    def schema(self):  # type: ignore[no-untyped-def]
        return self._source().schema()

    def reader(self, schema):  # type: ignore[no-untyped-def]
        return self._source().reader(schema)

    def streamReader(self, schema):  # type: ignore[no-untyped-def]  # noqa: N802
        return self._source().streamReader(schema)

    def writer(self, schema, overwrite):  # type: ignore[no-untyped-def]
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema, overwrite):  # type: ignore[no-untyped-def]  # noqa: N802
        return self._source().streamWriter(schema, overwrite)
