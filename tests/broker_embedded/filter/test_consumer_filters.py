"""What groups want by SQL92: registration, death, cleaning, and the file."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.filter.bloom import BloomFilter
from rocketmq_sdk.broker_embedded.filter.consumer_filters import ConsumerFilterManager
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.errors import FieldError, FilterSyntaxError
from rocketmq_sdk.protocol.subscription import SubscriptionData

if TYPE_CHECKING:
    from pathlib import Path

# Written by Apache 5.4.0 (`store/kitchen-sink` of the recorded directories).
OF_APACHE = {
    "filterDataByTopic": {
        "KSql": {
            "groupFilterData": {
                "CG_sql": {
                    "bloomFilterData": {"bitNum": 112, "bitPos": [33, 14, 4]},
                    "bornTime": 1795238866551,
                    "clientVersion": 1795238867510,
                    "consumerGroup": "CG_sql",
                    "dead": True,
                    "deadTime": 1795238907193,
                    "expression": "a between 1 and 2 AND TAGS = 'TagA'",
                    "expressionType": "SQL92",
                    "topic": "KSql",
                }
            },
            "topic": "KSql",
        }
    }
}


class SetClock:
    """A clock that stands where a test puts it."""

    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


def manager(clock: SetClock | None = None, file: ConfigFile | None = None) -> ConsumerFilterManager:
    return ConsumerFilterManager(file, clock or SetClock(), BloomFilter())


def sql(topic: str, expression: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version, expression_type="SQL92")


def test_tags_are_not_kept_and_expressions_are() -> None:
    filters = manager()
    filters.register("CG", [SubscriptionData("tags"), sql("orders", "a > 3")])
    assert filters.get("tags", "CG") is None
    data = filters.get("orders", "CG")
    assert data is not None
    assert data.compiled is not None
    assert data.compiled.matches({"a": "4"})
    assert not data.compiled.matches({"a": "3"})
    assert data.positions == BloomFilter().positions("CG#orders")
    assert (data.born_time, data.dead_time, data.dead) == (1_000_000, 0, False)


def test_an_older_version_changes_nothing_and_a_newer_one_is_compiled_anew() -> None:
    clock = SetClock()
    filters = manager(clock)
    filters.register("CG", [sql("orders", "a > 3", 5)])
    first = filters.get("orders", "CG")
    filters.register("CG", [sql("orders", "a > 4", 4)])
    filters.register("CG", [sql("orders", "a > 4", 5)])
    assert filters.get("orders", "CG") is first
    clock.now += 1000
    filters.register("CG", [sql("orders", "a > 3", 6)])
    assert filters.get("orders", "CG") is first
    assert first is not None
    assert (first.client_version, first.born_time) == (6, 1_000_000)
    filters.register("CG", [sql("orders", "a > 4", 7)])
    second = filters.get("orders", "CG")
    assert second is not None
    assert (second.expression, second.born_time) == ("a > 4", 1_001_000)


def test_a_newer_expression_with_an_error_removes_the_old_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    filters = manager()
    filters.register("CG", [sql("orders", "a > 3", 1)])
    with caplog.at_level(logging.WARNING):
        filters.register("CG", [sql("orders", "a >", 2)])
    assert filters.get("orders", "CG") is None
    assert "at position 4" in caplog.text


def test_a_topic_that_is_left_out_dies_and_comes_back_as_it_was() -> None:
    clock = SetClock()
    filters = manager(clock)
    filters.register("CG", [sql("orders", "a > 3", 1), sql("bills", "b > 3", 1)])
    bills = filters.get("bills", "CG")
    assert bills is not None
    clock.now += 10
    filters.register("CG", [sql("orders", "a > 3", 1)])
    assert (bills.dead, bills.dead_time) == (True, 1_000_010)
    filters.register("CG", [sql("orders", "a > 3", 1), sql("bills", "b > 3", 1)])
    assert not bills.dead
    assert filters.get("bills", "CG") is bills


def test_the_dead_are_kept_for_the_span_and_no_longer() -> None:
    clock = SetClock()
    filters = manager(clock)
    filters.register("CG", [sql("orders", "a > 3")])
    filters.register("living", [sql("orders", "a > 3")])
    clock.now += 10
    filters.unregister("CG")
    clock.now += 99
    filters.clean(100)
    assert filters.get("orders", "CG") is not None
    clock.now += 1
    filters.clean(100)
    assert filters.get("orders", "CG") is None
    assert filters.get("orders", "living") is not None


def test_bit_maps_say_which_groups_a_message_may_match() -> None:
    clock = SetClock()
    filters = manager(clock)
    assert filters.bit_map("orders", {"a": "5"}) is None
    filters.register("high", [sql("orders", "a > 3")])
    filters.register("low", [sql("orders", "a < 3")])
    high, low = filters.get("orders", "high"), filters.get("orders", "low")
    assert high is not None
    assert low is not None
    bits = filters.bit_map("orders", {"a": "5"})
    assert bits is not None
    assert len(bits) == 14
    later = clock.now + 1
    assert filters.may_match(high, bits, later)
    assert not filters.may_match(low, bits, later)
    assert filters.bit_map("orders", {"a": "no number"}) == bytes(14)


@pytest.mark.parametrize(
    ("bits", "seconds"), [(None, 1), (b"", 1), (bytes(15), 1), (bytes(14), 0), (bytes(14), -1)]
)
def test_without_a_map_of_its_time_and_size_a_message_may_match(
    bits: bytes | None, seconds: int
) -> None:
    clock = SetClock()
    filters = manager(clock)
    filters.register("high", [sql("orders", "a > 3")])
    data = filters.get("orders", "high")
    assert data is not None
    assert filters.may_match(data, bits, clock.now + seconds)


def test_deleted_topics_and_groups_are_forgotten() -> None:
    filters = manager()
    filters.register("a", [sql("orders", "a > 3"), sql("bills", "a > 3")])
    filters.register("b", [sql("orders", "a > 3")])
    filters.remove_topic("orders")
    assert [data.topic for data in filters] == ["bills"]
    filters.remove_group("a")
    assert list(filters) == []


def test_languages_that_are_unknown_have_a_reason() -> None:
    with pytest.raises(FilterSyntaxError, match="'XPATH' is no language of this broker"):
        manager().build("orders", "CG", "a", "XPATH", 1)


async def test_the_file_of_apache_is_read_and_written_as_it_was() -> None:
    files = MemoryFileSystem(1 << 20)
    ConfigFile(files, "consumerFilter.json").store(OF_APACHE)
    filters = manager(SetClock(1795239999999), ConfigFile(files, "consumerFilter.json"))
    filters.load()
    data = filters.get("KSql", "CG_sql")
    assert data is not None
    assert data.compiled is not None
    assert data.compiled.matches({"a": "2", "TAGS": "TagA"})
    assert filters.to_json() == OF_APACHE


def test_what_was_alive_is_dead_for_30_seconds_when_it_is_read() -> None:
    files = MemoryFileSystem(1 << 20)
    clock = SetClock()
    first = manager(clock, ConfigFile(files, "consumerFilter.json"))
    first.register("CG", [sql("orders", "a > 3")])
    ConfigFile(files, "consumerFilter.json").store(first.to_json())
    clock.now += 100_000
    second = manager(clock, ConfigFile(files, "consumerFilter.json"))
    second.load()
    data = second.get("orders", "CG")
    assert data is not None
    assert data.dead_time == 1_070_000


@pytest.mark.parametrize(
    "change", [{"bitNum": 120, "bitPos": [1, 2, 3]}, {"bitNum": 112, "bitPos": [1]}, None]
)
def test_a_file_for_another_bloom_filter_is_dropped_as_a_whole(change: object) -> None:
    files = MemoryFileSystem(1 << 20)
    content = json.loads(json.dumps(OF_APACHE))
    content["filterDataByTopic"]["KSql"]["groupFilterData"]["CG_sql"]["bloomFilterData"] = change
    ConfigFile(files, "consumerFilter.json").store(content)
    filters = manager(file=ConfigFile(files, "consumerFilter.json"))
    filters.load()
    assert list(filters) == []


@pytest.mark.parametrize(
    "content",
    [
        {"filterDataByTopic": [1]},
        {"filterDataByTopic": {"t": {"groupFilterData": {"g": {"topic": 1}}}}},
    ],
)
def test_other_content_is_an_error_that_names_the_file(content: object) -> None:
    files = MemoryFileSystem(1 << 20)
    ConfigFile(files, "consumerFilter.json").store(content)
    with pytest.raises(FieldError, match=r"consumerFilter\.json"):
        manager(file=ConfigFile(files, "consumerFilter.json")).load()


@pytest.mark.real_time
async def test_expressions_outlive_a_restart(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with EmbeddedBroker(tmp_path / "store") as broker:
            broker.parts.filters.expressions.register("CG", [sql("orders", "a > 3", 7)])
        written = ConfigFile(OsFileSystem(tmp_path / "store"), "consumerFilter.json").load()
        assert isinstance(written, dict)
        assert set(written["filterDataByTopic"]) == {"orders"}
        async with EmbeddedBroker(tmp_path / "store") as broker:
            data = broker.parts.filters.expressions.get("orders", "CG")
            assert data is not None
            assert (data.expression, data.client_version, data.dead) == ("a > 3", 7, True)
