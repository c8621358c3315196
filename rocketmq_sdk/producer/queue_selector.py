"""Selectors of queues, and the counter of round robin.

`MessageQueueSelector`, `SelectMessageQueueByHash` and `ThreadLocalIndex` of Apache
RocketMQ 5.4.0. A selector is any function that is called with the queues to choose
from, the message and the caller's key, in this order and without names, and returns one
of the queues; it must not wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import Enum
from inspect import signature
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.names import java_hash

if TYPE_CHECKING:
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.queue import MessageQueue

QueueSelector = Callable[["Sequence[MessageQueue]", "Message", object], "MessageQueue"]
"""A selector: queues (never empty), message and key to the chosen queue.

The key is None when the caller gave none.
"""


class Unset(Enum):
    """What stands for a key that was not given; None may be a mistake."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return self.value


UNSET: Final = Unset.UNSET

_MASK: Final = 0x7FFFFFFF
_INT_RANGE: Final = 1 << 32


class QueueIndex:
    """The counter of round robin (`ThreadLocalIndex`).

    A Java `int` that grows before use and is masked to 31 bits.
    """

    __slots__ = ("value",)

    def __init__(self, value: int | None = None) -> None:
        self.value = random.getrandbits(31) if value is None else value

    def next(self) -> int:
        """The next position, to be taken modulo the number of queues."""
        value = self.value + 1
        if value > _MASK:
            value -= _INT_RANGE
        self.value = value
        return value & _MASK

    def reset(self) -> None:
        """Go on from a random place."""
        self.value = random.getrandbits(31)


def key_hash(key: object) -> int:
    """Java's hash code of a key, so that a Java producer chooses the same queue.

    For texts, whole numbers and booleans; bytes count as Latin-1 text.

    Raises `WrongTypeError` for anything else, whose Java hash code has no counterpart,
    and `ConfigurationError` for a number of more than 64 bits.
    """
    if isinstance(key, str):
        return java_hash(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        if -0x80000000 <= key <= 0x7FFFFFFF:
            return key
        if -(1 << 63) <= key < 1 << 63:
            folded = (key ^ (key >> 32)) & 0xFFFFFFFF
            return folded - _INT_RANGE if folded & 0x80000000 else folded
        raise ConfigurationError(f"the key {key} does not fit 64 bits; use a text")
    if isinstance(key, bytes):
        return java_hash(key.decode("latin-1"))
    raise WrongTypeError(
        f"a key of type {type(key).__name__} cannot choose a queue; use a text, bytes, or a whole "
        "number"
    )


def arguments_problem(
    selector: QueueSelector, queues: Sequence[MessageQueue], message: Message, key: object
) -> str | None:
    """Why a selector cannot be called as selectors are, or None where it can."""
    try:
        taken = signature(selector)
    except (TypeError, ValueError):  # of C, without a signature
        return None
    try:
        taken.bind(queues, message, key)
    except TypeError as error:
        name = getattr(selector, "__qualname__", None) or repr(selector)
        return (
            f"the selector {name:.200}{taken} is called with three arguments, (queues, message, "
            f"key): {error}"
        )
    return None


def select_by_hash(queues: Sequence[MessageQueue], _message: Message, key: object) -> MessageQueue:
    """Send equal keys to the same queue, as long as the number of queues stays.

    The queue is the hash code modulo the number of queues, without its sign.
    """
    return queues[abs(key_hash(key)) % len(queues)]


def select_by_key(queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue:
    """As `select_by_hash`, with the message's own key when the caller gives none.

    That is its sharding key, else its first key.

    Raises `ConfigurationError` when the message has neither.
    """
    if key is None or key is UNSET:
        key = message.sharding_key or next(iter(message.keys), None)
        if key is None:
            raise ConfigurationError(
                "the message has neither a sharding key nor keys to choose a queue by"
            )
    return queues[abs(key_hash(key)) % len(queues)]


def select_by_random(
    queues: Sequence[MessageQueue], _message: Message, _key: object
) -> MessageQueue:
    """Any queue."""
    return random.choice(queues)


class RoundRobin:
    """One queue after the other, by a counter of its own for each topic."""

    __slots__ = ("_indexes",)

    def __init__(self) -> None:
        self._indexes: dict[str, QueueIndex] = {}

    def __call__(
        self, queues: Sequence[MessageQueue], message: Message, _key: object
    ) -> MessageQueue:
        """The queue after the one chosen last."""
        index = self._indexes.get(message.topic)
        if index is None:
            index = self._indexes[message.topic] = QueueIndex()
        return queues[index.next() % len(queues)]
