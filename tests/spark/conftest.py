"""One Spark session and one broker for all tests that need them; a topic of its own for
each test.

With `ROCKETMQ_SPARK_BROKER=apache` in the environment the broker is Apache's:
`ROCKETMQ_SPARK_BROKER=apache bash test.sh tests/spark` passes the same tests against
it. Those that start brokers of ours keep them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Message, Producer
from support import java
from support.processes import BrokerProcess, broker_process
from support.waiting import unique

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two task slots, three tries of a task: what fails once is tried again, as on a
    cluster.
    """
    from rocketmq_sdk.spark import local_session

    options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    session = local_session(
        "2,3",
        spark__sql__shuffle__partitions=1,
        spark__driver__memory="768m",
        spark__driver__extraJavaOptions=options,
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


APACHE = os.environ.get("ROCKETMQ_SPARK_BROKER") == "apache"


@pytest.fixture(scope="session")
def broker(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BrokerProcess | java.ApacheCluster]:
    """A broker in a process of its own, its store in memory; or Apache's."""
    if APACHE:
        with java.apache_cluster(
            tmp_path_factory.mktemp("apache"), enablePropertyFilter="true", defaultTopicQueueNums=4
        ) as cluster:
            yield cluster
    else:
        with broker_process() as process:
            yield process


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return unique("spark")


@pytest.fixture
def fill(broker: BrokerProcess) -> Callable[..., None]:
    """Send messages to the broker: `fill(messages)`, those of one topic in batches; or
    `fill(topic, bodies)`.
    """

    async def send(messages: Sequence[Message]) -> None:
        async with Producer("spark-tests", namesrv=broker.namesrv) as producer:
            for begin in range(0, len(messages), 50):
                await producer.send_batch(messages[begin : begin + 50])

    def filled(what: str | Sequence[Message], bodies: Sequence[bytes] = ()) -> None:
        trio.run(send, [Message(what, body) for body in bodies] if isinstance(what, str) else what)
        if APACHE:
            trio.run(java.dispatched, broker)

    return filled


@pytest.fixture
def read(spark: SparkSession, broker: BrokerProcess) -> Callable[..., DataFrame]:
    """A batch: `read(topic, option=value)`."""

    def load(topic: str | None, schema: str | None = None, **options: Any) -> DataFrame:
        reader = (
            spark.read.format("rocketmq").option("namesrvAddr", broker.namesrv).options(**options)
        )
        if topic is not None:
            reader = reader.option("subscribe", topic)
        return (reader.schema(schema) if schema else reader).load()

    return load


def bodies(df: DataFrame) -> list[bytes]:
    """The bodies of a frame, in order of their text."""
    return sorted(bytes(row["body"]) for row in df.select("body").collect())
