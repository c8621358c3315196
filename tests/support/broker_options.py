"""The keyword form of the broker's settings, as it follows from the settings."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.broker_embedded.settings.apache_names import settings_of
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE = ROOT / "rocketmq_sdk" / "broker_embedded" / "settings" / "options.py"
HEAD = '''"""The settings of a broker as keyword arguments, for type checkers.

Written by `python -m tools.broker_options` (in `tests/`) from `BrokerConfig` and
`StoreConfig`; a test compares them. Only type checkers read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
'''


def kinds() -> dict[str, tuple[str, str]]:
    """Apache's name and the type of each setting, by its name in Python."""
    found: dict[str, tuple[str, str]] = {}
    for owner in (StoreConfig, BrokerConfig):
        annotations = {field.name: str(field.type) for field in attrs.fields(owner)}
        for setting in settings_of(owner).values():
            found[setting.attribute] = setting.name, _written(annotations, setting.attribute)
    return dict(sorted(found.items()))


def _written(annotations: dict[str, str], attribute: str) -> str:
    kind = enum_of(attribute)
    if kind is None:
        return annotations[attribute]
    names = ", ".join(f'"{member.name}"' for member in kind)
    return f"{kind.__name__} | Literal[{names}]"


def enum_of(attribute: str) -> type[Enum] | None:
    """The enumeration that a setting has its values from, if any."""
    for owner in (StoreConfig, BrokerConfig):
        for setting in settings_of(owner).values():
            if setting.attribute == attribute and issubclass(setting.kind, Enum):
                return setting.kind
    return None


def module() -> str:
    """The text of the module, before it is formatted."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    table = kinds()
    homes: dict[str, set[str]] = {}
    for name in table:
        if kind := enum_of(name):
            homes.setdefault(kind.__module__, set()).add(kind.__name__)
    yield HEAD + "\n".join(
        f"    from {home} import {', '.join(sorted(names))}"
        for home, names in sorted(homes.items())
    )
    yield "\n\nclass _Spelling(TypedDict, total=False):"
    yield '    """Settings as Apache spells them."""\n'
    yield from (f"    {apache}: {kind}" for name, (apache, kind) in table.items() if apache != name)
    yield "\n\nclass BrokerOptions(_Spelling, total=False):"
    yield '    """Settings of a broker and its store, in either spelling."""\n'
    yield from (f"    {name}: {kind}" for name, (_apache, kind) in table.items())
