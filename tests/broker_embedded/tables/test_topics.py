"""The table of topics: what is there at the start, what a send makes, what the file
holds.
"""

from __future__ import annotations

import attrs
import pytest

from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.broker_embedded.tables.topics import TopicManager
from rocketmq_sdk.errors import ConfigurationError, StoreCorruptError, StoreError
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from support.administration import FailingTable, FixedClock, TableInMemory


def manager(file: TableInMemory | None = None, **settings: object) -> TopicManager:
    return TopicManager(file, LiveConfig(BrokerConfig(**settings)), FixedClock())  # type: ignore[arg-type]


def test_system_topics() -> None:
    table = {
        name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        for name, topic in manager().all().items()
    }
    assert table == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "RMQ_SYS_TRACE_TOPIC": (1, 1, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }


def test_system_topics_follow_the_settings() -> None:
    topics = manager(
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=False,
        timer_wheel_enable=False,
        broker_name="b",
    )
    assert topics.get("TBW102") is None
    assert topics.get("RMQ_SYS_TRACE_TOPIC") is None
    assert topics.get("rmq_sys_wheel_timer") is None
    cluster, broker = topics.get("DefaultCluster"), topics.get("b")
    assert cluster is not None
    assert broker is not None
    assert (cluster.perm, broker.perm) == (1, 1)


@pytest.mark.parametrize(("asked", "queues"), [(4, 4), (8, 8), (100, 8), (0, 0), (-3, 0)])
def test_a_send_makes_a_topic_after_its_default_topic(asked: int, queues: int) -> None:
    file = TableInMemory()
    topics = manager(file)
    told: list[TopicConfig] = []
    topics.on_change = lambda topic: told.append(topic) if file.writes else None
    version = topics.data_version
    made = topics.create_on_send("T", "TBW102", asked)
    assert made == TopicConfig("T", queues, queues, 6)
    assert told == [made], "the file is written before anybody is told"
    assert topics.data_version.counter == version.counter + 1
    assert manager(file).get("T") == made
    assert topics.create_on_send("T", "nothing", 1) is made
    assert len(told) == 1


def test_what_cannot_be_inherited_makes_nothing() -> None:
    topics = manager()
    assert topics.create_on_send("T", "nowhere", 4) is None
    assert topics.create_on_send("T", "BenchmarkTest", 4) is None
    assert topics.create_on_send("T", "DefaultCluster", 4) is not None


def test_switching_creation_off_takes_the_inherit_bit_for_good() -> None:
    config = LiveConfig(BrokerConfig())
    topics = TopicManager(None, config, FixedClock())
    config.update({"autoCreateTopicEnable": "false"}, 1)
    assert topics.create_on_send("T", "TBW102", 4) is None
    default = topics.get("TBW102")
    assert default is not None
    assert default.perm == 6
    config.update({"autoCreateTopicEnable": "true"}, 2)
    assert topics.create_on_send("T", "TBW102", 4) is None


def test_retry_topics() -> None:
    topics = manager()
    made = topics.create_retry("%RETRY%g", 2, 6, 2)
    assert made == TopicConfig("%RETRY%g", 2, 2, 6, topic_sys_flag=2)
    assert topics.create_retry("%RETRY%g") is made


def test_updates_take_attributes_in_request_syntax() -> None:
    topics = manager()
    assert topics.update(TopicConfig("T", 2, 2, attributes={"+message.type": "FIFO"}))
    made = topics.get("T")
    assert made is not None
    assert made.attributes == {"message.type": "FIFO"}
    assert topics.update(TopicConfig("T", 4, 4))
    with pytest.raises(ConfigurationError, match="unchangeable"):
        topics.update(TopicConfig("T", 4, 4, attributes={"+queue.type": "BatchCQ"}))
    changed = topics.get("T")
    assert changed is not None
    assert (changed.read_queue_nums, changed.attributes) == (4, {"message.type": "FIFO"})
    version = topics.data_version
    topics.update(TopicConfig("Plain"))
    counter = topics.data_version.counter
    assert counter == version.counter + 1
    assert not topics.update(TopicConfig("Plain"))
    assert topics.data_version.counter == counter


def test_the_file_wins_over_system_topics_and_keeps_what_is_unknown() -> None:
    stored = {**TopicConfig("TBW102", 3, 3, 7).to_json(), "newerMember": {"a": 1}}
    file = TableInMemory(
        {
            "dataVersion": {"counter": 9, "stateVersion": 0, "timestamp": 5},
            "topicConfigTable": {"TBW102": stored},
        }
    )
    topics = manager(file)
    default = topics.get("TBW102")
    assert default is not None
    assert default.write_queue_nums == 3
    assert topics.data_version.counter == 9
    topics.put(attrs.evolve(default, read_queue_nums=4))
    content = file.load()
    assert isinstance(content, dict)
    assert content["topicConfigTable"]["TBW102"]["newerMember"] == {"a": 1}
    assert content["topicConfigTable"]["TBW102"]["readQueueNums"] == 4
    assert content["dataVersion"]["counter"] == 10


@pytest.mark.parametrize("content", [[1], {"topicConfigTable": {"T": {"readQueueNums": "many"}}}])
def test_a_file_of_something_else_is_refused_by_name(content: object) -> None:
    with pytest.raises(StoreCorruptError, match=r"topics\.json"):
        manager(TableInMemory(content))


def test_deleting() -> None:
    file = TableInMemory()
    topics = manager(file)
    topics.update(TopicConfig("T"))
    assert topics.delete("T")
    assert not topics.delete("T")
    assert manager(file).get("T") is None


@pytest.mark.parametrize(
    ("topic", "system"),
    [
        ("TBW102", True),
        ("broker-a", True),
        ("DefaultCluster", True),
        ("rmq_sys_x", True),
        ("CHECKPOINT_TOPIC", True),
        ("T", False),
    ],
)
def test_which_topics_belong_to_the_broker(topic: str, system: bool) -> None:
    topics = manager()
    assert topics.is_system(topic) is system
    assert "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC" in topics.system_names()


def test_a_change_that_cannot_be_written_has_not_happened() -> None:
    file = FailingTable()
    topics = manager(file)
    kept = topics.create_retry("kept", 2)
    told: list[str] = []
    topics.on_change = lambda topic: told.append(topic.topic_name)
    before, version = dict(topics.all()), topics.data_version
    file.fails = True
    for change in (
        lambda: topics.create_on_send("T", "TBW102", 4),
        lambda: topics.create_retry("%RETRY%g"),
        lambda: topics.update(TopicConfig("T", 2, 2)),
        lambda: topics.update(attrs.evolve(kept, perm=4)),
        lambda: topics.set_order("kept"),
        lambda: topics.delete("kept"),
    ):
        with pytest.raises(StoreError):
            change()
        assert (topics.all(), topics.data_version, told) == (before, version, [])
    file.fails = False
    made = topics.create_on_send("T", "TBW102", 4)
    assert made is not None
    assert told == ["T"]
    assert manager(file).all() == {**before, "T": made}
    assert topics.data_version.counter == version.counter + 1


def test_changes_together_are_all_or_none() -> None:
    file = FailingTable(
        {
            "topicConfigTable": {"old": {**TopicConfig("old").to_json(), "newerMember": 1}},
            "dataVersion": {"counter": 3},
        }
    )
    topics = manager(file)
    told: list[str] = []
    topics.on_change = lambda topic: told.append(topic.topic_name)
    before = dict(topics.all())

    def change_all() -> None:
        with topics.together():
            topics.delete("old")
            topics.create_retry("one")
            topics.create_retry("two")
            assert "one" not in told, "nobody is told of what may never be"

    file.fails = True
    with pytest.raises(StoreError):
        change_all()
    assert (topics.all(), told) == (before, [])
    file.fails = False
    topics.create_retry("three")
    content = file.load()
    assert isinstance(content, dict)
    assert content["topicConfigTable"]["old"]["newerMember"] == 1
    assert "one" not in content["topicConfigTable"]
    change_all()
    assert told == ["three", "one", "two"]
    assert file.writes == 2
    assert manager(file).get("old") is None


def test_a_version_that_cannot_be_written_counts_all_the_same() -> None:
    file = FailingTable()
    topics = manager(file)
    file.fails = True
    topics.renew_version()
    assert topics.data_version.counter == 1
    file.fails = False
    topics.create_retry("T")
    assert manager(file).data_version.counter == 2


def test_an_entry_without_content_is_no_topic() -> None:
    topics = manager(TableInMemory({"topicConfigTable": {"T": None, "U": {"topicName": "U"}}}))
    assert topics.get("T") is None
    assert topics.get("U") is not None
