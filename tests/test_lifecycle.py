"""Errors come out of a nursery as themselves; cleanup is shielded and bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import (
    Admin,
    Client,
    EmbeddedBroker,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from rocketmq_sdk.errors import ClosedError, ConnectError, WrongRunError
from rocketmq_sdk.lifecycle import (
    bounded_cleanup,
    open_quiet_nursery,
    raise_unwrapped,
    unwrap_single,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from trio.testing import MockClock

NOWHERE = "127.0.0.1:9"
TOPICS = {"orders": "*"}
FACES: list[Callable[[], AbstractAsyncContextManager[object]]] = [
    lambda: Client(NOWHERE),
    lambda: Producer("g", namesrv=NOWHERE),
    lambda: TransactionProducer("g", namesrv=NOWHERE, checker=print),  # type: ignore[arg-type]
    lambda: PushConsumer("g", namesrv=NOWHERE, subscriptions=TOPICS, listener=print),  # type: ignore[arg-type]
    lambda: SimpleConsumer("g", namesrv=NOWHERE, subscriptions=TOPICS),
    lambda: LitePullConsumer("g", namesrv=NOWHERE, subscriptions=TOPICS),
    lambda: PullConsumer("g", namesrv=NOWHERE),
    lambda: Admin(namesrv=NOWHERE),
    EmbeddedBroker,
]
"""What may be made anywhere, and entered only in a trio task."""


@pytest.mark.parametrize("make", FACES)
def test_everything_is_made_anywhere_and_entering_it_outside_of_trio_names_the_way(
    make: Callable[[], AbstractAsyncContextManager[object]],
) -> None:
    face = make()

    async def enter() -> None:
        async with face:
            raise AssertionError("it was entered")

    way = r"runs on trio.*In asyncio use rocketmq_sdk\.aio\."
    with pytest.raises(WrongRunError, match=way):
        asyncio.run(enter())
    with pytest.raises(WrongRunError, match=type(face).__name__):
        enter().send(None)


async def _raise(error: BaseException) -> None:
    raise error


async def test_a_single_failure_is_raised_as_itself() -> None:
    error = ConnectError("refused")
    cause = OSError("reason")
    error.__cause__ = cause
    with pytest.raises(ConnectError, match="refused") as caught:
        async with open_quiet_nursery() as nursery:
            nursery.start_soon(_raise, error)
    assert caught.value is error
    assert caught.value.__cause__ is cause


async def test_nested_nurseries_unwrap_to_the_leaf() -> None:
    with pytest.raises(ConnectError):
        async with open_quiet_nursery(), open_quiet_nursery() as inner:
            inner.start_soon(_raise, ConnectError("refused"))


async def test_several_failures_stay_a_group() -> None:
    async def both() -> None:
        async with open_quiet_nursery() as nursery:
            nursery.start_soon(_raise, ConnectError("a"))
            nursery.start_soon(_raise, ClosedError("b"))

    with pytest.raises(BaseExceptionGroup) as caught:
        await both()
    assert {type(error) for error in caught.value.exceptions} == {ConnectError, ClosedError}


async def test_cancellation_passes(autojump_clock: MockClock) -> None:
    with trio.fail_after(10):
        with trio.move_on_after(1) as scope:
            async with open_quiet_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await trio.sleep_forever()
        assert scope.cancelled_caught


def test_unwrapping() -> None:
    leaf = ValueError("leaf")
    two = ExceptionGroup("two", [ValueError("a"), ValueError("b")])
    assert unwrap_single(ExceptionGroup("outer", [ExceptionGroup("inner", [leaf])])) is leaf
    assert unwrap_single(two) is two
    assert unwrap_single(ExceptionGroup("outer", [two])) is two
    with pytest.raises(ExceptionGroup) as caught:
        raise_unwrapped(two)
    assert caught.value is two


async def test_cleanup_survives_cancellation(autojump_clock: MockClock) -> None:
    done = False
    with trio.fail_after(10), trio.CancelScope() as scope:
        scope.cancel()
        async with bounded_cleanup(5) as cleanup:
            await trio.sleep(2)
            done = True
        assert not cleanup.cancelled_caught
    assert done


async def test_cleanup_ends_at_its_bound(autojump_clock: MockClock) -> None:
    with trio.fail_after(10):
        started = trio.current_time()
        async with bounded_cleanup(3) as cleanup:
            await trio.sleep_forever()
        assert cleanup.cancelled_caught
        assert trio.current_time() - started == 3
