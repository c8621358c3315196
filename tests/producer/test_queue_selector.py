"""Selectors choose as Java's would."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.producer.queue_selector import (
    QueueIndex,
    RoundRobin,
    key_hash,
    select_by_hash,
    select_by_key,
    select_by_random,
)

QUEUES = [MessageQueue("t", "b", number) for number in range(7)]
MESSAGE = Message("t", b"x", keys=["k1", "k2"])


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("TagA", 2598919),
        ("", 0),
        (b"TagA", 2598919),
        (5, 5),
        (-5, -5),
        (2**31, -(2**31)),
        (2**32, 1),
        (-(2**31) - 1, -(2**31)),
        (2**63 - 1, -(2**31)),
        (True, 1231),
        (False, 1237),
    ],
)
def test_java_hash_codes(key: object, expected: int) -> None:
    # Long.hashCode is (int) (value ^ value >>> 32)
    assert key_hash(key) == expected


@pytest.mark.parametrize("key", [1.5, None, object(), 2**63])
def test_keys_without_a_java_hash_code(key: object) -> None:
    whole = isinstance(key, int)
    with pytest.raises(ConfigurationError if whole else WrongTypeError) as caught:
        key_hash(key)
    assert isinstance(caught.value, TypeError) is not whole
    assert whole or "use a text, bytes, or a whole number" in str(caught.value)


@given(st.text())
def test_equal_keys_choose_equal_queues(key: str) -> None:
    assert select_by_hash(QUEUES, MESSAGE, key) is QUEUES[abs(key_hash(key)) % 7]


def test_the_smallest_hash_code() -> None:
    assert select_by_hash(QUEUES, MESSAGE, -(2**31)) is QUEUES[2**31 % 7]


def test_the_messages_own_key() -> None:
    assert select_by_key(QUEUES, MESSAGE, None) is select_by_hash(QUEUES, MESSAGE, "k1")
    assert select_by_key(
        QUEUES, Message("t", b"x", sharding_key="s", keys="k"), None
    ) is select_by_hash(QUEUES, MESSAGE, "s")
    assert select_by_key(QUEUES, MESSAGE, "given") is select_by_hash(QUEUES, MESSAGE, "given")
    with pytest.raises(ConfigurationError):
        select_by_key(QUEUES, Message("t", b"x"), None)


def test_round_robin_counts_for_each_topic() -> None:
    selector = RoundRobin()
    first = [selector(QUEUES, MESSAGE, None).queue_id for _ in range(7)]
    assert sorted(first) == list(range(7))
    assert all((after - before) % 7 == 1 for before, after in pairwise(first))


def test_random() -> None:
    assert {select_by_random(QUEUES, MESSAGE, None) for _ in range(500)} == set(QUEUES)


def test_an_index_wraps_like_a_java_int() -> None:
    index = QueueIndex(2**31 - 2)
    assert [index.next() for _ in range(3)] == [2**31 - 1, 0, 1]
    assert index.value == -(2**31) + 1
