"""Counters and their windows."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.tables.stats import (
    DAY,
    HOUR,
    MINUTE,
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
