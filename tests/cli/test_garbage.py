"""Collections of a broker process look only at what came since the last one."""

from __future__ import annotations

import gc
import weakref

import pytest
import trio

from rocketmq_sdk.cli import garbage
from rocketmq_sdk.cli.garbage import LOOK_EVERY, short_collections


class Node:
    """May be part of a circle."""

    def __init__(self) -> None:
        self.other: Node | None = None


def circle() -> tuple[Node, Node]:
    one, two = Node(), Node()
    one.other, two.other = two, one
    return one, two


async def test_what_a_full_collection_leaves_is_frozen(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with short_collections():
        assert gc.get_freeze_count() > 0
        kept = [Node() for _ in range(1000)]
        young = gc.get_objects()
        assert any(one is kept[0] for one in young)
        del young
        gc.collect()
        assert not any(one is kept[0] for one in gc.get_objects())
        last = weakref.ref(kept[-1])
        kept.clear()
        assert last() is None
        one, _two = circle()
        young_garbage = weakref.ref(one)
        del one, _two
        gc.collect()
        assert young_garbage() is None
    assert gc.get_freeze_count() == 0
    assert garbage._freeze not in gc.callbacks


async def test_frozen_garbage_does_not_grow_without_bound(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with short_collections(room=1000):
        circles = [circle() for _ in range(gc.get_freeze_count() + 1000)]
        gone = weakref.ref(circles[0][0])
        gc.collect()
        circles.clear()
        gc.collect()
        assert gone() is not None
        await trio.sleep(2 * LOOK_EVERY)
        assert gone() is None


async def test_an_error_of_the_block_stays_as_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with pytest.raises(ValueError, match="odd"):
        async with short_collections():
            raise ValueError("odd")
    assert gc.get_freeze_count() == 0


async def test_full_collections_are_frequent_and_small_for_a_block(
    autojump_clock: trio.testing.MockClock,
) -> None:
    before = gc.get_threshold()
    async with short_collections():
        assert gc.get_threshold() == garbage.THRESHOLDS
    assert gc.get_threshold() == before
