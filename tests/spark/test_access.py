"""Spark at a broker that checks users: with what it needs to be allowed, no more.

What else is refused: tests/interop/test_spark_access.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pyspark.errors import AnalysisException

from rocketmq_sdk import Admin, Credentials
from support.processes import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerProcess]:
    conf = tmp_path / "broker.conf"
    keys = json.dumps({"username": "admin", "password": "the admin's"})
    conf.write_text(
        "authenticationEnabled=true\nauthorizationEnabled=true\n"
        f"initAuthenticationUser={keys}\ndefaultTopicQueueNums=2\n"
    )
    broker = BrokerProcess(arguments=("--config", str(conf)))
    broker.start()
    yield broker
    assert broker.stop() == 0


async def add_users(namesrv: str, topic: str) -> None:
    keys = Credentials("admin", "the admin's")
    async with Admin(namesrv=namesrv, credentials=keys) as admin:
        await admin.topics.create(topic, queues=2)
        await admin.users.create("writer", "write")
        await admin.acls.create("writer", [f"Topic:{topic}"], ["Pub", "Get"])
        await admin.acls.create("writer", ["Cluster:*"], ["Get"])
        await admin.users.create("reader", "read")
        await admin.acls.create("reader", [f"Topic:{topic}"], ["Sub", "Get"])
        await admin.acls.create("reader", ["Group:TOOLS_CONSUMER"], ["Sub"])
        await admin.acls.create("reader", ["Cluster:*"], ["Get"])


def test_a_write_and_a_read(spark: SparkSession, guarded: BrokerProcess) -> None:
    topic = "guarded"
    trio.run(add_users, guarded.namesrv, topic)
    common: dict[str, Any] = {"namesrvAddr": guarded.namesrv}
    rows = spark.range(20).selectExpr("CAST(id AS STRING) AS body")

    def write(**keys: str) -> None:
        rows.write.format("rocketmq").options(**common, topic=topic, **keys).mode("append").save()

    def count(**keys: str) -> int:
        options = {**common, "subscribe": topic, **keys}
        return spark.read.format("rocketmq").options(**options).load().count()

    write(accessKey="writer", secretKey="write")
    assert count(accessKey="reader", secretKey="read") == 20
    with pytest.raises(AnalysisException, match=r"NO_PERMISSION|signature"):
        count(accessKey="reader", secretKey="guessed")
