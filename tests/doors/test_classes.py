"""A class where an object or a function is wanted: each door refuses it at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import rocketmq_sdk
from rocketmq_sdk import aio, sync
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import WrongTypeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

TOPICS = {"orders": "*"}


class Called:
    """A class whose objects are functions of everything."""

    def __call__(self, *_arguments: object) -> None: ...


class CalledAsync:
    """The same, async."""

    async def __call__(self, *_arguments: object) -> None: ...


class Bare: ...


def function(_argument: object) -> None: ...


def push(door: Any, **options: object) -> None:
    given = {"namesrv": "a:1", "subscriptions": TOPICS, "listener": function, **options}
    door.PushConsumer("g", **given)


def lite_pull(door: Any, **options: object) -> None:
    door.LitePullConsumer("g", **{"namesrv": "a:1", "subscriptions": TOPICS, **options})


def transactions(door: Any, checker: object) -> None:
    door.TransactionProducer("g", checker, namesrv="a:1")


WRONG: list[tuple[Callable[[Any], None], str]] = [
    (lambda door: push(door, listener=Called), r"listener is the class Called; .*Called\(\)"),
    (lambda door: push(door, listener=CalledAsync), r"the class CalledAsync; .*Async\(\)"),
    (lambda door: push(door, listener=Bare), "listener is the class Bare; give a"),
    (lambda door: push(door, namesrv=door.EmbeddedBroker), "namesrv is the class EmbeddedBroker"),
    (
        lambda door: push(door, strategy=rocketmq_sdk.Average),
        r"strategy is the class Average; .*Average\(\)",
    ),
    (
        lambda door: lite_pull(door, on_assignment_change=Called),
        r"on_assignment_change is the class Called; .*Called\(\)",
    ),
    (
        lambda door: lite_pull(door, on_assignment_change=CalledAsync),
        "on_assignment_change is the class CalledAsync",
    ),
    (lambda door: door.EmbeddedBroker(clock=TrioClock), r"clock is the class .*TrioClock\(\)"),
    (lambda door: door.EmbeddedBroker(config=BrokerConfig), r"config is .*give a BrokerConfig"),
    (lambda door: transactions(door, Called), r"checker is the class Called; .*Called\(\)"),
    (lambda door: transactions(door, CalledAsync), "checker is the class CalledAsync"),
]


@pytest.mark.parametrize("door", [rocketmq_sdk, aio, sync], ids=lambda door: str(door.__name__))
@pytest.mark.parametrize(("make", "text"), WRONG)
def test_a_class_is_refused_with_the_remedy(
    door: ModuleType, make: Callable[[Any], None], text: str
) -> None:
    async def in_loop() -> None:
        make(door)

    with pytest.raises(WrongTypeError, match=text):
        asyncio.run(in_loop()) if door is aio else make(door)


def test_a_class_as_a_selector_is_refused() -> None:
    with sync.EmbeddedBroker() as broker, sync.Producer("shop", namesrv=broker) as producer:
        message, wrong = sync.Message("orders", b"1"), Called
        with pytest.raises(WrongTypeError, match="selector is the class Called"):
            producer.send(message, selector=wrong)  # type: ignore[arg-type]  # what it is about
