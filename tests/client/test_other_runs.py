"""Calls from another `trio.run` than the client's own, or from none."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    AutoBatch,
    Client,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    SimpleConsumer,
    WrongRunError,
)
from support.public_calls import CALLS, MESSAGE, TOPIC, Call, client_of, public_methods

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

pytestmark = pytest.mark.real_time
ELSEWHERE = (
    r"entered in another trio.run.*to_thread\.run_sync.*trio_token=token|"
    "broker lives in another trio.run; give it a port"
)
OUTSIDE = (
    r"not come from a task of trio.*from_thread\.run\(.*trio_token=token|"
    "broker lives in another trio.run; give it a port"
)


async def carried_out(call: Call, client: object) -> None:
    """Make a call, to its end if need be."""
    result: Any = call.of(client)(*call.rest, **call.named)
    if hasattr(result, "__aenter__"):
        async with result:
            raise AssertionError("the block was entered")
    elif hasattr(result, "__anext__") and not inspect.isawaitable(result):
        await anext(result)
    elif inspect.isawaitable(result):
        await result


async def refused(calls: list[Call], client: object, text: str) -> None:
    for call in calls:
        with trio.fail_after(60), pytest.raises(WrongRunError, match=text):
            await carried_out(call, client)


def refused_without_trio(calls: list[Call], client: object) -> None:
    for call in calls:
        with pytest.raises(WrongRunError, match=OUTSIDE):
            carried_out(call, client).send(None)


async def refused_in_asyncio(calls: list[Call], client: object) -> None:
    for call in calls:
        with pytest.raises(WrongRunError, match=OUTSIDE):
            await carried_out(call, client)


@pytest.mark.parametrize("kind", CALLS)
async def test_every_call_from_elsewhere_is_refused_and_told_the_way(kind: type) -> None:
    calls = CALLS[kind]
    async with EmbeddedBroker() as broker, client_of(kind, broker) as client:
        if isinstance(client, Producer):
            await client.send(MESSAGE)  # what knows a topic takes shorter ways
        await trio.to_thread.run_sync(trio.run, refused, calls, client, ELSEWHERE)
        await trio.to_thread.run_sync(refused_without_trio, calls, client)
        await trio.to_thread.run_sync(asyncio.run, refused_in_asyncio(calls, client))
        if isinstance(client, Producer):
            assert client.in_flight == 0
            await client.send(MESSAGE)


@pytest.mark.parametrize("kind", CALLS)
def test_the_table_has_every_call(kind: type) -> None:
    assert {call.path for call in CALLS[kind]} >= set(public_methods(kind))


async def test_what_the_error_says_works() -> None:
    async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        token = trio.lowlevel.current_trio_token()
        send: Callable[[], object] = partial(
            trio.from_thread.run, producer.send, MESSAGE, trio_token=token
        )

        async def elsewhere() -> None:
            await trio.to_thread.run_sync(send)

        await trio.to_thread.run_sync(trio.run, elsewhere)
        await trio.to_thread.run_sync(send)
        submit = partial(trio.from_thread.run_sync, producer.submit, MESSAGE, trio_token=token)
        await (await trio.to_thread.run_sync(submit))
        queues = await producer.messages.queues(TOPIC)
        found = [await producer.messages.from_offset(queue, 0, 10) for queue in queues]
        assert sum(map(len, found)) == 3


async def test_batches_and_handles_are_refused_too() -> None:
    async with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker, auto_batch=AutoBatch(linger=30)) as producer,
    ):
        handle = producer.submit(MESSAGE)

        async def elsewhere() -> None:
            with pytest.raises(WrongRunError, match=ELSEWHERE):
                producer.submit(MESSAGE)
            with pytest.raises(WrongRunError, match=ELSEWHERE):
                await handle
            with pytest.raises(WrongRunError, match=ELSEWHERE):
                await handle.settled()

        await trio.to_thread.run_sync(trio.run, elsewhere)
        await producer.flush()
        assert (await handle).queue.topic == TOPIC


async def test_a_client_and_a_broker_are_not_shared_between_runs() -> None:
    async with EmbeddedBroker() as broker, Client(broker) as client:
        subscriptions = {TOPIC: "*"}

        async def listen(_message: object) -> None:
            """Never called."""

        async def used(client: AbstractAsyncContextManager[object]) -> None:
            async with client as entered:
                assert isinstance(entered, Producer)  # it connects when it sends
                await entered.send(Message(TOPIC, b"x"))

        async def elsewhere(make: Callable[[], AbstractAsyncContextManager[object]]) -> None:
            with trio.fail_after(60), pytest.raises(WrongRunError):
                await used(make())

        ways: list[dict[str, Any]] = [{"client": client}, {"namesrv": broker}]
        for way in ways:
            for make in (
                partial(Producer, "shop", **way),
                partial(PushConsumer, "a", subscriptions=subscriptions, listener=listen, **way),
                partial(SimpleConsumer, "b", subscriptions=subscriptions, **way),
                partial(LitePullConsumer, "c", subscriptions=subscriptions, **way),
            ):
                await trio.to_thread.run_sync(trio.run, elsewhere, make)
