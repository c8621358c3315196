"""Calls of constructors that Python refuses, said in the words of the user's class.

Python names the class in whose body the constructor stands, hides a misspelt name
behind the one that is then missing, and raises an error that is none of this package's.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from rocketmq_sdk.errors import WrongTypeError
from rocketmq_sdk.spelling import meant, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from types import CodeType

_Kind = TypeVar("_Kind", bound=type[Any])


def explained(kind: _Kind) -> _Kind:
    """Let a class raise `WrongTypeError` for a call that its constructor does not take.

    The class may stand behind this as a decorator. Nothing is looked at before Python
    has refused the call.
    """
    init: Callable[..., None] | None = kind.__dict__.get("__init__")
    if init is None or not hasattr(init, "__code__"):
        return kind

    @wraps(init)
    def __init__(self: object, *arguments: Any, **named: Any) -> None:  # noqa: N807
        try:
            init(self, *arguments, **named)
        except TypeError as error:
            # What is raised inside has another frame behind this one.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            name = type(self).__name__
            raise WrongTypeError(_Refused(name, init, len(arguments), named).said()) from None

    type.__setattr__(kind, "__init__", __init__)
    return kind


class _Refused:
    """A call that Python has refused, and what the constructor takes."""

    def __init__(
        self, name: str, init: Callable[..., None], by_place: int, named: Collection[str]
    ) -> None:
        code: CodeType = init.__code__
        ends = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        self.name = name
        self.places = code.co_varnames[1 : ends[0]]
        self.only_named = code.co_varnames[ends[0] : ends[1]]
        self.by_place = by_place
        self.named = named
        self.takes_others = bool(code.co_flags & inspect.CO_VARKEYWORDS)
        """Settings that the constructor looks at itself."""
        optional = len(init.__defaults__ or ())
        self.needed = [
            *self.places[: len(self.places) - optional],
            *(name for name in self.only_named if name not in (init.__kwdefaults__ or {})),
        ]

    def said(self) -> str:
        """What is wrong with the call, and what to write."""
        known = [*self.places, *self.only_named]
        given = self.places[: self.by_place]
        missing = [each for each in self.needed if each not in {*given, *self.named}]
        if self.by_place > len(self.places):
            return self._too_many()
        unknown = sorted(set(self.named) - set(known))
        if self.takes_others:  # one that is misspelt is missing as well
            unknown = [each for each in unknown if nearest(each, missing)]
        if unknown:
            hint = meant(*unknown, known=missing if self.takes_others else known, most=1)
            there_are = "" if self.takes_others else f" there are {', '.join(sorted(known))}"
            return f"{self.name} has no argument {', '.join(unknown)}{hint or ';'}{there_are}"
        if missing:
            return f"{self.name} needs {' and '.join(missing)}; write {self._form()}"
        twice = [each for each in given if each in self.named]
        return f"{self.name} was given {', '.join(twice)} twice, by place and by name"

    def _too_many(self) -> str:
        takes = f"only {', '.join(self.places)}" if self.places else "nothing"
        return (
            f"{self.name} takes {takes} without a name, and {self.by_place} values were given so; "
            f"write {self._form()}, and what else you give with its name"
        )

    def _form(self) -> str:
        """How it is called with what it needs."""
        words: Sequence[str] = [
            each if each in self.places else f"{each}=..." for each in self.needed
        ]
        return f"{self.name}({', '.join([*words, '...'])})"
