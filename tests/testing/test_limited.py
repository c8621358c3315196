"""The limit of time that ends a crash point which stands still."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import trio

from support.limited import StoodStillError, cause_of, limited
from support.seeded import run_alone

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.real_time


def _at_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _in_a_loop() -> None:
    while True:
        pass


def _in_what_takes_errors_and_cleans_up() -> None:
    for _ in range(2):
        try:
            _at_a_lock()
        except Exception:  # noqa: BLE001 - what must not end the limit
            continue
        finally:
            _at_a_lock()


@pytest.mark.parametrize(
    "hang", [_at_a_lock, _in_a_loop, _in_what_takes_errors_and_cleans_up], ids=lambda f: f.__name__
)
def test_a_point_that_stands_still_is_ended_and_named(hang: Callable[[], None]) -> None:
    async def point(_seed: int) -> int:
        async with trio.open_nursery():
            await trio.sleep(1)
            hang()
        return 1

    # Its next times must not come while trio ends.
    with pytest.raises(BaseException) as caught, limited(0.5, "the point"):
        run_alone(point, 7)
    cause = cause_of(caught.value)
    assert isinstance(cause, StoodStillError)
    assert "stood still for 0.5 s" in str(cause)
    with limited(60, "the next one"):
        assert run_alone(_ends, 8) == 1


async def _ends(_seed: int) -> int:
    await trio.sleep(1000)
    return 1
