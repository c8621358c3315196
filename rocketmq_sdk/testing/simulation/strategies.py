"""Plans that hypothesis draws, and makes small where a test fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from rocketmq_sdk.testing.simulation.plan import FIRST, HOUR, LONGEST, MOST, Plan
from rocketmq_sdk.testing.simulation.troubles import (
    EVERYBODY,
    KINDS,
    Below,
    Cut,
    OneOf,
    Seconds,
    Trouble,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def plans(
    *,
    masters: int = 3,
    slaves: int = 0,
    parties: Sequence[str] = (),
    duration: float = HOUR,
    latency: float = 0.01,
    power_cuts: bool = False,
    most: int = MOST,
) -> st.SearchStrategy[Plan]:
    """Plans of one size of cluster, for `@given`; needs hypothesis.

    The smallest has no troubles and the seed 0. A plan that fails is made smaller until
    only the troubles are left without which the test passes.
    """
    size = Plan(
        masters=masters,
        slaves=slaves,
        parties=parties,
        duration=duration,
        latency=latency,
        power_cuts=power_cuts,
    )
    return st.builds(
        Plan,
        seed=st.integers(0, 1 << 16),
        masters=st.just(masters),
        slaves=st.just(slaves),
        parties=st.just(size.parties),
        duration=st.just(duration),
        latency=st.just(latency),
        power_cuts=st.just(power_cuts),
        troubles=st.lists(_troubles(size), max_size=most),
    )


def _troubles(size: Plan) -> st.SearchStrategy[Trouble]:
    longest = min(LONGEST, size.duration / 2)
    times = {
        "at": st.integers(int(min(FIRST, size.duration - longest)), int(size.duration - longest)),
        "lasts": st.integers(0, int(longest)),
    }
    broker = st.sampled_from(size.brokers)
    anybody = st.sampled_from([*size.brokers, *size.parties])
    kinds: list[st.SearchStrategy[Trouble]] = []
    for kind in sorted(KINDS, key=lambda kind: kind.lasts):  # what is simpler comes first
        if kind.power_cuts and not size.power_cuts:
            continue
        when = times if kind.lasts else {"at": times["at"]}
        if kind.make is Cut:
            other = st.one_of(st.just(EVERYBODY), anybody)
            cuts = st.builds(Cut, one=broker, other=other, one_way=st.booleans(), **when)
            kinds.append(cuts.filter(lambda cut: cut.one != cut.other))
        else:
            values = {name: _values(field) for name, field in kind.fields.items()}
            kinds.append(st.builds(kind.make, broker=broker, **when, **values))
    return st.one_of(kinds)


def _values(field: Seconds | OneOf | Below) -> st.SearchStrategy[object]:
    if isinstance(field, Seconds):
        return st.sampled_from([10.0**power for power in range(field.low, field.high + 1)])
    if isinstance(field, OneOf):
        return st.sampled_from(field.values)
    return st.integers(0, field.end - 1)
