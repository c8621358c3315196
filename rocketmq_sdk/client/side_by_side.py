"""Work with several brokers side by side, so that a dead one holds up nobody."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.lifecycle import open_quiet_nursery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

PATIENCE: Final = 0.5
"""Seconds after which another one is asked, too."""
_One = TypeVar("_One")
_Answer = TypeVar("_Answer")


async def first_answer(
    candidates: Iterable[_One], ask: Callable[[_One], Awaitable[_Answer | None]]
) -> _Answer | None:
    """The first answer of candidates that all would do, None when none has any.

    They are asked in their order, the next one when the one before has no answer (None)
    or has not come back within half a second. Questions that are still under way at
    the end are cancelled. One alone is asked without a task.
    """
    candidates = list(candidates)
    if len(candidates) == 1:
        return await ask(candidates[0])
    found: list[_Answer] = []
    async with open_quiet_nursery() as nursery:
        moved = trio.Event()

        async def put(candidate: _One) -> None:
            answer = await ask(candidate)
            if answer is not None:
                found.append(answer)
                nursery.cancel_scope.cancel()
            moved.set()

        for candidate in candidates:
            moved = trio.Event()
            nursery.start_soon(put, candidate)
            with trio.move_on_after(PATIENCE):
                await moved.wait()
    return found[0] if found else None


def by_broker(things: Iterable[_One], name_of: Callable[[_One], str]) -> dict[str, list[_One]]:
    """Things in their order, by the name of their broker."""
    grouped: defaultdict[str, list[_One]] = defaultdict(list)
    for thing in things:
        grouped[name_of(thing)].append(thing)
    return grouped


async def for_each_broker(
    work: Mapping[str, _One], act: Callable[[str, _One], Awaitable[object]], *, bound: float
) -> None:
    """Do the work of each broker at the same time, for at most `bound` seconds.

    What is not done by then is cancelled. `act` handles its errors itself. No
    checkpoint where there is nothing to do.
    """
    if not work:
        return
    if len(work) == 1:
        [(name, part)] = work.items()
        if bound == math.inf:
            await act(name, part)
            return
        with trio.move_on_after(bound):
            await act(name, part)
        return
    with trio.move_on_after(bound):
        async with open_quiet_nursery() as nursery:
            for name, part in work.items():
                nursery.start_soon(act, name, part)


async def answers_of_all(
    asked: Iterable[_One], ask: Callable[[_One], Awaitable[_Answer]]
) -> list[_Answer]:
    """The answers of all, in their order; everybody is asked at the same time.

    When some fail, the others are asked all the same, and then the first error in the
    order of `asked` is raised.
    """
    asked = list(asked)
    if len(asked) == 1:
        return [await ask(asked[0])]
    found: dict[int, _Answer] = {}
    failed: dict[int, RocketMQError] = {}

    async def put(index: int) -> None:
        try:
            found[index] = await ask(asked[index])
        except RocketMQError as error:
            failed[index] = error

    async with open_quiet_nursery() as nursery:
        for index in range(len(asked)):
            nursery.start_soon(put, index)
        await trio.lowlevel.checkpoint()
    if failed:
        raise failed[min(failed)]
    return [found[index] for index in range(len(asked))]
