"""Work with several brokers, one of which is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.client.side_by_side import first_answer, for_each_broker

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_the_next_one_is_asked_when_the_first_is_slow(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    async def ask(name: str) -> str | None:
        asked.append(name)
        if name == "hung":
            await trio.sleep(60)
        return None if name == "empty" else name

    began = trio.current_time()
    assert await first_answer(["good", "hung"], ask) == "good"
    assert asked == ["good"]
    assert await first_answer(["empty", "good"], ask) == "good"
    assert trio.current_time() == began
    assert await first_answer(["hung", "good", "other"], ask) == "good"
    assert trio.current_time() - began == pytest.approx(0.5)
    assert await first_answer(["empty", "empty"], ask) is None
    assert await first_answer([], ask) is None


async def test_a_slow_question_goes_on_beside_the_next_ones(autojump_clock: MockClock) -> None:
    """Each is asked once, as its answer may be all that there is."""
    asked: list[str] = []

    async def ask(name: str) -> str | None:
        asked.append(name)
        await trio.sleep(0.8 if name == "slow" else 60)
        return name if name == "slow" else None

    began = trio.current_time()
    assert await first_answer(["slow", "dead"], ask) == "slow"
    assert trio.current_time() - began == pytest.approx(0.8)
    assert await first_answer(["slow"], ask) == "slow"
    assert asked == ["slow", "dead", "slow"]


async def test_an_error_of_a_question_is_raised(autojump_clock: MockClock) -> None:
    async def ask(_name: str) -> str:
        raise LookupError("a defect")

    with pytest.raises(LookupError):
        await first_answer(["a"], ask)


async def test_each_broker_has_its_own_time(autojump_clock: MockClock) -> None:
    done: list[str] = []

    async def act(name: str, seconds: float) -> None:
        await trio.sleep(seconds)
        done.append(name)

    began = trio.current_time()
    await for_each_broker({"dead": 60, "b": 0.2, "a": 0.1}, act, bound=1)
    assert done == ["a", "b"]
    assert trio.current_time() - began == 1
    await for_each_broker({"dead": 60}, act, bound=1)
    await for_each_broker({}, act, bound=1)
    assert trio.current_time() - began == 2
