"""Options: read, refused, kept secret."""

from __future__ import annotations

import pickle
from typing import Any

import attrs
import pytest

from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.options.parsing import overruled, parse
from rocketmq_sdk.spark.options.settings import SparkOptions
from rocketmq_sdk.spark.options.table import OPTIONS, OptionError, Use, page
from rocketmq_sdk.spark.options.values import Edge
from rocketmq_sdk.spark.plan.offsets import EARLIEST, QueueKey
from rocketmq_sdk.spark.write.send_plan import SendPlan

NS = {"namesrvAddr": "127.0.0.1:9876"}
READ = NS | {"subscribe": "orders"}


def read(use: Use = Use.STREAM, **options: str) -> Any:
    return parse(READ | options, use)


def test_a_table_without_options_is_refused_with_the_way_out() -> None:
    for use in (Use.BATCH, Use.STREAM):
        with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
            parse({"path": "/warehouse/t"}, use, environment={"NAMESRV_ADDR": "a:1"})


def test_every_option_has_a_typed_attribute() -> None:
    names = [field.name for field in attrs.fields(SparkOptions)]
    assert names == ["use", *(option.attribute for option in OPTIONS)]


def test_names_come_in_any_case_and_defaults_are_there() -> None:
    settings = parse(
        {
            "NAMESRVADDR": "10.0.0.1:9876",
            "Subscribe": "a, b,a",
            "numpartitions": "3",
            "FAILONDATALOSS": "False",
        },
        Use.STREAM,
    )
    assert (settings.namesrv_addr, settings.subscribe, settings.num_partitions) == (
        "10.0.0.1:9876",
        ("a", "b"),
        3,
    )
    assert (settings.fail_on_data_loss, settings.include_properties, settings.retry_timeout) == (
        False,
        True,
        120.0,
    )
    assert (
        settings.starting_offsets,
        settings.max_trigger_delay,
        settings.offset_refresh_interval,
    ) == (None, 900.0, 0.05)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_name_server_may_come_from_the_environment() -> None:
    assert (
        parse({"topic": "t"}, Use.SINK, environment={"NAMESRV_ADDR": "1.2.3.4:9876"}).namesrv_addr
        == "1.2.3.4:9876"
    )
    for use in Use:
        with pytest.raises(OptionError, match=r"CREATE TABLE .* can be neither read nor written"):
            parse({}, use, environment={})
    with pytest.raises(OptionError, match=r"namesrvAddr.*NAMESRV_ADDR"):
        parse({"topic": "t"}, Use.SINK, environment={})


def test_what_spark_adds_on_its_own_passes() -> None:
    assert read(path="x", checkpointLocation="/c").subscribe == ("orders",)


@pytest.mark.parametrize(
    ("name", "use", "hint"),
    [
        ("nameServer", Use.STREAM, "namesrvAddr"),
        ("kafka.bootstrap.servers", Use.BATCH, "namesrvAddr"),
        ("startingOffset", Use.STREAM, "startingOffsets"),
        ("maxOffsetPerTrigger", Use.STREAM, "maxOffsetsPerTrigger"),
        ("includeHeaders", Use.BATCH, "includeProperties"),
        ("onBadRows", Use.SINK, "onBadRow"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_one(name: str, use: Use, hint: str) -> None:
    with pytest.raises(OptionError, match=f"no option '{name}'; did you mean {hint}\\?"):
        parse((READ if use is not Use.SINK else NS) | {name: "1"}, use)


def test_a_name_like_nothing_is_refused_without_a_hint() -> None:
    with pytest.raises(OptionError, match=r"no option 'zzz'$"):
        read(zzz="1")


@pytest.mark.parametrize(
    ("options", "use", "says"),
    [
        (
            {"maxOffsetsPerTrigger": "5"},
            Use.BATCH,
            "means nothing for batch reads; it counts for streaming reads",
        ),
        (
            {"endingOffsets": "latest"},
            Use.STREAM,
            "means nothing for streaming reads; it counts for batch reads",
        ),
        (
            {"maxOffsetsPerTrigger": "0"},
            Use.STREAM,
            "maxOffsetsPerTrigger '0' cannot be used: it must be a whole number from 1 on",
        ),
        ({"maxOffsetsPerTrigger": "1e3"}, Use.STREAM, "whole number"),
        ({"numPartitions": "10001"}, Use.STREAM, "a whole number from 1 to 10000"),
        ({"numPartitions": "\u0663"}, Use.BATCH, "a whole number from 1 to 10000"),
        ({"pullBatchSize": "99999999999999"}, Use.BATCH, "a whole number from 1 to 65536"),
        ({"maxOffsetsPerTrigger": "\u0663"}, Use.STREAM, "whole number"),
        ({"failOnDataLoss": "maybe"}, Use.STREAM, "true or false"),
        ({"retryTimeout": "soon"}, Use.STREAM, "500ms, 120s or 15m"),
        ({"startingTimestamp": "2026-01-31T12:00:00"}, Use.STREAM, "no time zone"),
        ({"startingTimestamp": "yesterday"}, Use.STREAM, "epoch milliseconds"),
        ({"startingOffsets": "first"}, Use.STREAM, "earliest, latest or offsets"),
        ({"startingOffsets": '{"orders":{"b":{"0":-5}}}'}, Use.STREAM, "-5 for orders/b/0"),
        (
            {"startingOffsets": '{"orders":{"b":{"0":99999999999999999999}}}'},
            Use.STREAM,
            "a whole number from -2 to 9223372036854775807",
        ),
        ({"startingOffsets": "{nope"}, Use.STREAM, "they are no JSON"),
        (
            {"startingOffsets": '{"other":{"b":{"0":5}}}'},
            Use.STREAM,
            "other/b/0, which is not read",
        ),
        ({"endingOffsets": "earliest"}, Use.BATCH, "it must be latest or offsets"),
        ({"endingOffsets": '{"orders":{"b":{"0":-2}}}'}, Use.BATCH, "-2 for orders/b/0"),
        ({"startingOffsets": "latest"}, Use.BATCH, "nothing for a batch to read"),
        ({"filterType": "SQL92"}, Use.STREAM, "needs subExpression"),
        ({"filterType": "REGEX"}, Use.STREAM, "TAG or SQL92"),
        (
            {"subscribePattern": "o.*"},
            Use.STREAM,
            (
                "exactly one of subscribe, subscribePattern and assign; there are subscribe and "
                "subscribePattern"
            ),
        ),
        ({"commitOffsetsToBroker": "true"}, Use.STREAM, "needs consumerGroup"),
        ({"consumerGroup": "g"}, Use.STREAM, "only says where commitOffsetsToBroker writes"),
        ({"maxTriggerDelay": "1m"}, Use.STREAM, "beside minOffsetsPerTrigger"),
        (
            {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
            Use.STREAM,
            "10 is above maxOffsetsPerTrigger 5",
        ),
        ({"accessKey": "a"}, Use.STREAM, "go together"),
        ({"securityToken": "a"}, Use.STREAM, "needs accessKey"),
        (
            {"accessKey": "a", "secretKey": "b", "credentialsEnv": "X"},
            Use.STREAM,
            "in 2 ways, accessKey and credentialsEnv",
        ),
        ({"tlsCaFile": "/x"}, Use.STREAM, "needs tls"),
        ({"tls": "true", "tlsKeyFile": "/x"}, Use.STREAM, "needs tlsCertFile"),
        ({"numPartitions": "2", "minPartitions": "3"}, Use.STREAM, "give one of them"),
        ({"maxRecordsPerPartition": "0"}, Use.BATCH, "a whole number from 1 on"),
        ({"readGroup": "a b"}, Use.BATCH, "contains ' '"),
        (
            {"startingTimestamp": "6", "endingTimestamp": "5"},
            Use.BATCH,
            "endingTimestamp 5 is before startingTimestamp 6",
        ),
        ({"namesrvAddr": "nowhere"}, Use.STREAM, "namesrvAddr 'nowhere' cannot be used"),
    ],
)
def test_what_makes_no_sense_is_named(options: dict[str, str], use: Use, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse(READ | options, use)


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("a b", "a b"),
        ("SCHEDULE_TOPIC_XXXX", "belongs to the broker"),
        ("t" * 128, "128 characters"),
    ],
)
def test_a_topic_that_nobody_can_send_to_is_refused_before_any_row(topic: str, says: str) -> None:
    with pytest.raises(OptionError, match=f"the option topic .*{says}"):
        parse(NS | {"topic": topic}, Use.SINK)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"maxMessageSize": "17m"},
            "maxMessageSize '17m' cannot be used: it must be at most 16711680 bytes",
        ),
        ({"maxMessageSize": "0"}, "it must be a size such as"),
        ({"batchBytes": "5m"}, "batchBytes is above maxMessageSize"),
        ({"batchBytes": "2m", "maxMessageSize": "1m"}, "batchBytes is above maxMessageSize"),
        ({"batchSize": "65537"}, "a whole number from 1 to 65536"),
    ],
)
def test_sizes_that_no_broker_takes(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse(NS | {"topic": "t"} | options, Use.SINK)


def test_the_largest_body() -> None:
    assert parse(NS | {"topic": "t"}, Use.SINK).max_message_size == 4 * 1024 * 1024 - 64 * 1024
    plan = SendPlan.of(
        parse(NS | {"topic": "t", "maxMessageSize": "100000", "onBadRow": "skip"}, Use.SINK),
        ClusterAccess("1.2.3.4:9876"),
    )
    assert (plan.max_body, plan.batch_bytes, plan.skip_bad) == (100_000, 100_000, True)
    assert (
        parse(
            NS | {"topic": "t", "maxMessageSize": "10m", "batchBytes": "8m"}, Use.SINK
        ).batch_bytes
        == 8 << 20
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "no queue"),
        ("[]", "must look like"),
        ('{"t":{"b":["0"]}}', "must look like"),
        ('{"t":{"b":[-1]}}', "must look like"),
        ("x", "no JSON"),
    ],
)
def test_queues_that_cannot_be_assigned(text: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse(NS | {"assign": text}, Use.BATCH)


def test_where_to_begin_and_to_end() -> None:
    assert read(startingOffsets="EARLIEST").starting_offsets is Edge.EARLIEST
    one = QueueKey("orders", "b", 0)
    assert read(startingOffsets='{"orders":{"b":{"0":-2}}}').starting_offsets == {one: EARLIEST}
    assert (
        read(startingTimestamp="2026-01-31T12:00:00+01:00").starting_timestamp == 1_769_857_200_000
    )
    assert read(
        Use.BATCH, endingOffsetsByTimestamp='{"orders":{"b":{"0":7}}}'
    ).ending_offsets_by_timestamp == {one: 7}
    assert parse(NS | {"assign": '{"orders":{"b":[1,0,1]}}'}, Use.BATCH).assign == (
        one,
        QueueKey("orders", "b", 1),
    )


def test_kafkas_precedence_is_told() -> None:
    both = read(
        startingTimestamp="5",
        startingOffsets="earliest",
        startingOffsetsByTimestamp='{"orders":{"b":{"0":7}}}',
    )
    assert overruled(both) == [
        "startingOffsetsByTimestamp does not count beside startingTimestamp",
        "startingOffsets does not count beside startingTimestamp",
    ]
    assert overruled(read(Use.BATCH, endingTimestamp="5")) == []


def test_secrets_are_shown_nowhere() -> None:
    settings = read(accessKey="me", secretKey="s3cr3t", securityToken="t0k3n")
    assert settings.secret_key == "s3cr3t"
    assert "s3cr3t" not in repr(settings)
    assert "t0k3n" not in repr(settings)
    assert "me" in repr(settings)
    with pytest.raises(OptionError) as caught:
        read(secretKey=" ")
    assert "''" not in str(caught.value)


def test_the_page_has_every_option() -> None:
    assert [line.split("`")[1] for line in page().splitlines()[2:]] == [
        option.name for option in OPTIONS
    ]
