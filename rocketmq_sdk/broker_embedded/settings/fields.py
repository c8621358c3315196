"""Fields of settings: what they are made of, and what is acceptable in them."""

from __future__ import annotations

import attrs

from rocketmq_sdk.broker_embedded.settings.apache_names import SECRET
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.validators import at_least, between


def one_name(_instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    """Accept a name without blanks."""
    if not value or not value.isprintable() or " " in value:
        raise ConfigurationError(
            f"{attribute.name}={value!r} is not acceptable; write a name without blanks"
        )


def one_path(_instance: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    """Accept one path, or none."""
    if value is not None and (not value.strip() or "," in value or ":" in value):
        raise ConfigurationError(
            f"{attribute.name}={value!r} is not one path; this broker keeps its log in one "
            "directory: name that, or join the disks below it"
        )


def request_codes(text: str | None) -> frozenset[int]:
    """The request codes in a list separated by commas.

    Raises `ConfigurationError` for something that is no number.
    """
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if bad := [part for part in parts if not part.isascii() or not part.isdecimal()]:
        raise ConfigurationError(f"{bad[0]!r} is no request code; write numbers such as 34,105")
    return frozenset(map(int, parts))


def codes(_instance: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    """Accept a list of request codes, or none."""
    try:
        request_codes(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{attribute.name}: {error}") from None


def labels_in(text: str | None) -> dict[str, str]:
    """The labels in a list of `name:value`, separated by commas.

    Raises `ConfigurationError` for something else.
    """
    found: dict[str, str] = {}
    for part in filter(str.strip, (text or "").split(",")):
        name, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon or not value or not name.isidentifier() or not name.isascii():
            raise ConfigurationError(f"{part!r} is no label; write name:value,name:value")
        found[name] = value
    return found


def labels(_instance: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    """Accept a list of labels, or none."""
    try:
        labels_in(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{attribute.name}: {error}") from None


def secret() -> str | None:
    """A text that is shown nowhere."""
    value: str | None = attrs.field(default=None, repr=False, metadata={SECRET: True})
    return value


def integer(default: int, low: int = 0, high: int | None = None) -> int:
    """A number from `low` to `high`."""
    limits = at_least(low) if high is None else between(low, high)
    value: int = attrs.field(default=default, validator=limits)
    return value
