"""Conversion and validation of settings, and of arguments of calls.

A validator raises `ConfigurationError`, which names the setting, its value, and what it
must be. Unless said otherwise bounds are inclusive.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.spelling import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta
    from enum import Enum

    Validator = Callable[[object, attrs.Attribute[Any], Any], None]

_T = TypeVar("_T", bound=attrs.AttrsInstance)


# --- durations


def to_seconds(value: float | timedelta) -> float:
    """Seconds of a number or a `timedelta`.

    Raises `WrongTypeError` when it is neither, `ConfigurationError` for what is no
    number.
    """
    total = getattr(value, "total_seconds", None)
    if total is not None:
        return float(total())
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongTypeError(f"{value!r:.200} is no duration; give seconds or a timedelta")
    if value != value:
        raise ConfigurationError(f"{value!r} is no duration; give seconds or a timedelta")
    return float(value)


def optional_seconds(value: float | timedelta | None) -> float | None:
    """As `to_seconds`; None stays None."""
    return None if value is None else to_seconds(value)


def positive(_instance: object, field: attrs.Attribute[float], value: float) -> None:
    """Accept numbers above 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not value > 0:
        raise (ConfigurationError if number else WrongTypeError)(
            f"{field.name} is {value!r:.200}; it must be above 0"
        )


def positive_or_none(
    _instance: object, field: attrs.Attribute[float | None], value: float | None
) -> None:
    """Accept numbers above 0, and None."""
    if value is not None and not value > 0:
        raise ConfigurationError(f"{field.name} is {value!r}; it must be above 0, or None")


def not_negative(_instance: object, field: attrs.Attribute[float], value: float) -> None:
    """Accept finite numbers from 0 on."""
    if not 0 <= value < float("inf"):
        raise ConfigurationError(f"{field.name} is {value!r}; it must not be below 0")


def seconds_between(low: float, high: float) -> Validator:
    """Accept seconds from `low` to `high`."""

    def check(_instance: object, field: attrs.Attribute[float], value: float) -> None:
        if not low <= value <= high:
            raise ConfigurationError(
                f"{field.name} is {value!r} s; it must be from {low:g} to {high:g}"
            )

    return check


# --- whole numbers


def check_count(name: str, value: object, least: int) -> None:
    """Raise `ConfigurationError` unless a whole number is `least` or more."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least:  # type: ignore[operator]
        raise (ConfigurationError if whole else WrongTypeError)(
            f"{name} is {value!r:.200}; it must be a whole number of at least {least}"
        )


def at_least(least: int) -> Validator:
    """Accept whole numbers from `least` on."""

    def check(_instance: object, field: attrs.Attribute[int], value: int) -> None:
        check_count(field.name, value, least)

    return check


def between(low: int, high: int, special: int | None = None) -> Validator:
    """Accept whole numbers from `low` to `high`, and `special` unless it is None."""

    def check(_instance: object, field: attrs.Attribute[int], value: int) -> None:
        if value == special and special is not None:
            return
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not low <= value <= high:
            also = f", or {special}" if special is not None else ""
            raise (ConfigurationError if whole else WrongTypeError)(
                f"{field.name} is {value!r}; it must be a whole number from {low} to {high}{also}"
            )

    return check


# --- other values


def boolean(_instance: object, field: attrs.Attribute[bool], value: bool) -> None:
    """Accept True and False."""
    if not isinstance(value, bool):
        raise WrongTypeError(f"{field.name} is {value!r:.200}; it must be True or False")


def member_of(kind: type[Enum]) -> Validator:
    """Accept the members of an enumeration."""

    def check(_instance: object, field: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, kind):
            raise WrongTypeError(
                f"{field.name} is {value!r:.200}; give a member of {kind.__name__}"
            )

    return check


def path_of(name: str, value: object) -> str:
    """The text of a path. Raises `WrongTypeError` for what is none."""
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str):
            return path
    raise WrongTypeError(f"{name} is {value!r:.200}; give a path, as a text or a pathlib.Path")


def with_methods(name: str, value: object, methods: Iterable[str], give: str) -> None:
    """Raise `WrongTypeError` unless a value is an object with these methods.

    A class has them too, but they fail when they are called. `give` is the remedy.
    """
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise WrongTypeError(
            f"{name} is {value!r:.200}, which has no method {' and '.join(missing)}; {give}"
        )
    if isinstance(value, type):
        raise WrongTypeError(f"{name} is the class {value.__name__}; {_made_of(value)}")


def check_callable(name: str, value: object, give: str) -> None:
    """Raise `WrongTypeError` unless a value can be called and is no class.

    A call of a class would only make an object. `give` is the remedy.
    """
    if isinstance(value, type):
        called = any("__call__" in vars(kind) for kind in value.__mro__)
        raise WrongTypeError(
            f"{name} is the class {value.__name__}; {_made_of(value) if called else give}"
        )
    if not callable(value):
        raise WrongTypeError(f"{name} is {value!r:.200}, which cannot be called; {give}")


def _made_of(kind: type) -> str:
    return f"give an object of it, as {kind.__name__}(), not the class"


# --- errors that name the setting


_KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "bool": ((bool,), "True or False"),
    "bool | None": ((bool, type(None)), "True, False or None"),
    "str": ((str,), "a text"),
    "str | None": ((str, type(None)), "a text, or None"),
    "int": ((int,), "a whole number"),
}
"""The types of settings by their annotations, and how they are said."""


def with_named_errors(
    _kind: type, fields: list[attrs.Attribute[Any]]
) -> list[attrs.Attribute[Any]]:
    """The fields of a class of settings that refuse wrong types by their names.

    For `attrs.frozen(field_transformer=...)`. What a converter cannot take raises
    `WrongTypeError` or `ConfigurationError` with the name in front, and so does what is
    no text, whole number, True or False where the annotation says so.
    """
    return [_named(field) for field in fields]


def _named(field: attrs.Attribute[Any]) -> attrs.Attribute[Any]:
    name, more = field.name, field.validator
    convert: Callable[[Any], Any] | None = field.converter  # type: ignore[assignment]
    if convert is not None:

        def converter(value: Any) -> Any:
            try:
                return convert(value)
            except ConfigurationError as error:
                if name in str(error):
                    raise
                raise type(error)(f"{name}: {error}") from None
            except (TypeError, AttributeError, ValueError):
                raise WrongTypeError(f"{name} is {value!r:.200}, of a wrong type") from None

        return field.evolve(converter=converter)
    if (rule := _KINDS.get(str(field.type))) is None:
        return field
    kinds, said = rule

    def validator(instance: object, field: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise WrongTypeError(f"{name} is {value!r:.200}; it must be {said}")
        if more is not None:
            more(instance, field, value)

    return field.evolve(validator=validator)


# --- changed settings


def with_values(settings: _T, **values: object) -> _T:
    """A copy of settings with other values; `attrs.evolve` for classes with many.

    Only the new values are validated, and those that `__attrs_post_init__` looks at:
    the others were when the settings were made. There are no converters.
    """
    kind = type(settings)
    changed, put, left = object.__new__(kind), object.__setattr__, dict(values)
    for field in attrs.fields(kind):
        name = field.name
        if name not in left:
            put(changed, name, getattr(settings, name))
            continue
        value = left.pop(name)
        if field.validator is not None:
            field.validator(settings, field, value)
        put(changed, name, value)
    if left:
        raise TypeError(f"{kind.__name__} has no setting {', '.join(left)}")
    if (check := getattr(changed, "__attrs_post_init__", None)) is not None:
        check()
    return changed


# --- names of settings


def option_names(config: type[Any]) -> frozenset[str]:
    """The settings of an `attrs` class that its constructor takes."""
    return frozenset(field.name for field in attrs.fields(config) if field.init)


def refuse_unknown(options: Mapping[str, object], known: frozenset[str], what: str) -> None:
    """Raise `ConfigurationError` for unknown options.

    It names them, and the known ones that are nearest to them.
    """
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigurationError(
            f"{what} has no setting {', '.join(unknown)}"
            f"{meant(*unknown, known=known, most=1) or ';'} there are {', '.join(sorted(known))}"
        )


def no_such_setting(name: str, known: Iterable[str], owner: str = "the broker") -> str:
    """What is said of a setting that does not exist, with the nearest names."""
    return f"{owner} has no setting {name}{meant(name, known=known)}"
