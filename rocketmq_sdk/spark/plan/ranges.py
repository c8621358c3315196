"""Which task reads what: ranges of offsets, split evenly among few tasks.

A task costs tens of milliseconds whatever it reads, so there are as few as asked for
and never an empty one. The plan is a function of its arguments and of nothing else, so
that a restart of a stream plans the same batch alike. Neither Spark nor trio is needed
here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.spark.plan.offsets import QueueKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SMALL: Final = 2_000
"""Messages below which another task costs more than it saves.

Counts where the user asked for no number of tasks.
"""


@attrs.frozen
class Range:
    """The offsets from `begin` on and before `end` of a queue."""

    queue: QueueKey
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def __str__(self) -> str:
        return f"{self.queue} [{self.begin}, {self.end})"


Task = tuple[Range, ...]


def ranges_between(start: Mapping[QueueKey, int], end: Mapping[QueueKey, int]) -> list[Range]:
    """The ranges between two places, in order of queues.

    Queues with nothing in between are left out. A queue that only the end names begins
    at 0; one that only the start names is gone and has nothing.
    """
    ranges = (Range(queue, start.get(queue, 0), stop) for queue, stop in sorted(end.items()))
    return [item for item in ranges if item.begin < item.end]


@attrs.frozen
class Partitioning:
    """How many tasks there are.

    `tasks` of them, or as many as the session runs at once (`default`), fewer where
    they would be small. Never fewer than `least`, and so many that none has more than
    `most_offsets`.
    """

    tasks: int | None = None
    default: int = 1
    least: int | None = None
    most_offsets: int | None = None

    def count(self, total: int) -> int:
        """The number of tasks that read `total` offsets, at least one."""
        wanted = self.tasks
        if wanted is None:
            wanted = max(min(self.default, -(-total // SMALL)), self.least or 1)
        return max(1, wanted, 0 if self.most_offsets is None else -(-total // self.most_offsets))


def plan(ranges: Iterable[Range], tasks: Partitioning | int) -> list[Task]:
    """Split ranges into parts of the same number of offsets, give or take one.

    There are never more parts than offsets. A queue may be cut between tasks; in a task
    its ranges keep the order of queues and offsets.
    """
    wanted = [item for item in ranges if item.begin < item.end]
    total = sum(map(len, wanted))
    if not total:
        return []
    count = tasks if isinstance(tasks, int) else tasks.count(total)
    return _cut(wanted, total, min(count, total))


def _cut(ranges: list[Range], total: int, count: int) -> list[Task]:
    planned: list[Task] = []
    current: list[Range] = []
    passed, number = 0, 1
    for item in ranges:
        begin = item.begin
        while begin < item.end:
            limit = total * number // count
            end = min(item.end, begin + limit - passed)
            current.append(Range(item.queue, begin, end))
            passed += end - begin
            begin = end
            if passed == limit:
                planned.append(tuple(current))
                current, number = [], number + 1
    return planned
