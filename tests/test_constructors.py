"""Calls of constructors that Python refuses name the user's class and what to write."""

from __future__ import annotations

import inspect
from typing import Any

import attrs
import pytest

import rocketmq_sdk
from rocketmq_sdk import aio, sync
from rocketmq_sdk.constructors import explained
from rocketmq_sdk.errors import RocketMQError, WrongTypeError

DOORS = [rocketmq_sdk, aio, sync]
REFUSED = [
    ("Producer", (), {}, "Producer needs group; write Producer(group, ...)"),
    ("Producer", (), {"grp": "g"}, "Producer has no argument grp; did you mean group?"),
    ("Producer", ("g", "h:1"), {}, "Producer takes only group without a name, and 2 values"),
    ("Producer", ("g",), {"group": "g"}, "Producer was given group twice"),
    (
        "PushConsumer",
        ("g",),
        {"subscription": {"a": "*"}, "listener": print},
        "PushConsumer has no argument subscription; did you mean subscriptions?",
    ),
    (
        "PushConsumer",
        ("g",),
        {"namesrv": "h:1"},
        (
            "PushConsumer needs subscriptions and listener; write "
            "PushConsumer(group, subscriptions=..., listener=..., ...)"
        ),
    ),
    ("TransactionProducer", ("g",), {}, "TransactionProducer needs checker"),
    ("EmbeddedBroker", ("a", "b"), {}, "EmbeddedBroker takes only path without a name"),
    ("Admin", (), {"namesvr": "h:1"}, "Admin has no setting namesvr"),
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize(("name", "arguments", "named", "said"), REFUSED)
def test_what_is_missing_or_misspelt_is_named(
    door: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any], said: str
) -> None:
    with pytest.raises(RocketMQError) as caught:
        getattr(door, name)(*arguments, **named)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("AutoBatch", "linger_ms", "AutoBatch has no argument linger_ms; did you mean linger? "),
        ("Credentials", "acces_key", "did you mean access_key?"),
        ("ClientConfig", "instancename", "did you mean instance_name?"),
        ("ProducerConfig", "send_timeot", "did you mean send_timeout?"),
        ("PushConfig", "orderley", "did you mean orderly?"),
        ("SimpleConfig", "consume_form", "did you mean consume_from?"),
        ("LitePullConfig", "consume_form", "did you mean consume_from?"),
        ("StoreConfig", "flush_disk_typ", "did you mean flush_disk_type?"),
        ("BrokerConfig", "broker_nam", "did you mean broker_name?"),
    ],
)
def test_classes_of_settings_name_the_nearest_one(name: str, wrong: str, said: str) -> None:
    with pytest.raises(WrongTypeError) as caught:
        getattr(rocketmq_sdk, name)(**{wrong: 1})
    assert said in str(caught.value)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_every_class_with_settings_explains(door: Any) -> None:
    """Whatever has options or is a class of settings refuses calls as an own error."""
    for name in door.__all__:
        kind = getattr(door, name)
        if not isinstance(kind, type):
            continue
        settings = attrs.has(kind) and (name.endswith("Config") or name == "AutoBatch")
        if settings or hasattr(kind, "__aenter__") or hasattr(kind, "__enter__"):
            if name == "Transaction":  # made by its producer
                continue
            with pytest.raises(WrongTypeError, match=f"^{name} takes "):
                kind(*range(99))


class Base:
    def __init__(self, size: int, *, colour: str = "red") -> None:
        self.size = len(size)  # type: ignore[arg-type]
        self.colour = colour


def test_a_type_error_from_inside_stays_as_it_is() -> None:
    kind = explained(type("Kind", (Base,), {"__init__": Base.__init__}))
    with pytest.raises(TypeError, match=r"^object of type 'int' has no len\(\)$") as caught:
        kind(5)
    assert not isinstance(caught.value, RocketMQError)
    with pytest.raises(WrongTypeError, match="Kind has no argument color; did you mean colour"):
        kind("a", color="blue")
    assert kind("ab").size == 2


def test_a_subclass_is_named_by_its_own_name() -> None:
    class Ours(rocketmq_sdk.Producer):
        """A program's own."""

    with pytest.raises(WrongTypeError, match=r"^Ours needs group; write Ours\(group, \.\.\.\)$"):
        Ours(namesrv="h:1")  # type: ignore[call-arg]


def test_signatures_stay_readable() -> None:
    assert list(inspect.signature(rocketmq_sdk.Producer).parameters)[:3] == [
        "group",
        "namesrv",
        "client",
    ]
    assert list(inspect.signature(rocketmq_sdk.AutoBatch).parameters) == ["linger", "max_bytes"]
