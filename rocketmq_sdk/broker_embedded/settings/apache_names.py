"""Settings by the names that Apache's properties files use.

A settings class is a frozen attrs class whose attributes are Apache's names in snake
case (`autoCreateTopicEnable` is `auto_create_topic_enable`); where the rule does not
fit, the metadata `setting` names it. The annotation says how its text is read.
"""

from __future__ import annotations

from enum import Enum
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.validators import with_values

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTING: Final = "setting"
"""Metadata: Apache's name of the setting, None for an attribute that is no setting."""
SECRET: Final = "secret"
"""Metadata: the value is shown nowhere, neither in answers nor in errors."""

_IRREGULAR: Final = {
    "check_crc_on_recover": "checkCRCOnRecover",
    "enabled_append_prop_crc": "enabledAppendPropCRC",
    "force_verify_prop_crc": "forceVerifyPropCRC",
}

_Settings = TypeVar("_Settings", bound=attrs.AttrsInstance)


class Setting(NamedTuple):
    """One setting of a class."""

    attribute: str
    name: str
    kind: type
    default: object
    secret: bool = False


def apache_name(attribute: str) -> str:
    """`flush_disk_type` is `flushDiskType`."""
    if attribute in _IRREGULAR:
        return _IRREGULAR[attribute]
    first, *others = attribute.split("_")
    return first + "".join(part.capitalize() for part in others)


_TABLES: Final[dict[type, Mapping[str, Setting]]] = {}


def settings_of(cls: type) -> Mapping[str, Setting]:
    """The settings of a class by Apache's names, in alphabetical order."""
    table = _TABLES.get(cls)
    if table is None:
        table = _TABLES[cls] = _find_settings(cls)
    return table


def _find_settings(cls: Any) -> Mapping[str, Setting]:
    hints = get_type_hints(cls)
    found: dict[str, Setting] = {}
    for attribute in attrs.fields(cls):
        name = attribute.metadata.get(SETTING, apache_name(attribute.name))
        if name is not None:
            found[name] = Setting(
                attribute.name,
                name,
                _kind(hints[attribute.name]),
                attribute.default,
                SECRET in attribute.metadata,
            )
    return dict(sorted(found.items()))


def _kind(hint: Any) -> type:
    if get_origin(hint) in (Union, UnionType):
        hint = next(part for part in get_args(hint) if part is not NoneType)
    if not isinstance(hint, type):
        raise TypeError(f"a setting cannot be {hint!r}")
    return hint


def parse_setting(setting: Setting, text: str) -> object:
    """The value that a text gives to a setting.

    Raises `ConfigurationError` naming the setting, the text and what is acceptable.
    """
    text, kind = text.strip(), setting.kind
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise _refusal(setting, text, "true or false")
        return text.lower() == "true"
    if kind is int:
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
            raise _refusal(setting, text, "a whole number")
        return int(text)
    if issubclass(kind, Enum):
        if text not in kind.__members__:
            raise _refusal(setting, text, " or ".join(kind.__members__))
        return kind[text]
    return text


def names_in(text: str) -> frozenset[str]:
    """The names in a list separated by semicolons, such as `configBlackList`."""
    return frozenset(name.strip() for name in text.split(";") if name.strip())


def _refusal(setting: Setting, text: str, acceptable: str) -> ConfigurationError:
    return ConfigurationError(f"{setting.name}={text} is not acceptable; write {acceptable}")


def format_setting(value: object) -> str:
    """The text of a value, as Apache writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, Enum) else str(value)


def evolve_settings(settings: _Settings, texts: Mapping[str, str]) -> _Settings:
    """The settings with some changed, by Apache's names, all at once.

    Raises `ConfigurationError` for a text that is not acceptable; nothing is changed
    then.
    """
    if not texts:
        return settings
    known = settings_of(type(settings))
    values: dict[str, Any] = {
        known[name].attribute: parse_setting(known[name], text) for name, text in texts.items()
    }
    try:
        return with_values(settings, **values)
    except (ValueError, TypeError) as error:
        named = ", ".join(
            name if known[name].secret else f"{name}={text}" for name, text in texts.items()
        )
        raise ConfigurationError(f"{named} is not acceptable: {error}") from None


def export_settings(settings: object) -> dict[str, str]:
    """All settings that have a value and are not secret, as texts by Apache's names."""
    values = (
        (name, getattr(settings, setting.attribute))
        for name, setting in settings_of(type(settings)).items()
        if not setting.secret
    )
    return {name: format_setting(value) for name, value in values if value is not None}
