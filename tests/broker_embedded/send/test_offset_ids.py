"""The ids in the answer to a batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.send.offset_ids import offset_ids

HOSTS = st.sampled_from(["7F00000100002A9F", "20010DB8000000000000000000000001" + "00002A9F"])
FIRSTS = st.integers(0, 2**62) | st.integers(2**32 - 30_000, 2**32)


@given(HOSTS, FIRSTS, st.integers(1, 1 << 22), st.integers(1, 200))
def test_ids_of_a_batch_are_host_and_position(host: str, first: int, step: int, count: int) -> None:
    positions = range(first, first + count * step, step)
    wanted = ",".join(f"{host}{position:016X}" for position in positions)
    assert offset_ids(host, positions) == wanted
    assert offset_ids(host, list(positions)) == wanted
