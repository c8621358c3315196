"""Threads of the driver: Spark looks for formats of Python in the session that is
active in the thread that writes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.spark import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from support.processes import BrokerProcess

pytestmark = pytest.mark.real_time


def test_a_thread_that_registers_writes(
    spark: SparkSession, broker: BrokerProcess, topic: str, read: Callable[..., DataFrame]
) -> None:
    failures: list[BaseException] = []

    def write() -> None:
        try:
            register(spark)
            rows = spark.range(7).selectExpr("CAST(id AS STRING) AS body")
            rows.write.format("rocketmq").options(namesrvAddr=broker.namesrv, topic=topic).mode(
                "append"
            ).save()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    assert read(topic).count() == 7
