"""Types of the arguments of a user's calls, checked as the annotations say.

Without it a wrong type shows as an `AttributeError` somewhere below, or is sent as a
text. Methods that are called for each message look for themselves.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, TypeVar

import attrs

from rocketmq_sdk.errors import WrongTypeError
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

NONE: Final = type(None)


@attrs.frozen
class _Rule:
    """What an annotation accepts, and how that is said."""

    kinds: tuple[type, ...]
    said: str
    item: tuple[type, ...] = ()
    """The types of the members of a collection, or of the keys of a table."""
    value: tuple[type, ...] = ()
    """The types of the values of a table."""

    def accepts(self, argument: object) -> bool:
        """Whether an argument is of the right type, its members too."""
        if not _is_a(argument, self.kinds):
            return False
        if self.item and isinstance(argument, Collection):
            if not all(_is_a(item, self.item) for item in argument):
                return False
            if self.value and isinstance(argument, Mapping):
                return all(_is_a(value, self.value) for value in argument.values())
        return True


def _is_a(argument: object, kinds: tuple[type, ...]) -> bool:
    # True is an int to Python, and surely a mistake where a number is wanted.
    return isinstance(argument, kinds) and (not isinstance(argument, bool) or bool in kinds)


_QUEUE: Final = "a MessageQueue"
_NUMBERS: Final = (int, float)
_TEXTS: Final = "a table of texts"
_MOMENT: Final = "an aware datetime or epoch milliseconds as a whole number"
_RULES: Final[dict[str, _Rule]] = {
    "str": _Rule((str,), "a text"),
    "str | None": _Rule((str, NONE), "a text"),
    "Iterable[str]": _Rule((Iterable,), "texts", item=(str,)),
    "Iterable[str] | None": _Rule((Iterable, NONE), "texts", item=(str,)),
    "bytes": _Rule((bytes, bytearray, memoryview), "bytes"),
    "bool": _Rule((bool,), "True or False"),
    "int": _Rule((int,), "a whole number"),
    "int | None": _Rule((int, NONE), "a whole number"),
    "float | None": _Rule((*_NUMBERS, NONE), "seconds"),
    "float | timedelta": _Rule((*_NUMBERS, timedelta), "seconds or a timedelta"),
    "float | timedelta | None": _Rule((*_NUMBERS, timedelta, NONE), "seconds or a timedelta"),
    "datetime | int": _Rule((datetime, int), _MOMENT),
    "datetime | int | None": _Rule((datetime, int, NONE), _MOMENT),
    "Moment": _Rule((datetime, int, NONE), _MOMENT),
    "BoundaryType": _Rule((BoundaryType,), "a BoundaryType"),
    "Message": _Rule((Message,), 'a Message: Message("topic", b"body")'),
    "ReceivedMessage": _Rule((ReceivedMessage,), "a ReceivedMessage"),
    "str | SendResult": _Rule((str, SendResult), "a SendResult, or its recall_handle"),
    "MessageQueue": _Rule((MessageQueue,), _QUEUE),
    "MessageQueue | None": _Rule((MessageQueue, NONE), _QUEUE),
    "Collection[MessageQueue]": _Rule(
        (Collection,), "a collection of MessageQueue", item=(MessageQueue,)
    ),
    "Mapping[MessageQueue, int] | None": _Rule(
        (Mapping, NONE), "a table of offsets by MessageQueue", item=(MessageQueue,), value=(int,)
    ),
    "Mapping[str, str]": _Rule((Mapping,), _TEXTS, item=(str,), value=(str,)),
    "Mapping[str, str] | None": _Rule((Mapping, NONE), _TEXTS, item=(str,), value=(str,)),
    "SubscriptionGroupConfig | str": _Rule(
        (SubscriptionGroupConfig, str), "a SubscriptionGroupConfig, or the name of a group"
    ),
}
"""What annotations of public methods accept. Others are checked by the method."""


def checked(method: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Let a method raise `WrongTypeError` for what its annotations do not allow.

    An async method raises it when it is awaited.
    """
    # `inspect.signature` would cost more than all the rest of an import.
    code = method.__code__
    named_ones = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[1 : code.co_argcount]
    rest = code.co_varnames[named_ones] if code.co_flags & inspect.CO_VARARGS else None
    rules = {
        name: rule
        for name, annotation in method.__annotations__.items()
        if (rule := _RULES.get(annotation)) is not None
    }

    def check(arguments: Sequence[object], named: Mapping[str, object]) -> None:
        # What is too many or missing is for Python to refuse.
        for index, argument in enumerate(arguments[1:]):
            name = names[index] if index < len(names) else rest
            if name is not None:
                _check(method, name, argument, rules)
        for name, argument in named.items():
            _check(method, name, argument, rules)

    return _around(method, check)


def _check(
    method: Callable[..., object], name: str, argument: object, rules: Mapping[str, _Rule]
) -> None:
    rule = rules.get(name)
    if rule is not None and not rule.accepts(argument):
        raise wrong_type(f"{name} of {method.__name__}()", argument, rule.said)


def _around(
    method: Callable[_Parameters, _Result],
    check: Callable[[Sequence[object], Mapping[str, object]], None],
) -> Callable[_Parameters, _Result]:
    """A method behind a check of its arguments, of the same kind: async or plain."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call_async(*arguments: Any, **named: Any) -> Any:
            check(arguments, named)
            return await method(*arguments, **named)

        return call_async  # type: ignore[return-value]

    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        check(arguments, named)
        return method(*arguments, **named)

    return call


def wrong_type(what: str, given: object, wanted: str) -> WrongTypeError:
    """The error for an argument of a wrong type."""
    return WrongTypeError(f"{what} is {given!r:.200}; give {wanted}")
