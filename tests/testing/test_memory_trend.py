"""The rule by which the soak calls memory flat: noise and peaks pass, leaks do not."""

from __future__ import annotations

from random import Random

import pytest

from support.memory_trend import Sample, judge


def samples(seed: int, *, leak: float = 0.0, lost_blocks: float = 0.0) -> list[Sample]:
    """Minutes of a process of 80 MiB, with noise, peaks, and a leak by the minute."""
    generator = Random(seed)
    return [
        Sample(
            seconds,
            80 + generator.uniform(-4, 4) + generator.choice([0, 0, 0, 25]) + leak * seconds / 60,
            int(300_000 + generator.uniform(-15_000, 15_000) + lost_blocks * seconds / 60),
        )
        for seconds in range(400, 1200, 10)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_noise_and_peaks_are_flat(seed: int) -> None:
    flat, text = judge(samples(seed), 4.0)
    assert flat, text


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_of_a_mebibyte_a_minute_is_found(seed: int) -> None:
    flat, text = judge(samples(seed, leak=1.0), 4.0)
    assert not flat, text
    assert text.startswith("GROWING: in 13.2 minutes")


@pytest.mark.parametrize("seed", range(20))
def test_objects_that_are_never_freed_are_found_in_memory_that_seems_flat(seed: int) -> None:
    flat, text = judge(samples(seed, lost_blocks=2000), 4.0)
    assert not flat, text
