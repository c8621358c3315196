"""Allocation against vectors recorded from Apache RocketMQ 5.4.0, and as a property:
every queue has one owner.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.consumer.assign.average import Average, AverageByCircle
from rocketmq_sdk.consumer.assign.by_config import ByConfig
from rocketmq_sdk.consumer.assign.consistent_hash import ConsistentHash, ring_hash
from rocketmq_sdk.consumer.assign.difference import difference, wanted_queues
from rocketmq_sdk.consumer.assign.machine_room import MachineRoom, MachineRoomNearby
from rocketmq_sdk.consumer.config import LitePullConfig, PushConfig
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model.queue import MessageQueue
from support.paths import CODEC_VECTORS

if TYPE_CHECKING:
    from rocketmq_sdk.consumer.assign.strategy import AllocateStrategy

VECTORS: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "allocate.json").read_text())
SETTINGS = [vector for vector in VECTORS if "topic" in vector]
ARGUMENTS = [vector for vector in VECTORS if vector.get("kind") == "AVG arguments"]


def nearby(inner: AllocateStrategy) -> MachineRoomNearby:
    return MachineRoomNearby(
        inner,
        room_of_queue=lambda queue: queue.broker_name.partition("@")[0],
        room_of_member=lambda client_id: client_id.partition("@")[0],
    )


STRATEGIES: dict[str, AllocateStrategy] = {
    "AVG": Average(),
    "AVG_BY_CIRCLE": AverageByCircle(),
    "CONSISTENT_HASH": ConsistentHash(),
    "CONSISTENT_HASH_3": ConsistentHash(3),
    "MACHINE_ROOM": MachineRoom(["idc0", "idc2"]),
    "MACHINE_ROOM_NEARBY-AVG": nearby(Average()),
    "MACHINE_ROOM_NEARBY-CONSISTENT_HASH": nearby(ConsistentHash()),
}


def queues_of(text: str | None, topic: str) -> list[MessageQueue]:
    parts = [part.rpartition(":") for part in (text or "").split()]
    return [MessageQueue(topic, broker_name, int(number)) for broker_name, _, number in parts]


@pytest.mark.parametrize("key", STRATEGIES)
def test_the_recorded_allocations(key: str) -> None:
    assert len(SETTINGS) == 150
    for vector in SETTINGS:
        queues = queues_of(vector["mqAll"], vector["topic"])
        found = STRATEGIES[key].allocate(vector["currentCID"], queues, vector["cidAll"])
        assert found == queues_of(vector[key], vector["topic"]), vector


def test_the_recorded_names_and_the_configured_queues() -> None:
    named = next(vector for vector in SETTINGS if "name_AVG" in vector)
    assert {key: strategy.name for key, strategy in STRATEGIES.items()} == {
        key: named[f"name_{key}"] for key in STRATEGIES
    }
    configured = ByConfig(queues_of(named["CONFIG"], named["topic"]))
    assert configured.name == named["name_CONFIG"]
    assert configured.allocate("anybody", [], []) == list(configured.queues)


@pytest.mark.parametrize("vector", ARGUMENTS)
def test_empty_arguments_are_errors(vector: dict[str, Any]) -> None:
    assert "error" in vector["AVG"]
    with pytest.raises(ConfigurationError):
        Average().allocate(
            vector["currentCID"] or "", queues_of(vector["mqAll"], "T"), vector["cidAll"] or []
        )


ROOMS = ["idc0", "idc1", "idc2"]
MEMBERS = st.sets(
    st.builds("{}@{}".format, st.sampled_from(ROOMS), st.text("abc#1", min_size=1)), min_size=1
)
QUEUES = st.dictionaries(
    st.builds("{}@{}".format, st.sampled_from(ROOMS), st.sampled_from("abc")),
    st.integers(1, 17),
    min_size=1,
).map(
    lambda nums: [
        MessageQueue("T", broker, number)
        for broker, count in nums.items()
        for number in range(count)
    ]
)


@pytest.mark.parametrize("key", STRATEGIES)
@settings(deadline=None, max_examples=40)
@given(queues=QUEUES, members=MEMBERS)
def test_every_queue_has_one_owner_however_the_lists_are_ordered(
    key: str, queues: list[MessageQueue], members: set[str]
) -> None:
    strategy = STRATEGIES[key]
    expected = [
        queue
        for queue in queues
        if key != "MACHINE_ROOM" or queue.broker_name.partition("@")[0] in ("idc0", "idc2")
    ]
    shares = [wanted_queues(strategy, member, queues[::-1], list(members)) for member in members]
    assert sorted(queue for share in shares for queue in share) == sorted(expected)
    if key in ("AVG", "AVG_BY_CIRCLE", "MACHINE_ROOM"):
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert strategy.allocate("idc0@nobody here", queues, sorted(members)) == []


@settings(deadline=None, max_examples=40)
@given(queues=QUEUES, members=MEMBERS, key=st.sampled_from(sorted(STRATEGIES)))
def test_a_strategy_is_a_pure_function(
    queues: list[MessageQueue], members: set[str], key: str
) -> None:
    strategy, ids = STRATEGIES[key], sorted(members)
    before = list(queues), list(ids)
    first = strategy.allocate(ids[0], queues, ids)
    assert strategy.allocate(ids[0], queues, ids) == first
    assert (queues, ids) == before


@settings(deadline=None, max_examples=40)
@given(queues=QUEUES, members=MEMBERS.filter(lambda members: len(members) > 1))
def test_with_consistent_hashing_only_the_queues_of_a_member_that_leaves_move(
    queues: list[MessageQueue], members: set[str]
) -> None:
    ids = sorted(members)
    gone, left = ids[0], ids[1:]
    for member in left:
        before, after = (
            set(ConsistentHash().allocate(member, queues, present)) for present in (ids, left)
        )
        assert before <= after
        assert after - before <= set(ConsistentHash().allocate(gone, queues, ids))


def test_the_place_of_a_queue_on_the_ring() -> None:
    texts = [
        f"MessageQueue [topic=T, brokerName=broker-a, queueId={number}]" for number in range(4)
    ]
    assert [ring_hash(text) for text in texts] == [1630488180, 2335566527, 5127707, 3682045333]


def test_settings_of_strategies_that_make_no_sense_are_refused() -> None:
    for bad in (0, -1, True, "3"):
        with pytest.raises(ConfigurationError, match="virtual_nodes"):
            ConsistentHash(bad)  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(ConfigurationError, match="rooms"):
        MachineRoom([])
    with pytest.raises(ConfigurationError, match="no MessageQueue"):
        ByConfig(["orders"])  # type: ignore[list-item]  # what the test is about
    with pytest.raises(ConfigurationError, match="MachineRoomNearby needs"):
        # What the test is about.
        MachineRoomNearby(Average(), room_of_queue="idc0", room_of_member=str)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [Average, "Average", None, 5, object(), list])
def test_what_is_no_strategy_is_refused_with_the_remedy(wrong: Any) -> None:
    for make in (
        lambda: PushConfig(strategy=wrong),
        lambda: LitePullConfig(strategy=wrong),
        lambda: MachineRoomNearby(wrong, room_of_queue=str, room_of_member=str),
    ):
        with pytest.raises(WrongTypeError, match=r"(strategy|inner) is .*; give .*") as raised:
            make()
        text = str(raised.value)
        assert ("as Average(), not the class" if wrong is Average else "sdk.Average()") in text


def test_a_member_without_a_room_is_an_error() -> None:
    strategy = MachineRoomNearby(
        Average(), room_of_queue=lambda _queue: "idc0", room_of_member=lambda _client_id: ""
    )
    with pytest.raises(ConfigurationError, match="machine room of 'a'"):
        strategy.allocate("a", [MessageQueue("T", "b", 0)], ["a"])


def test_configured_queues_that_a_topic_does_not_have_are_not_taken() -> None:
    strategy = ByConfig(
        [MessageQueue("T", "b", number) for number in (1, 9, 1)] + [MessageQueue("U", "b", 0)]
    )
    assert wanted_queues(
        strategy, "a", [MessageQueue("T", "b", number) for number in range(4)], ["a"]
    ) == [MessageQueue("T", "b", 1)]


def test_queues_are_sorted_by_number_and_members_as_texts() -> None:
    queues = [MessageQueue("T", "b", number) for number in (10, 2, 1, 0)]
    assert [
        queue.queue_id for queue in wanted_queues(Average(), "c1", queues, ["c2", "c10", "c1"])
    ] == [0, 1]
    assert [
        queue.queue_id for queue in wanted_queues(Average(), "c10", queues, ["c2", "c10", "c1"])
    ] == [2]


def test_a_member_that_a_broker_lists_twice_counts_once() -> None:
    queues = [MessageQueue("T", "b", number) for number in range(4)]
    assert len(wanted_queues(Average(), "a", queues, ["a", "b", "a"])) == 2


NUMBERS = st.sets(st.integers(0, 20)).map(
    lambda numbers: [MessageQueue("T", "b", number) for number in numbers]
)


@settings(deadline=None, max_examples=40)
@given(owned=NUMBERS, wanted=NUMBERS)
def test_a_difference_applied_gives_what_is_wanted(
    owned: list[MessageQueue], wanted: list[MessageQueue]
) -> None:
    change = difference(owned, wanted)
    assert set(change.revoked) <= set(owned)
    assert not set(change.added) & set(owned)
    assert (set(owned) - set(change.revoked)) | set(change.added) == set(wanted)
    assert change.is_empty == (set(owned) == set(wanted))
