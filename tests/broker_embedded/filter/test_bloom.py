"""The Bloom filter against the recorded table."""

from __future__ import annotations

import json

import pytest

from rocketmq_sdk.broker_embedded.filter.bloom import BloomFilter
from rocketmq_sdk.errors import ConfigurationError
from support.paths import CODEC_VECTORS

TABLE = json.loads((CODEC_VECTORS / "bloom.json").read_text())
SETTINGS = [entry for entry in TABLE if entry.get("kind") == "settings"]
STRINGS = [entry for entry in TABLE if "string" in entry]


def test_sizes_follow_the_settings() -> None:
    assert len(SETTINGS) >= 1
    for entry in SETTINGS:
        bloom = BloomFilter(entry["f"], entry["n"])
        assert (bloom.hashes, bloom.bits) == (entry["k"], entry["m"]), entry


def test_positions_and_maps_are_those_of_apache() -> None:
    bloom = BloomFilter()
    union = bloom.new_map()
    added = 0
    for entry in STRINGS:
        positions = bloom.positions(entry["string"])
        assert list(positions) == entry["positions"], entry["string"]
        single = bloom.new_map()
        bloom.add(positions, single)
        assert single.hex() == entry["bits_bytes"]
        assert bloom.has(positions, union) is entry["hit_in_union_before_adding"]
        # All but the first eleven are only looked up, not added.
        if union.hex() != entry["union_bytes_after"]:
            bloom.add(positions, union)
            assert bloom.has(positions, union)
            assert union.hex() == entry["union_bytes_after"]
            added += 1
    assert added == 11


def test_filters_of_other_sizes() -> None:
    others = [entry for entry in TABLE if entry.get("kind") == "createByFn"]
    assert len(others) == 6
    for entry in others:
        bloom = BloomFilter(entry["f"], entry["n"])
        assert (bloom.hashes, bloom.bits) == (entry["k"], entry["m"])
        assert list(bloom.positions("group#topic")) == entry["positions_of_group#topic"]
        bit_map = bloom.new_map()
        for string in STRINGS[:8]:
            bloom.add(bloom.positions(string["string"]), bit_map)
        assert bit_map.hex() == entry["bits_after_first_8_strings"]


def test_kept_bits_are_valid_for_a_filter_of_the_same_size_only() -> None:
    bloom = BloomFilter()
    assert bloom.is_valid((1, 2, 3), 112)
    assert not bloom.is_valid((1, 2), 112)
    assert not bloom.is_valid((1, 2, 3), 120)


@pytest.mark.parametrize(("error_rate", "capacity"), [(0, 32), (100, 32), (20, 0)])
def test_sizes_that_cannot_be_are_refused(error_rate: int, capacity: int) -> None:
    with pytest.raises(ConfigurationError, match="cannot be built"):
        BloomFilter(error_rate, capacity)
