"""Which waits are spun, by how the last ones went."""

from __future__ import annotations

import itertools

from rocketmq_sdk.remoting.spinning import MOST, QUICK, Spinning


def spun(turns: itertools.cycle[int], waits: int) -> int:
    """How many of so many waits are spun whose answers come after these turns."""
    spinning, count = Spinning(), 0
    for _ in range(waits):
        if spinning.begin():
            spinning.ended(next(turns))
            count += 1
    return count


def test_what_is_quick_is_spun_and_what_is_not_hardly_ever() -> None:
    assert spun(itertools.cycle([1, QUICK]), 1000) == 1000
    for slow in (QUICK + 1, MOST + 1):
        assert spun(itertools.cycle([slow]), 10_000) < 50
        # where every other one is in vain it is as good as never done
        assert spun(itertools.cycle([1, slow]), 10_000) < 500
    # one that was slow, as by a pause of the machine, is soon forgotten
    assert spun(itertools.cycle([slow, *[1] * 99]), 1000) > 900
