"""Ordinals of equal rows, whatever table remembers them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.spark.write.dedup_ids import DedupIds, content_hash

HASHES = st.sampled_from(
    [content_hash(b"%d" % number) for number in range(12)]
    + [b"\0" * 16, b"\0" * 15 + b"\1", b"\0" * 2 + b"\1" + b"\0" * 13]
)


@given(st.lists(st.lists(HASHES, max_size=6), max_size=12), st.sampled_from([0, 1, 3, 8, 100]))
def test_ordinals_count_equal_rows(batches: list[list[bytes]], set_limit: int) -> None:
    ids = DedupIds("s", 1, set_limit=set_limit)
    before: Counter[bytes] = Counter()
    for batch in batches:
        found = ids.ordinals(batch)
        for value, ordinal in zip(batch, found or [0] * len(batch), strict=True):
            assert ordinal == before[value]
            before[value] += 1


def test_a_hash_is_not_found_across_two_others() -> None:
    """Hashes lie one behind the other in memory, so that the bytes of one may stand
    across the border of two others.
    """
    start = b"ab"
    first, second = start + bytes(range(14)), start + bytes(range(14, 28))
    ids = DedupIds("s", 1, set_limit=0)
    for value in (first, second):
        assert ids.id_of(value) == f"s:1:{value.hex()}:0"
    across = start + bytes(range(7, 21))
    assert ids.id_of(across) == f"s:1:{across.hex()}:0"
    assert ids.id_of(across) == f"s:1:{across.hex()}:1"
    assert ids.id_of(second) == f"s:1:{second.hex()}:1"


@pytest.mark.parametrize("limit", [1 << 30, 1000])
def test_many_rows(limit: int) -> None:
    ids = DedupIds("s", 1, set_limit=limit)
    hashes = [content_hash(b"%d" % number) for number in range(20_000)]
    for begin in range(0, len(hashes), 700):
        assert not any(ids.ordinals(hashes[begin : begin + 700]) or ())
    assert ids.ordinals(hashes[::100]) == [1] * 200
    assert ids.ordinals(hashes[::100]) == [2] * 200
