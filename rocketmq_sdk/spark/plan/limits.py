"""How much one batch of a stream takes.

Pure rules, which take the time as an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.spark.plan.offsets import QueueKey


def waiting(start: Mapping[QueueKey, int], end: Mapping[QueueKey, int]) -> int:
    """How many offsets lie between two places."""
    return sum(max(0, stop - start.get(queue, stop)) for queue, stop in end.items())


def limited(
    start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], most: int, *, turn: int
) -> dict[QueueKey, int]:
    """The end of a batch of at most `most` offsets.

    Each queue gets its share of what waits. What rounding leaves over goes to queues in
    turn, beginning with number `turn`, so a queue whose share is below one offset gets
    one in time. Queues that end before they begin, or that only the end names, keep
    their ends.
    """
    queues = sorted(queue for queue, stop in end.items() if stop > start.get(queue, stop))
    waits = {queue: end[queue] - start[queue] for queue in queues}
    total = sum(waits.values())
    if total <= most:
        return dict(end)
    shares = {queue: most * waits[queue] // total for queue in queues}
    left = most - sum(shares.values())
    everyone = sorted(
        end
    )  # also those that are done, so that the turns of the others stay where they are
    first = turn % len(everyone)
    for queue in everyone[first:] + everyone[:first]:
        if not left:
            break
        if queue in shares and shares[queue] < waits[queue]:
            shares[queue] += 1
            left -= 1
    return {
        queue: start[queue] + shares[queue] if queue in shares else stop
        for queue, stop in end.items()
    }


@attrs.define
class Gate:
    """Holds batches back until enough offsets wait, or long enough.

    Enough is `least` offsets; long enough is `most_delay` seconds since the last batch.
    """

    least: int
    most_delay: float
    _since: float | None = None

    def opens(self, wait: int, now: float) -> bool:
        """Whether a batch may begin now, with `wait` offsets waiting.

        The first call begins the delay.
        """
        if self._since is None:
            self._since = now
        if wait >= self.least or (wait and now - self._since >= self.most_delay):
            self._since = now
            return True
        return False
