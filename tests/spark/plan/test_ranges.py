"""Ranges cut into tasks."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.plan.ranges import SMALL, Partitioning, Range, Task, plan, ranges_between

KEYS = st.builds(
    QueueKey, st.sampled_from(["A", "B"]), st.sampled_from(["x", "y"]), st.integers(0, 9)
)
RANGES = st.dictionaries(
    KEYS, st.tuples(st.integers(0, 1 << 40), st.integers(0, 5000)), max_size=20
).map(
    lambda found: [
        Range(queue, begin, begin + size) for queue, (begin, size) in sorted(found.items())
    ]
)


def size(task: Task) -> int:
    return sum(map(len, task))


@given(RANGES, st.integers(1, 300))
@settings(deadline=None)
def test_each_offset_is_read_once_and_in_order(ranges: list[Range], count: int) -> None:
    tasks = plan(ranges, count)
    total = sum(map(len, ranges))
    assert len(tasks) == min(count, total)
    assert all(len(item) > 0 for task in tasks for item in task)
    assert not tasks or max(map(size, tasks)) - min(map(size, tasks)) <= 1
    joined: list[Range] = []
    for item in (item for task in tasks for item in task):
        if joined and joined[-1].queue == item.queue:
            assert joined[-1].end == item.begin
            joined[-1] = Range(item.queue, joined[-1].begin, item.end)
        else:
            joined.append(item)
    assert joined == [item for item in ranges if len(item)]
    assert all(first.queue < second.queue for task in tasks for first, second in pairwise(task))
    assert plan(list(ranges), count) == tasks


def test_small_reads_need_few_tasks_unless_more_are_asked_for() -> None:
    queue = QueueKey("T", "b", 0)
    assert len(plan([Range(queue, 0, 10)], Partitioning(default=8))) == 1
    assert len(plan([Range(queue, 0, SMALL + 1)], Partitioning(default=8))) == 2
    assert len(plan([Range(queue, 0, 100 * SMALL)], Partitioning(default=8))) == 8
    assert len(plan([Range(queue, 0, 10)], 4)) == 4
    assert len(plan([Range(queue, 0, 3)], 4)) == 3
    assert plan([], 4) == []
    assert plan([Range(queue, 5, 5), Range(queue, 7, 5)], 4) == []


@given(st.integers(1, 10**6), st.none() | st.integers(1, 50), st.none() | st.integers(1, 10**6))
def test_a_least_number_of_tasks_and_a_most_of_offsets(
    total: int, least: int | None, most: int | None
) -> None:
    default = Partitioning(default=4).count(total)
    count = Partitioning(default=4, least=least, most_offsets=most).count(total)
    assert count == max(default, least or 1, -(-total // (most or total)))
    assert Partitioning(tasks=3, most_offsets=most).count(total) == max(
        3, -(-total // (most or total))
    )


@given(RANGES, st.integers(1, 5000))
@settings(deadline=None, max_examples=30)
def test_no_task_has_more_than_most_offsets(ranges: list[Range], most: int) -> None:
    tasks = plan(ranges, Partitioning(default=4, most_offsets=most))
    assert max(map(size, tasks), default=0) <= most


def test_what_lies_between_two_places() -> None:
    old, new, gone = (QueueKey("T", "b", number) for number in range(3))
    assert ranges_between({old: 3, gone: 4}, {old: 5, new: 2}) == [
        Range(old, 3, 5),
        Range(new, 0, 2),
    ]
    assert ranges_between({old: 5}, {old: 5}) == []
    assert ranges_between({old: 6}, {old: 5}) == []
