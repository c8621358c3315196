"""Allocation against vectors recorded from Apache RocketMQ 5.4.0, and as a property: every queue has one owner."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.consumer.assign.average import Average, AverageByCircle
from rocketmq_sdk.consumer.assign.difference import difference, wanted_queues
from rocketmq_sdk.consumer.assign.strategy import AllocateStrategy
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.queue import MessageQueue

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "codec" / "allocate.json").read_text())
SETTINGS = [vector for vector in VECTORS if "topic" in vector]
ARGUMENTS = [vector for vector in VECTORS if vector.get("kind") == "AVG arguments"]
STRATEGIES: list[AllocateStrategy] = [Average(), AverageByCircle()]


def queues_of(text: str | None, topic: str) -> list[MessageQueue]:
    parts = [part.rpartition(":") for part in (text or "").split()]
    return [MessageQueue(topic, broker_name, int(number)) for broker_name, _, number in parts]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_the_recorded_allocations(strategy: AllocateStrategy) -> None:
    assert len(SETTINGS) == 150
    for vector in SETTINGS:
        queues = queues_of(vector["mqAll"], vector["topic"])
        found = strategy.allocate(vector["currentCID"], queues, vector["cidAll"])
        assert found == queues_of(vector[strategy.name], vector["topic"]), vector


def test_the_recorded_names() -> None:
    named = next(vector for vector in SETTINGS if "name_AVG" in vector)
    assert [strategy.name for strategy in STRATEGIES] == [named["name_AVG"], named["name_AVG_BY_CIRCLE"]]


@pytest.mark.parametrize("vector", ARGUMENTS)
def test_empty_arguments_are_errors(vector: dict[str, Any]) -> None:
    assert "error" in vector["AVG"]
    with pytest.raises(ConfigurationError):
        Average().allocate(vector["currentCID"] or "", queues_of(vector["mqAll"], "T"), vector["cidAll"] or [])


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
@settings(deadline=None)
@given(
    queue_nums=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 17), min_size=1), members=st.sets(st.text("abc@#1", min_size=1), min_size=1)
)
def test_every_queue_has_one_owner_however_the_lists_are_ordered(strategy: AllocateStrategy, queue_nums: dict[str, int], members: set[str]) -> None:
    queues = [MessageQueue("T", broker, number) for broker, count in queue_nums.items() for number in range(count)]
    shares = [wanted_queues(strategy, member, reversed_or_not, list(members)) for member in members for reversed_or_not in (queues[::-1],)]
    assert sorted(queue for share in shares for queue in share) == sorted(queues)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert strategy.allocate("nobody here", queues, sorted(members)) == []


def test_queues_are_sorted_by_number_and_members_as_texts() -> None:
    queues = [MessageQueue("T", "b", number) for number in (10, 2, 1, 0)]
    assert [queue.queue_id for queue in wanted_queues(Average(), "c1", queues, ["c2", "c10", "c1"])] == [0, 1]
    assert [queue.queue_id for queue in wanted_queues(Average(), "c10", queues, ["c2", "c10", "c1"])] == [2]


def test_a_member_that_a_broker_lists_twice_counts_once() -> None:
    queues = [MessageQueue("T", "b", number) for number in range(4)]
    assert len(wanted_queues(Average(), "a", queues, ["a", "b", "a"])) == 2


NUMBERS = st.sets(st.integers(0, 20)).map(lambda numbers: [MessageQueue("T", "b", number) for number in numbers])


@settings(deadline=None)
@given(owned=NUMBERS, wanted=NUMBERS)
def test_a_difference_applied_gives_what_is_wanted(owned: list[MessageQueue], wanted: list[MessageQueue]) -> None:
    change = difference(owned, wanted)
    assert set(change.revoked) <= set(owned)
    assert not set(change.added) & set(owned)
    assert (set(owned) - set(change.revoked)) | set(change.added) == set(wanted)
    assert change.is_empty == (set(owned) == set(wanted))
