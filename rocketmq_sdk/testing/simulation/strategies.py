"""Plans that hypothesis draws, and makes small where a test fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from rocketmq_sdk.testing.simulation.plan import FIRST, HOUR, LONGEST, MOST, Plan
from rocketmq_sdk.testing.simulation.troubles import (
    EVERYBODY,
    BadDisk,
    Cut,
    Disconnect,
    FullDisk,
    Kill,
    PowerCut,
    SlowDisk,
    SlowNetwork,
    Stop,
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
        parties=tuple(parties),
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
    seconds = st.sampled_from((0.01, 0.1, 1.0, 10.0))
    kinds = [
        st.builds(Disconnect, at=times["at"], broker=broker),
        st.builds(Stop, broker=broker, **times),
        st.builds(Kill, broker=broker, **times),
        st.builds(
            Cut,
            one=broker,
            other=st.one_of(st.just(EVERYBODY), anybody),
            one_way=st.booleans(),
            **times,
        ).filter(lambda cut: cut.one != cut.other),
        st.builds(SlowNetwork, broker=broker, seconds=seconds, **times),
        st.builds(SlowDisk, broker=broker, seconds=st.sampled_from((0.001, 0.1, 1.0)), **times),
        st.builds(FullDisk, broker=broker, **times),
        st.builds(
            BadDisk,
            broker=broker,
            operation=st.sampled_from(("write", "sync", "read")),
            times=st.sampled_from((1, 3, 20)),
            **times,
        ),
    ]
    if size.power_cuts:
        kinds.append(st.builds(PowerCut, broker=broker, seed=st.integers(0, 1 << 16), **times))
    return st.one_of(kinds)
