"""Config files that Apache's brokers wrote: loaded as Apache loads them, and written
again with everything that is in them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.tables.groups import GroupManager
from rocketmq_sdk.protocol.json.dialect import decode_json
from support.administration import FixedClock
from support.store import expected, unpack

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time

NAMES = [
    "plain",
    "kitchen-sink",
    "kitchen-sink-5.3.3",
    "killed",
    "torn",
    "master",
    "slave",
    "long-topic",
    "batch-cq",
]


def open_recorded(name: str, root: Path) -> EmbeddedBroker:
    sizes = expected(name)["sizes"]
    texts = {
        key: str(size) for key, size in sizes.items() if "Size" in key or key.startswith("max")
    }
    config, _warnings = BrokerConfig().with_settings({**texts, "diskMaxUsedSpaceRatio": "95"})
    return EmbeddedBroker(root, config=config)


def numbers(table: dict[str, Any]) -> dict[str, dict[int, int]]:
    return {
        key: {int(queue): int(offset) for queue, offset in offsets.items()}
        for key, offsets in table.items()
    }


@pytest.mark.parametrize("name", NAMES)
async def test_a_broker_takes_everything_over(name: str, tmp_path: Path) -> None:
    wanted = expected(name)["metadata"]
    root = unpack(name, tmp_path)
    async with open_recorded(name, root) as broker:
        core = broker.core
        for topic, members in wanted["topics"]["topicConfigTable"].items():
            found = core.topics.get(topic)
            if found is None:
                # What this broker has no use for, such as the topics of stores in
                # RocksDB; Apache makes them at each start.
                assert topic.startswith(
                    ("RMQ_SYS_ROCKSDB", "rmq_sys", "TBW102", "OFFSET_MOVED")
                ) or topic in _system_names(wanted), topic
                continue
            assert (
                found.to_json().items()
                >= {key: value for key, value in members.items() if key in found.to_json()}.items()
            )
        for group, members in wanted["subscription_groups"]["subscriptionGroupTable"].items():
            config = core.groups.get(group)
            assert config is not None
            assert (
                config.to_json().items()
                >= {key: value for key, value in members.items() if value is not None}.items()
            )
        for group, masks in wanted["subscription_groups"]["forbiddenTable"].items():
            assert core.groups.forbidden[group] == masks
        for key, queues in numbers(wanted["consumer_offsets"]["offsetTable"]).items():
            topic, _, group = key.partition("@")
            assert {queue: core.offsets.query(group, topic, queue) for queue in queues} == queues
    for path in sorted((root / "config").glob("*.json")):
        decode_json(path.read_bytes())
    await trio.lowlevel.checkpoint()


def _system_names(wanted: dict[str, Any]) -> set[str]:
    return {topic for topic in wanted["topics"]["topicConfigTable"] if topic.isupper()}


async def test_members_that_nobody_knows_are_kept() -> None:
    files = MemoryFileSystem()
    files.write(
        "config/topics.json",
        json.dumps(
            {"topicConfigTable": {}, "dataVersion": {}, "of a later release": {"a": [1]}}
        ).encode(),
    )
    file = ConfigFile(files, "topics.json")
    file.load()
    for value in ({"topicConfigTable": {"T": {}}}, {"topicConfigTable": {}, "dataVersion": None}):
        file.store(value)
    await file.save({"topicConfigTable": {"U": {}}})
    stored = ConfigFile(files, "topics.json").load()
    assert isinstance(stored, dict)
    assert stored["of a later release"] == {"a": [1]}
    assert stored["topicConfigTable"] == {"U": {}}


async def test_members_of_a_group_that_nobody_knows_are_kept_until_it_is_deleted() -> None:
    files = MemoryFileSystem()
    group = {"groupName": "g", "retryMaxTimes": 3, "laterMember": "kept"}
    files.write(
        "config/subscriptionGroup.json",
        json.dumps({"subscriptionGroupTable": {"g": group}}).encode(),
    )
    groups = GroupManager(
        ConfigFile(files, "subscriptionGroup.json"), LiveConfig(BrokerConfig()), FixedClock()
    )
    groups.disable_consume("g")
    stored: Any = ConfigFile(files, "subscriptionGroup.json").load()
    assert (
        stored["subscriptionGroupTable"]["g"].items()
        >= {"laterMember": "kept", "retryMaxTimes": 3, "consumeEnable": False}.items()
    )
    groups.delete("g")
    stored = ConfigFile(files, "subscriptionGroup.json").load()
    assert "g" not in stored["subscriptionGroupTable"]
