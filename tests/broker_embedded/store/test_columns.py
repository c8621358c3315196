"""Numbers set by columns are those that are packed one by one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.store.append.batch_units import queue_units
from rocketmq_sdk.broker_embedded.store.columns import rising_columns, set_columns
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import UNIT

FIRSTS = st.integers(0, 2**62) | st.sampled_from([255, 256, 2**16 - 1, 2**32 - 7, 2**40 - 1])
RANGES = st.builds(
    lambda first, step, count: range(first, first + count * step, step),
    FIRSTS,
    st.sampled_from([1, 91, 253]) | st.integers(1, 1 << 22),
    st.integers(1, 300),
)


@given(RANGES, st.integers(0, 9), st.integers(0, 9))
def test_rising_numbers_are_set_in_all_pieces(numbers: range, before: int, behind: int) -> None:
    def piece(number: int) -> bytes:
        return b"<" * before + number.to_bytes(8) + b">" * behind

    size = before + 8 + behind
    pieces = bytearray(piece(numbers[0]) * len(numbers))
    set_columns(pieces, size, before, rising_columns(numbers))
    assert pieces == b"".join(map(piece, numbers))


def test_numbers_that_are_no_longs_are_refused() -> None:
    with pytest.raises(struct.error):
        rising_columns(range(2**63 - 1, 2**63 + 1))


@given(RANGES, st.integers(0, 2**31 - 1), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=1))
def test_units_of_a_batch_are_those_of_its_messages(
    positions: range, size: int, other: list[int]
) -> None:
    count = len(positions)
    codes = [-7] * (count - len(other)) + other
    sizes = [size] * count
    wanted = b"".join(map(UNIT.pack, positions, sizes, codes))
    assert queue_units(positions, sizes, codes) == wanted
    assert queue_units(list(positions), sizes, codes) == wanted
