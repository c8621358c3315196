"""Arguments of wrong types: each public call refuses each of them by name."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from rocketmq_sdk import (
    AutoBatch,
    ClientConfig,
    ConfigurationError,
    EmbeddedBroker,
    Message,
    ProducerConfig,
    ReceivedMessage,
    WrongTypeError,
)
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.consumer.config import LitePullConfig, PushConfig, SimpleConfig
from support.public_calls import CALLS, MESSAGE, Call, client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio.testing import MockClock

ANYTHING = {"key"}
"""Arguments that may be of any type."""
LOW_LEVEL = ("call_", "oneway_")
"""What sends a command as it is; only the command is looked at."""


class Nonsense:
    """Of no type that any argument has."""

    def __repr__(self) -> str:
        return "<nonsense>"


NONSENSE = Nonsense()
KINDS = [kind for kind in CALLS if kind is not EmbeddedBroker]


def spoilt(call: Call) -> Iterator[tuple[str, Call]]:
    """A call with each of its arguments in turn replaced by nonsense."""
    for name, value in call.named.items():
        if name not in ANYTHING and (name == "command" or not call.path.startswith(LOW_LEVEL)):
            yield name, Call(call.path, {**call.named, name: NONSENSE}, call.rest)
        if isinstance(value, list | tuple):
            yield name, Call(call.path, {**call.named, name: [*value, NONSENSE]}, call.rest)
    for index in range(len(call.rest)):
        rest = (*call.rest[:index], NONSENSE, *call.rest[index + 1 :])
        yield str(NONSENSE), Call(call.path, call.named, rest)


async def carried_out(call: Call, client: object) -> None:
    """Make a call, to its end if need be."""
    result: Any = call.of(client)(*call.rest, **call.named)
    if hasattr(result, "__aenter__"):
        async with result:
            raise AssertionError("the block was entered")
    elif inspect.isawaitable(result):
        await result
    elif hasattr(result, "__anext__"):
        await anext(result)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_call_refuses_wrong_types_by_name(
    kind: type, autojump_clock: MockClock
) -> None:
    async with EmbeddedBroker() as broker, client_of(kind, broker) as client:
        for call in CALLS[kind]:
            for name, wrong in spoilt(call):
                with pytest.raises(WrongTypeError) as caught:
                    await carried_out(wrong, client)
                assert isinstance(caught.value, TypeError)
                text = str(caught.value)
                assert name.rstrip("s") in text or "<nonsense>" in text, wrong
                assert "give" in text or "send" in text or "receive" in text, text
        if hasattr(client, "in_flight"):
            assert client.in_flight == 0
            await client.send(MESSAGE)


@pytest.mark.parametrize("kind", KINDS)
def test_constructors_refuse_wrong_types(kind: type) -> None:
    client = client_of(kind, EmbeddedBroker())
    right: dict[str, Any] = {
        "group": "billing",
        "namesrv": "127.0.0.1:9",
        "checker": getattr(client, "_checker", None),
        "subscriptions": {"orders": "*"},
        "listener": getattr(client, "_listener", None),
    }
    taken = inspect.signature(kind).parameters
    arguments = {name: value for name, value in right.items() if name in taken}
    kind(**arguments)
    for name in ("group", "namesrv", "client", "subscriptions", "listener", "checker"):
        if name in taken:
            wrong = {**arguments, name: NONSENSE}
            if name == "client":
                del wrong["namesrv"]
            with pytest.raises(WrongTypeError, match=f"{name}.*<nonsense>"):
                kind(**wrong)


@pytest.mark.parametrize(
    "name", [name for name in inspect.signature(Message).parameters if name != "body"]
)
def test_messages_refuse_wrong_types(name: str) -> None:
    arguments: dict[str, Any] = {"topic": "orders", "body": b"x", name: NONSENSE}
    with pytest.raises(WrongTypeError, match=r"<nonsense>"):
        Message(**arguments)
    if name in inspect.signature(ReceivedMessage).parameters:
        with pytest.raises(WrongTypeError, match=r"<nonsense>"):
            ReceivedMessage(**arguments)


def test_truth_values_are_no_numbers_and_the_other_way_round() -> None:
    class Thing:
        @checked
        def act(
            self, number: int, *names: str, flag: bool = False, wait: float | None = None
        ) -> str:
            """A method as users call it."""
            return f"{number}{names}{flag}{wait}"

    thing = Thing()
    assert thing.act(1, "a", "b", flag=True, wait=2) == "1('a', 'b')True2"
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((True,), {}),
        ((1.0,), {}),
        ((1, "a", 2), {}),
        ((1,), {"flag": 1}),
        ((1,), {"wait": True}),
    ]
    for arguments, named in wrong:
        with pytest.raises(WrongTypeError, match=r"of act\(\) is"):
            thing.act(*arguments, **named)
    with pytest.raises(TypeError, match="number"):
        thing.act()  # type: ignore[call-arg]
    assert issubclass(WrongTypeError, ConfigurationError)


SETTINGS = (ClientConfig, ProducerConfig, AutoBatch, PushConfig, LitePullConfig, SimpleConfig)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, field.name) for kind in SETTINGS for field in attrs.fields(kind) if field.init],
)
def test_no_setting_takes_what_is_of_a_wrong_type(kind: type, name: str) -> None:
    for value in (object(), 1j):
        with pytest.raises(ConfigurationError) as refused:
            kind(**{name: value})
        assert name.removesuffix("s") in str(refused.value)
