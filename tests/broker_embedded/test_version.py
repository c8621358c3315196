"""What a broker that reports version 493 (V5_4_0) has to do for clients and directories
of that release, rule by rule.

The recall keys of timers are tested with the timers, waiting pops that retried messages
wake with pop.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.codes import CLIENT_VERSION, RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.names import NOT_SENDABLE_TOPICS, SYSTEM_TOPICS, check_send_topic
from rocketmq_sdk.protocol.bodies.progress import TopicStatsTable
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_broker, open_on, send_request

if TYPE_CHECKING:
    from trio.testing import MockClock

ROCKSDB = ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")


async def test_the_version_is_told_in_every_answer(autojump_clock: MockClock) -> None:
    assert CLIENT_VERSION == 493
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            assert (await peer.send("orders", b"x")).version == 493
            assert (await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).version == 493


async def test_object_keys_are_nested_objects_in_both_directions(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            await peer.send("orders", b"x")
            answer = await peer.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="orders")
            assert b'{"offsetTable":{{"brokerName":' in answer.body.replace(
                b'"topicPutTps":0,', b""
            ).replace(b'"topicPutTps":0.0,', b"")
            spaced = answer.body.replace(b"{{", b"{\n\t{ ").replace(b"}:{", b"} :\n{ ")
            assert TopicStatsTable.decode(spaced) == TopicStatsTable.decode(answer.body)


async def test_files_of_rocksdb_and_snapshots_are_left_alone(autojump_clock: MockClock) -> None:
    files = FaultyFileSystem()
    for path in (
        "rocksdbstore/CURRENT",
        "rocksdbstore/LOCK",
        "timerwheel.12345",
        "timerwheel.12345.tmp",
    ):
        files.write(path, b"not ours")
    with trio.fail_after(60):
        for _ in range(2):
            async with open_on(files) as (_broker, peer):
                await peer.send("orders", b"x")
    for path in (
        "rocksdbstore/CURRENT",
        "rocksdbstore/LOCK",
        "timerwheel.12345",
        "timerwheel.12345.tmp",
    ):
        assert files.read(path) == b"not ours", path


async def test_unknown_members_of_config_files_are_no_hindrance(autojump_clock: MockClock) -> None:
    files = FaultyFileSystem()
    with trio.fail_after(60):
        async with open_on(files) as (broker, peer):
            broker.core.topics.put(
                TopicConfig("urgent", 2, 2, attributes={"message.type": "PRIORITY"})
            )
            broker.core.offsets.commit("CG", "orders", 0, 7)
        for name, member, value in (
            ("consumerOffset.json", "groupTopicMap", {"CG": ["orders"]}),
            ("consumerOrderInfo.json", "orderedConsumptionLevel", "QUEUE"),
            ("topics.json", "somethingNew", {"a": [1]}),
        ):
            path = f"config/{name}"
            content = json.loads((files.read(path) or b"{}").strip() or b"{}")
            content[member] = value
            files.write(path, json.dumps(content).encode())
        async with open_on(files) as (broker, peer):
            assert broker.core.offsets.query("CG", "orders", 0) == 7
            urgent = broker.core.topics.get("urgent")
            assert urgent is not None
            assert urgent.attributes == {"message.type": "PRIORITY"}
            await peer.send("urgent", b"x")


async def test_queues_are_complete_after_a_stop(autojump_clock: MockClock) -> None:
    """A broker of Apache's looks back ten files at most."""
    files = FaultyFileSystem()
    with trio.fail_after(60):
        async with open_on(files, mapped_file_size_commit_log=4096) as (_broker, peer):
            for _ in range(200):
                await peer.send("orders", bytes(200))
        written = sum(size for _name, size in files.file_sizes("commitlog"))
        assert written > 12 * 4096
        units = files.read("consumequeue/orders/0/00000000000000000000") or b""
        assert all(
            int.from_bytes(units[20 * number + 8 : 20 * number + 12]) > 200 for number in range(200)
        )


async def test_queries_with_the_fields_of_a_new_client_are_served(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            await peer.send("orders", b"x", properties="KEYS\x01k1\x02", tag="A")
            wanted = {
                "topic": "orders",
                "maxNum": 32,
                "beginTimestamp": 0,
                "endTimestamp": (1 << 62),
                "lastKey": "",
            }
            for index_type, key in (("K", "k1"), ("T", "A")):
                answer = await peer.ask(
                    RequestCode.QUERY_MESSAGE, key=key, indexType=index_type, **wanted
                )
                assert answer.code == 0, answer.remark
                assert b"k1" in answer.body


async def test_a_priority_chooses_the_queue(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            broker.core.topics.put(TopicConfig("orders", 4, 4))
            for priority, queue in (("2", "2"), ("9", "3")):
                answer = await peer.send(
                    "orders", b"x", queue_id=1, properties=f"_SYS_MSG_PRIORITY_\x01{priority}\x02"
                )
                assert answer.ext_fields["queueId"] == queue


async def test_the_topics_of_rocksdb_transactions_belong_to_the_broker(
    autojump_clock: MockClock,
) -> None:
    assert set(ROCKSDB) <= NOT_SENDABLE_TOPICS & SYSTEM_TOPICS
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            for topic in ROCKSDB:
                config = broker.core.topics.get(topic)
                assert config is not None
                assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
                assert (
                    await peer.ask(send_request(topic, b"x"))
                ).code == ResponseCode.NO_PERMISSION
                with pytest.raises(ConfigurationError):
                    check_send_topic(topic)


@pytest.mark.parametrize("name", ["_SYS_MSG_PRIORITY_", "ORIGIN_GROUP"])
def test_the_new_properties_are_reserved(name: str) -> None:
    with pytest.raises(ConfigurationError, match="reserved"):
        Message("orders", b"x", properties={name: "1"})
