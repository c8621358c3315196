"""Fault avoidance against what Apache's classes answered, and the classic generation
against its rules.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.producer.fault_strategy import (
    CLASSIC,
    TODAY,
    LatencyFaultTolerance,
    MQFaultStrategy,
    fault_profile,
)
from rocketmq_sdk.producer.queue_selector import QueueIndex
from support.paths import CODEC_VECTORS

VECTORS: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "latency.json").read_text())
NOW = 1_000_000


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [vector for vector in VECTORS if vector["kind"] == kind]


def test_tables() -> None:
    (tables,) = of_kind("tables")
    assert list(TODAY.latency_max) == tables["latencyMax"]
    assert list(TODAY.not_available_duration) == tables["notAvailableDuration"]


@pytest.mark.parametrize(
    "vector", of_kind("computeNotAvailableDuration"), ids=lambda vector: str(vector["latency"])
)
def test_compute_not_available_duration(vector: dict[str, Any]) -> None:
    assert TODAY.compute_not_available_duration(vector["latency"]) == vector["duration"]


def java_int(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


@pytest.mark.parametrize("vector", of_kind("sequence"), ids=lambda vector: str(vector["seed"]))
def test_selection_sequences(vector: dict[str, Any]) -> None:
    strategy = MQFaultStrategy(TODAY if vector["send_latency_enable"] else None)
    queues = [
        MessageQueue("t", f"b{broker}", queue)
        for broker in range(vector["brokers"])
        for queue in range(vector["queues_per_broker"])
    ]
    index = QueueIndex(vector["index_before"])
    for step in vector["steps"]:
        if step["op"] == "select":
            queue = strategy.select(queues, index, last_broker=step["lastBroker"], now=NOW)
            assert f"{queue.broker_name}:{queue.queue_id}" == step["selected"]
            assert index.value == java_int(step["index_after"])
        else:
            strategy.update_fault_item(
                step["broker"],
                step["latency"],
                isolation=step["isolation"],
                reachable=step["reachable"],
                now=NOW,
            )


@pytest.mark.parametrize(
    "vector", of_kind("pickOneAtLeast"), ids=lambda vector: str(vector["case"])
)
def test_pick_one_at_least(vector: dict[str, Any]) -> None:
    tolerance = LatencyFaultTolerance()
    away = {
        "no items": [],
        "b1,b2 unreachable": ["b1", "b2"],
        "b1 reachable, b2 unreachable": ["b2"],
    }[vector["case"]]
    for name in ("b1", "b2") if vector["case"] != "no items" else ():
        tolerance.update_fault_item(name, 10000, 10000, reachable=name not in away, now=NOW)
    picked = {tolerance.pick_one_at_least() for _ in range(50)}
    assert sorted(picked - {None}, key=str) == vector["picked"]
    assert (None in picked) == vector["null_seen"]
    assert tolerance.is_available("b1", NOW) == vector["b1_available"]
    assert tolerance.is_reachable("b1") == vector["b1_reachable"]
    assert tolerance.is_available("unknown", NOW) == vector["unknown_available"]
    assert tolerance.is_reachable("unknown") == vector["unknown_reachable"]


def test_a_time_away_is_over_in_the_end() -> None:
    tolerance = LatencyFaultTolerance()
    tolerance.update_fault_item("b", 600, 2000, reachable=True, now=NOW)
    assert not tolerance.is_available("b", NOW + 1999)
    assert tolerance.is_available("b", NOW + 2000)


def test_today_a_quick_answer_does_not_shorten_a_time_away_and_in_the_classic_rules_it_does() -> (
    None
):
    for profile, available in ((TODAY, False), (CLASSIC, True)):
        strategy = MQFaultStrategy(profile)
        strategy.update_fault_item("b", 0, isolation=True, reachable=False, now=NOW)
        strategy.update_fault_item("b", 1, isolation=False, reachable=True, now=NOW + 1)
        assert strategy.tolerance.is_available("b", NOW + 1) is available
        assert strategy.tolerance.is_reachable("b")


@pytest.mark.parametrize(
    ("latency", "duration"),
    [
        (0, 0),
        (99, 0),
        (549, 0),
        (550, 30000),
        (999, 30000),
        (1000, 60000),
        (2000, 120000),
        (3000, 180000),
        (14999, 180000),
        (15000, 600000),
    ],
)
def test_the_classic_table(latency: int, duration: int) -> None:
    assert CLASSIC.compute_not_available_duration(latency) == duration
    assert CLASSIC.isolation_latency == 30000


def queues_of(brokers: int, each: int) -> list[MessageQueue]:
    return [
        MessageQueue("t", f"b{broker}", queue) for broker in range(brokers) for queue in range(each)
    ]


def test_classic_retries_stay_with_the_broker_while_it_is_available() -> None:
    strategy = MQFaultStrategy(CLASSIC)
    index = QueueIndex(-1)
    chosen = [
        strategy.select(queues_of(3, 2), index, last_broker="b1", retry=True, now=NOW).broker_name
        for _ in range(10)
    ]
    assert set(chosen) == {"b1"}


def test_classic_falls_back_on_the_better_half() -> None:
    strategy = MQFaultStrategy(CLASSIC)
    index = QueueIndex(-1)
    for name, latency in (("b0", 16000), ("b1", 600), ("b2", 2500), ("b3", 700)):
        strategy.update_fault_item(name, latency, isolation=False, reachable=True, now=NOW)
    chosen = [strategy.select(queues_of(4, 2), index, now=NOW) for _ in range(8)]
    assert {queue.broker_name for queue in chosen} == {"b1", "b3"}
    assert {queue.queue_id for queue in chosen} == {0, 1}


def test_classic_forgets_a_broker_without_queues() -> None:
    strategy = MQFaultStrategy(CLASSIC)
    for name in ("gone", "b0"):
        strategy.update_fault_item(name, 0, isolation=True, reachable=False, now=NOW)
    names = {strategy.select(queues_of(1, 1), QueueIndex(), now=NOW).broker_name for _ in range(20)}
    assert names == {"b0"}
    assert {item.name for item in strategy.tolerance.items} == {"b0"}


def test_with_one_known_broker_classic_picks_it() -> None:
    tolerance = LatencyFaultTolerance()
    assert tolerance.pick_of_better_half(NOW) is None
    tolerance.update_fault_item("only", 1, 0, reachable=True, now=NOW)
    assert tolerance.pick_of_better_half(NOW) == "only"


def test_a_retry_today_starts_anywhere() -> None:
    strategy = MQFaultStrategy(TODAY)
    index = QueueIndex(0)
    seen = {
        strategy.select(queues_of(2, 50), index, last_broker="b0", retry=True, now=NOW)
        for _ in range(30)
    }
    assert {queue.broker_name for queue in seen} == {"b1"}
    assert len(seen) > 5


def test_the_detector_looks_at_each_once_per_interval() -> None:
    tolerance = LatencyFaultTolerance()
    tolerance.update_fault_item("b", 1, 0, reachable=False, now=NOW)
    assert tolerance.due_for_detection(NOW, 2000) == ["b"]
    assert tolerance.due_for_detection(NOW + 1999, 2000) == []
    assert tolerance.due_for_detection(NOW + 2000, 2000) == ["b"]
    assert not tolerance.is_reachable("b")
    tolerance.mark_reachable("b")
    assert tolerance.is_reachable("b")


def test_profiles_by_name() -> None:
    assert fault_profile(None) is None
    assert fault_profile("today") is TODAY
    assert fault_profile("classic") is CLASSIC
    with pytest.raises(ConfigurationError, match="there are"):
        fault_profile("tomorrow")
