"""Errors come out of a nursery as themselves; cleanup is shielded and bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    Admin,
    Client,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
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

    way = r"runs on trio.*In asyncio use rocketmq_sdk\.aio\..*in plain threads rocketmq_sdk\.sync\."
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


class OwnGroup(ExceptionGroup[Exception]):
    """A user's own kind of group, which does not say how it is derived."""


def errors_of_users() -> list[BaseException]:
    caused = ValueError("caused")
    caused.__cause__ = OSError("reason")
    caused.add_note("a note")
    happened = ValueError("while another one was handled")
    happened.__context__ = OSError("the other one")
    return [
        ValueError("alone"),
        caused,
        happened,
        ExceptionGroup("one", [ValueError("a")]),
        ExceptionGroup("one in one", [ExceptionGroup("one", [ValueError("a")])]),
        ExceptionGroup("two", [ValueError("a"), ValueError("b")]),
        OwnGroup("own", [ValueError("a")]),
        KeyboardInterrupt(),
        BaseExceptionGroup("base", [KeyboardInterrupt()]),
        ClosedError("as the package raises it"),
    ]


def traits(error: BaseException) -> tuple[object, ...]:
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return (
        *(error.__cause__, error.__context__, error.__suppress_context__),
        *(getattr(error, "__notes__", None), tuple(map(id, members))),
    )


@pytest.mark.parametrize("index", range(len(errors_of_users())))
async def test_what_the_block_raises_comes_out_as_it_is(
    index: int, autojump_clock: MockClock
) -> None:
    async def listen(_message: object) -> None:
        """Never called."""

    async def checker(_message: object) -> TransactionState:
        return TransactionState.COMMIT

    async with EmbeddedBroker() as broker, Client(broker) as client:
        ways: list[dict[str, Any]] = [{"namesrv": broker}, {"client": client}]
        faces: list[AbstractAsyncContextManager[object]] = [EmbeddedBroker(), Client(broker)]
        for way in ways:
            faces += [
                Producer("p", **way),
                TransactionProducer("t", checker, **way),
                PushConsumer("g", subscriptions=TOPICS, listener=listen, **way),
                SimpleConsumer("s", subscriptions=TOPICS, **way),
                LitePullConsumer("l", subscriptions=TOPICS, **way),
                PullConsumer("u", **way),
                Admin(**way),
                open_quiet_nursery(),
            ]
        producer = TransactionProducer("q", checker, namesrv=broker)
        await producer.__aenter__()
        faces.append(producer.transaction(Message("orders", b"x")))
        for face in faces:
            error = errors_of_users()[index]
            before = traits(error)
            with pytest.raises(type(error)) as caught:
                async with face:
                    raise error
            assert caught.value is error, face
            assert traits(error) == before, face
        await producer.__aexit__(None, None, None)


async def test_a_users_nursery_in_the_block_raises_its_group(autojump_clock: MockClock) -> None:
    async def block(broker: EmbeddedBroker) -> None:
        async with Producer("p", namesrv=broker), trio.open_nursery() as nursery:
            nursery.start_soon(_raise, ValueError("a"))
            nursery.start_soon(trio.sleep_forever)

    async with EmbeddedBroker() as broker:
        with pytest.raises(ExceptionGroup) as caught:
            await block(broker)
        assert [type(error) for error in caught.value.exceptions] == [ValueError]


async def test_a_cancelled_block_whose_tasks_failed_tells_the_failures(
    autojump_clock: MockClock,
) -> None:
    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while it was cancelled")

    async def block(broker: EmbeddedBroker) -> None:
        async with Producer("p", namesrv=broker), trio.open_nursery() as nursery:
            nursery.start_soon(fail_when_cancelled)
            await trio.sleep_forever()

    async def lone(broker: EmbeddedBroker) -> None:
        async with Producer("p", namesrv=broker):
            await fail_when_cancelled()

    async with EmbeddedBroker() as broker:
        with pytest.raises(ExceptionGroup) as caught, trio.move_on_after(1):
            await block(broker)
        assert [type(error) for error in caught.value.exceptions] == [ValueError]
        with pytest.raises(ValueError, match="cancelled"), trio.move_on_after(1):
            await lone(broker)


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
