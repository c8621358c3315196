"""Counters and their windows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.tables.stats import (
    DAY,
    HOUR,
    MINUTE,
    NOT_COUNTED,
    BrokerStats,
    Counts,
    DayStart,
    Window,
)


def test_a_window_is_what_was_counted_between_its_samples() -> None:
    counts = Counts(0)
    counts.add(0, 5, 500)
    assert counts.window(MINUTE, 0) == Window(0, 0, 0, 0), "nothing is sampled yet"
    assert counts.window(MINUTE, 1) == Window(1, 5, 500, 10)
    counts.add(3, 1, 10)
    assert counts.window(MINUTE, 4) == Window(2, 6, 510, 40)
    assert counts.window(MINUTE, 6) == Window(2, 6, 510, 60)
    assert counts.window(MINUTE, 7) == Window(1, 1, 10, 60), "the first minute is over"
    assert counts.window(MINUTE, 9) == Window(1, 1, 10, 60)
    assert counts.window(MINUTE, 10) == Window(0, 0, 0, 60)
    assert counts.window(HOUR, 60) == Window(2, 6, 510, 600)
    assert counts.window(DAY, 360) == Window(2, 6, 510, 3600)


@given(
    st.lists(st.tuples(st.integers(0, 700), st.integers(1, 9)), max_size=12), st.integers(0, 9000)
)
@settings(deadline=None)
def test_samples_taken_late_are_those_taken_in_time(calls: list[tuple[int, int]], end: int) -> None:
    late, in_time = Counts(0), Counts(0)
    tick = 0
    for pause, messages in calls:
        for _ in range(pause):
            tick += 1
            in_time.window(MINUTE, tick)
        late.add(tick, messages, messages)
        in_time.add(tick, messages, messages)
    for which in (MINUTE, HOUR, DAY):
        assert late.window(which, tick + end) == in_time.window(which, tick + end)


def test_items_are_found_under_the_keys_of_apache() -> None:
    stats = BrokerStats()
    stats.put("T", 0, 2, 20)
    stats.put("T", 1, 3, 30)
    stats.put("U", 0, 4, 40)
    stats.got("T", "g", 1, 5, 50)
    stats.sent_back("T", "g")
    stats.acknowledged("T", "g", 7)
    stats.checkpoint("T", "g")
    stats.advance(1)

    def minute(name: str, key: str) -> int:
        found = stats.find(name, key)
        assert found is not None, (name, key)
        return int(getattr(found[0], found[3]))

    assert (
        minute("TOPIC_PUT_NUMS", "T"),
        minute("TOPIC_PUT_SIZE", "T"),
        minute("BROKER_PUT_NUMS", "DefaultCluster"),
    ) == (5, 50, 9)
    assert (minute("QUEUE_PUT_NUMS", "T@1"), minute("QUEUE_PUT_SIZE", "T@0")) == (3, 20)
    assert (
        minute("GROUP_GET_NUMS", "T@g"),
        minute("GROUP_GET_SIZE", "T@g"),
        minute("BROKER_GET_NUMS", "c"),
    ) == (5, 50, 5)
    assert (minute("QUEUE_GET_NUMS", "T@1@g"), minute("QUEUE_GET_SIZE", "T@1@g")) == (5, 50)
    assert (
        minute("SNDBCK_PUT_NUMS", "T@g"),
        minute("GROUP_ACK_NUMS", "T@g"),
        minute("GROUP_CK_NUMS", "T@g"),
    ) == (1, 7, 1)
    assert (minute("BROKER_ACK_NUMS", "c"), minute("BROKER_CK_NUMS", "c")) == (7, 1)
    assert stats.group_rate("T", "g") == 0.5
    for name, key in (
        ("NOPE", "T"),
        ("TOPIC_PUT_NUMS", "V"),
        ("QUEUE_PUT_NUMS", "T@x"),
        ("QUEUE_GET_NUMS", "T"),
        ("GROUP_ACK_NUMS", "T@h"),
    ):
        assert stats.find(name, key) is None, (name, key)
    stats.remove_group("g")
    stats.remove_topic("T")
    assert stats.find("TOPIC_PUT_NUMS", "T") is None
    assert stats.find("GROUP_GET_NUMS", "T@g") is None


def test_totals_of_mornings() -> None:
    stats = BrokerStats()
    stats.put("T", 0, 2, 20)
    stats.advance(7)
    assert stats.mornings == (DayStart(0, 0), DayStart(0, 0))
    stats.advance(8)
    stats.got("T", "g", 0, 1, 10)
    stats.put("T", 0, 2, 20)
    stats.advance(8)
    assert stats.mornings == (DayStart(0, 0), DayStart(2, 0))
    stats.advance(9)
    assert stats.mornings == (DayStart(2, 0), DayStart(4, 1))


NAMES = """
    QUEUE_PUT_NUMS QUEUE_PUT_SIZE QUEUE_GET_NUMS QUEUE_GET_SIZE TOPIC_PUT_NUMS TOPIC_PUT_SIZE
    GROUP_GET_NUMS GROUP_GET_SIZE GROUP_ACK_NUMS GROUP_CK_NUMS GROUP_GET_LATENCY
    TOPIC_PUT_LATENCY SNDBCK_PUT_NUMS DLQ_PUT_NUMS BROKER_PUT_NUMS BROKER_GET_NUMS
    BROKER_ACK_NUMS BROKER_CK_NUMS BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC GROUP_GET_FROM_DISK_NUMS GROUP_GET_FROM_DISK_SIZE
    BROKER_GET_FROM_DISK_NUMS BROKER_GET_FROM_DISK_SIZE SNDBCK2DLQ_TIMES COMMERCIAL_SEND_TIMES
    COMMERCIAL_SNDBCK_TIMES COMMERCIAL_RCV_TIMES COMMERCIAL_RCV_EPOLLS COMMERCIAL_SEND_SIZE
    COMMERCIAL_RCV_SIZE COMMERCIAL_PERM_FAILURES CONSUMER_REGISTER_TIME PRODUCER_REGISTER_TIME
    CHANNEL_ACTIVITY GROUP_GET_FALL_SIZE GROUP_GET_FALL_TIME
"""
"""`Stats` and `BrokerStatsManager` of Apache RocketMQ 5.5.0."""
KEYS = {"TOPIC": "T", "QUEUE_PUT": "T@0", "QUEUE_GET": "T@0@g", "GROUP": "T@g", "SNDBCK": "T@g"}


@pytest.mark.parametrize("name", NAMES.split())
def test_each_item_of_apache_is_counted_or_says_why_not(name: str) -> None:
    stats = BrokerStats()
    stats.put("T", 0, 2, 20)
    stats.got("T", "g", 0, 5, 50)
    stats.sent_back("T", "g")
    stats.acknowledged("T", "g", 7)
    stats.checkpoint("T", "g")
    stats.advance(1)
    key = next((key for begin, key in KEYS.items() if name.startswith(begin)), "DefaultCluster")
    found = stats.find(name, key)
    if name in NOT_COUNTED:
        assert found is None
    else:
        assert found is not None
        assert found[0].messages > 0


def test_system_topics_are_counted_apart() -> None:
    stats = BrokerStats()
    stats.put("T", 0, 2, 20)
    stats.put("SCHEDULE_TOPIC_XXXX", 3, 5, 50)
    stats.got("T", "g", 0, 2, 20)
    stats.got("SCHEDULE_TOPIC_XXXX", "g", 0, 5, 50)
    stats.remove_topic("SCHEDULE_TOPIC_XXXX")
    stats.advance(1)
    for what in ("PUT", "GET"):
        for name, count in ((f"BROKER_{what}_NUMS", 7), (f"BROKER_{what}_NUMS_WITHOUT_SYSTEM", 2)):
            found = stats.find(name + ("_TOPIC" if "WITHOUT" in name else ""), "DefaultCluster")
            assert found is not None
            assert found[0].messages == count


def test_sums_of_the_broker_outlive_topics_and_groups() -> None:
    """They would go back otherwise, and rates would be negative."""
    stats = BrokerStats()
    for topic, group in (("T", "g"), ("U", "h"), ("V", "g")):
        stats.put(topic, 0, 2, 20)
        stats.got(topic, group, 0, 2, 20)
        stats.acknowledged(topic, group, 3)
        stats.checkpoint(topic, group, 4)
    before = (stats.put_bytes, stats.got_messages)
    stats.remove_topic("T")
    stats.remove_group("h")
    assert (stats.put_bytes, stats.got_messages) == before == (60, 6)
    stats.advance(1)
    for name, count in (("PUT", 6), ("GET", 6), ("ACK", 9), ("CK", 12)):
        found = stats.find(f"BROKER_{name}_NUMS", "DefaultCluster")
        assert found is not None
        assert found[0].messages == count
    assert stats.find("TOPIC_PUT_NUMS", "T") is None


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(1, 9), st.booleans()), max_size=12),
    st.integers(0, 400),
    st.integers(0, 400),
)
@settings(deadline=None)
def test_joined_counters_are_one_that_counted_all(
    calls: list[tuple[int, int, bool]], pause: int, end: int
) -> None:
    first, second, whole, tick = Counts(0), Counts(0), Counts(0), 0
    for wait, messages, other in calls:
        tick += wait
        (second if other else first).add(tick, messages, messages)
        whole.add(tick, messages, messages)
    tick += pause
    first.join(second, tick)
    for which in (MINUTE, HOUR, DAY):
        assert first.window(which, tick + end) == whole.window(which, tick + end)
