"""Batch reads through Spark: columns, ranges, filters, what is lost, what goes
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pyspark.errors import AnalysisException, PythonException

from rocketmq_sdk import Message, Producer
from support.waiting import unique

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from support.processes import BrokerProcess

pytestmark = [pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(300)]
Read = Callable[..., "DataFrame"]
Fill = Callable[..., None]


def found(df: DataFrame) -> list[bytes]:
    return sorted(bytes(row["body"]) for row in df.select("body").collect())


def test_a_row_holds_what_was_sent(read: Read, fill: Fill, topic: str) -> None:
    before = datetime.now(UTC).timestamp()
    fill(
        [
            Message(
                topic,
                b"\x00\xff",
                tags="A",
                keys=["k1", "k2"],
                properties={"a": "one", "b": "zwei ü"},
                flag=7,
            )
        ]
    )
    rows = read(topic).collect()
    assert len(rows) == 1
    row = rows[0]
    assert (row.topic, row.queueOffset, row.tags, row["keys"], bytes(row.body)) == (
        topic,
        0,
        "A",
        ["k1", "k2"],
        b"\x00\xff",
    )
    assert (row.properties, row.flag, row.reconsumeTimes, row.dedupId) == (
        {"a": "one", "b": "zwei ü"},
        7,
        0,
        None,
    )
    assert len(row.messageId) == len(row.uniqueKey) == 32
    assert row.bornHost.startswith("127.0.0.1:")
    assert row.storeHost.startswith("127.0.0.1:")
    for moment in (row.bornTimestamp, row.storeTimestamp):
        assert abs(moment.astimezone().timestamp() - before) < 3600


def test_messages_without_anything(read: Read, fill: Fill, topic: str) -> None:
    fill(topic, [b"x"])
    row = read(topic).first()
    assert row is not None
    assert (bytes(row.body), row.tags, row["keys"], row.properties, row.dedupId) == (
        b"x",
        None,
        None,
        {},
        None,
    )


def test_every_offset_is_read_once_whatever_the_number_of_tasks(
    read: Read, fill: Fill, topic: str
) -> None:
    sent = sorted(b"%05d" % number for number in range(3000))
    fill(topic, sent)
    for tasks in (1, 2, 7):
        df = read(topic, numPartitions=tasks)
        assert df.rdd.getNumPartitions() == tasks
        assert found(df) == sent
    assert found(read(topic, minPartitions=3)) == sent


def test_nothing_to_read(read: Read, fill: Fill, topic: str) -> None:
    fill(topic, [b"one"])
    df = read(
        topic, startingOffsets=f'{{"{topic}":{{"broker-a":{{"0":-1,"1":-1,"2":-1,"3":-1}}}}}}'
    )
    assert df.count() == 0


def test_a_schema_of_some_columns_in_another_order(read: Read, fill: Fill, topic: str) -> None:
    fill(topic, [b"one"])
    df = read(topic, schema="body BINARY, queueOffset BIGINT")
    assert df.columns == ["body", "queueOffset"]
    assert [tuple(row) for row in df.collect()] == [(bytearray(b"one"), 0)]
    assert "properties" not in read(topic, includeProperties="false").columns


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("body STRING", "the column body is BINARY, not string; the right schema is: body BINARY"),
        ("bodi BINARY", "no column 'bodi'; did you mean body?"),
        ("BODY BINARY", "the column 'BODY' is written 'body'"),
        ("queueOffset BIGINT NOT NULL", "queueOffset must be nullable"),
    ],
)
def test_a_wrong_schema_is_told_when_planning(
    read: Read, topic: str, schema: str, told: str
) -> None:
    with pytest.raises(AnalysisException, match=told):
        read(topic, schema=schema).count()


def test_ranges_by_offsets(read: Read, fill: Fill, broker: BrokerProcess, topic: str) -> None:
    fill(topic, [b"%d" % number for number in range(50)])
    queue = read(topic).first()
    assert queue is not None
    place = f'{{"{topic}":{{"broker-a":{{"{queue.queueId}":%d}}}}}}'
    options = {
        "assign": f'{{"{topic}":{{"broker-a":[{queue.queueId}]}}}}',
        "startingOffsets": place % 10,
        "endingOffsets": place % 13,
    }
    assert [row.queueOffset for row in read(None, **options).collect()] == [10, 11, 12]


def test_offsets_that_are_not_there(read: Read, fill: Fill, topic: str) -> None:
    fill(topic, [b"one"])
    beyond = f'{{"{topic}":{{"broker-a":{{"0":500}}}}}}'
    with pytest.raises(
        AnalysisException,
        match=f"{topic}/broker-a/0 should be read up to offset 500, but ends at [01]: "
        "endingOffsets "
        "names",
    ):
        read(topic, endingOffsets=beyond).count()
    assert read(topic, endingOffsets=beyond, failOnDataLoss="false").count() == 1
    with pytest.raises(AnalysisException, match="which does not exist or is not read"):
        read(topic, startingOffsets=f'{{"{topic}":{{"broker-a":{{"77":0}}}}}}').count()


def test_ranges_by_time(read: Read, fill: Fill, topic: str) -> None:
    fill(topic, [b"one"])
    row = read(topic).first()
    assert row is not None
    stored = int(row.storeTimestamp.timestamp() * 1000)
    assert (
        read(topic, startingTimestamp=stored, startingOffsetsByTimestampStrategy="latest").count()
        == 1
    )
    assert read(topic, endingTimestamp=stored).count() == 0
    assert read(topic, endingTimestamp=stored + 1).count() == 1
    with pytest.raises(AnalysisException, match="has no message stored at or after"):
        read(topic, startingTimestamp=stored + 100_000).count()


def test_tags_are_checked_exactly(read: Read, fill: Fill, topic: str) -> None:
    """ "Aa" and "BB" have the same hash in Java, and brokers compare hashes only."""
    fill([Message(topic, tag.encode(), tags=tag) for tag in ("Aa", "BB", "C")])
    assert found(read(topic, subExpression="Aa")) == [b"Aa"]
    assert found(read(topic, subExpression="Aa || C")) == [b"Aa", b"C"]
    assert found(read(topic, schema="body BINARY", subExpression="BB")) == [b"BB"]


def test_a_range_that_is_filtered_to_nothing(read: Read, fill: Fill, topic: str) -> None:
    fill([Message(topic, b"x", tags="A") for _ in range(500)])
    assert read(topic, subExpression="B").count() == 0


def test_sql92_at_the_broker(read: Read, spark: SparkSession, topic: str) -> None:
    from support.processes import broker_process

    async def send(namesrv: str) -> None:
        async with Producer("spark-tests", namesrv=namesrv) as producer:
            for number in range(20):
                await producer.send(Message(topic, b"%02d" % number, properties={"n": str(number)}))

    with broker_process(enablePropertyFilter="true") as filtering:
        trio.run(send, filtering.namesrv)
        options: dict[str, Any] = {"namesrvAddr": filtering.namesrv, "filterType": "SQL92"}
        assert found(read(topic, subExpression="n BETWEEN 5 AND 7", **options)) == [
            b"05",
            b"06",
            b"07",
        ]
        with pytest.raises(
            AnalysisException, match="the broker 'broker-a' refuses the SQL92 expression 'n >'"
        ):
            read(topic, subExpression="n >", **options).count()


def test_sql92_that_is_switched_off(read: Read, topic: str) -> None:
    from support.processes import broker_process

    async def send(namesrv: str) -> None:
        async with Producer("spark-tests", namesrv=namesrv) as producer:
            await producer.send(Message(topic, b"one"))

    with broker_process(enablePropertyFilter="false") as without:
        trio.run(send, without.namesrv)
        with pytest.raises(
            AnalysisException,
            match=r"the broker 'broker-a' refuses the SQL92 expression 'n > 1': .*does not support",
        ) as caught:
            read(
                topic, subExpression="n > 1", filterType="SQL92", namesrvAddr=without.namesrv
            ).count()
        assert f"while asking the broker 'broker-a' whether it can filter topic '{topic}'" in str(
            caught.value
        )


def test_topics_by_pattern(read: Read, fill: Fill) -> None:
    start = unique("pattern")
    for end in ("-1", "-2", "-x"):
        fill(start + end, [end.encode()])
    df = read(None, subscribePattern=f"{start}-[0-9]")
    assert found(df) == [b"-1", b"-2"]
    assert not [
        row
        for row in read(None, subscribePattern=".*").select("topic").distinct().collect()
        if row.topic.startswith(("%", "rmq_", "RMQ_"))
    ]


def test_a_topic_that_does_not_exist(read: Read) -> None:
    with pytest.raises(AnalysisException, match="the topic 'no-such-topic' does not exist"):
        read("no-such-topic").count()


def test_options_are_checked_with_the_nearest_right_one(
    read: Read, spark: SparkSession, topic: str
) -> None:
    with pytest.raises(AnalysisException, match=r"did you mean subscribe\?"):
        read(topic, subscrib="x").count()
    with pytest.raises(AnalysisException, match=r"did you mean namesrvAddr\?"):
        spark.read.format("rocketmq").option("kafka.bootstrap.servers", "x:1").option(
            "subscribe", topic
        ).load().count()


def test_sql_and_a_temporary_view(
    spark: SparkSession, broker: BrokerProcess, fill: Fill, topic: str
) -> None:
    fill(topic, [b"one", b"two"])
    spark.sql(
        f"CREATE TEMPORARY VIEW v_{topic.replace('-', '_')} USING rocketmq OPTIONS (namesrvAddr "
        f"'{broker.namesrv}', subscribe '{topic}')"
    )
    assert spark.sql(f"SELECT count(*) FROM v_{topic.replace('-', '_')}").first()[0] == 2  # type: ignore[index]


def _state_of_workers(namesrv: str, tasks: int) -> Any:
    """A source whose rows are what its workers hold: trio threads, clients of a name
    server, jobs under way.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class StateReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(tasks)]

        def read(self, partition: InputPartition) -> Any:
            import threading

            from rocketmq_sdk.spark.cluster import bridge

            keys = [] if bridge._loop is None else list(bridge._loop.cache._entries)
            clients = sum(key[0] == "client" and key[1].namesrv == namesrv for key in keys)
            yield (
                sum(thread.name == "rocketmq-trio" for thread in threading.enumerate()),
                clients,
                bridge.under_way(),
            )

    class StateOfWorkers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "state-of-workers"

        def schema(self) -> str:
            return "threads INT, clients INT, jobs INT"

        def reader(self, schema: Any) -> StateReader:
            return StateReader()

    return StateOfWorkers


def test_a_limit_and_a_failing_task_leave_nothing_behind(
    spark: SparkSession, read: Read, fill: Fill, broker: BrokerProcess, topic: str
) -> None:
    fill(topic, [b"%d" % number for number in range(2000)])
    df = read(topic, numPartitions=2)
    assert len(df.limit(1).collect()) == 1

    def fail(row: Any) -> None:
        raise ValueError(f"on purpose, at {row.queueOffset}")

    with pytest.raises(PythonException, match="on purpose"):
        df.rdd.foreach(fail)

    assert df.count() == 2000

    # readers of a source of Python get the idle workers in turn: so many tasks see all
    # of them
    spark.dataSource.register(_state_of_workers(broker.namesrv, 24))
    found = [
        (row.threads, row.clients, row.jobs)
        for row in spark.read.format("state-of-workers").load().collect()
    ]
    assert any(clients for _, clients, _ in found), "no worker that has read was looked at"
    for threads, clients, jobs in found:
        assert threads <= 1
        assert clients <= 1
        assert jobs == 0, "a pull goes on though nobody wants its rows"


def test_a_broker_that_starts_again_is_waited_for(read: Read, topic: str, tmp_path: Any) -> None:
    import threading

    from support.processes import broker_process

    async def send(namesrv: str) -> None:
        async with Producer("spark-tests", namesrv=namesrv) as producer:
            await producer.send_batch([Message(topic, b"%d" % number) for number in range(100)])

    with broker_process(tmp_path / "store") as restarted:
        trio.run(send, restarted.namesrv)
        df = read(topic, namesrvAddr=restarted.namesrv, retryTimeout="100s")
        restarted.kill()
        timer = threading.Timer(2, restarted.start)
        timer.start()
        try:
            assert df.count() == 100  # planned while nobody listens
        finally:
            timer.join()


def test_secrets_are_shown_nowhere(
    read: Read, fill: Fill, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(topic, [b"one"])
    df = read(
        topic, accessKey="user", secretKey="very-hidden-key", securityToken="very-hidden-token"
    )
    df.explain(extended=True)
    assert df.count() == 1
    failures = (
        _failure(read, topic, secretKey="very-hidden-key"),
        _failure(read, topic, securityToken="very-hidden-token"),
    )
    told = [str(failure.value) for failure in failures]
    out, err = capfd.readouterr()
    assert "very-hidden" not in "".join([out, err, *told, df._jdf.toString()])  # type: ignore[operator]


def _failure(read: Read, topic: str, **options: str) -> pytest.ExceptionInfo[AnalysisException]:
    with pytest.raises(AnalysisException) as caught:
        read(topic, **options).count()
    return caught


def _pushed(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    """What `explain` says of filters that the source applies itself."""
    capsys.readouterr()
    frame.explain(mode="formatted")
    lines = capsys.readouterr().out.splitlines()
    return "".join(line for line in lines if "PushedFilters" in line)


def test_filters_are_pushed_down_where_the_session_does_that(
    spark: SparkSession,
    read: Read,
    fill: Fill,
    topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The rows are the same, and `explain` shows what the source does itself."""
    other = f"{topic}-other"
    for name in (topic, other):
        fill([Message(name, b"%d" % number, tags="AB"[number % 2]) for number in range(60)])
    now = datetime.now(UTC)
    conditions = [
        f"topic = '{topic}' AND queueOffset >= 5 AND queueOffset < 12",
        "tags = 'A' AND queueId IN (0, 2)",
        f"storeTimestamp >= TIMESTAMP '{now - timedelta(hours=1):%F %T}'",
        f"storeTimestamp > TIMESTAMP '{now + timedelta(days=9):%F %T}'",
        "length(body) = 1 OR queueOffset = 7",
        "queueOffset = 3 AND CAST(body AS STRING) != '1'",
    ]

    def found(condition: str) -> list[Row]:
        frame = read(f"{topic},{other}").where(condition)
        return sorted(frame.select("topic", "queueId", "queueOffset", "body").collect())

    without = [found(condition) for condition in conditions]
    assert [len(rows) > 0 for rows in without] == [True, True, True, False, True, True]
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    try:
        assert [found(condition) for condition in conditions] == without
        pushed = _pushed(read(f"{topic},{other}").where(conditions[0]), capsys)
    finally:
        spark.conf.unset(name)
    assert "queueOffset" not in _pushed(read(f"{topic},{other}").where(conditions[0]), capsys)
    assert f"EqualTo(topic,{topic})" in pushed
    assert "GreaterThanOrEqual(queueOffset,5)" in pushed
    assert "LessThan(queueOffset,12)" in pushed


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    """Not the archive in it, which each of them would compile."""
    place: Any = lambda _: str(__import__("pyspark").__file__)  # noqa: E731 - sent by value
    assert spark.sparkContext.parallelize([0], 1).map(place).collect() == [place(0)]
