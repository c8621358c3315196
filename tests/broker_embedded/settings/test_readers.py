"""Each setting is read where it acts, and one that may change while the broker runs is
read again.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import rocketmq_sdk
from rocketmq_sdk.broker_embedded.namesrv.config import NamesrvConfig
from rocketmq_sdk.broker_embedded.request import Wait
from rocketmq_sdk.broker_embedded.settings.apache_names import Setting, settings_of
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.errors import ConfigurationError

Found = dict[str, set[tuple[str, ...]]]
PACKAGE = Path(rocketmq_sdk.__file__).parent
MADE_AGAIN = {"RetentionPolicy"}
"""Made again at each change, so that what they read then is what is in force."""
BY_NAME = {wait.value for wait in Wait}
"""Read by `fast_failure` for each request that waited, by the name in its row."""
SETTINGS = {
    f"{cls.__name__}.{name}": (cls, setting)
    for cls in (BrokerConfig, StoreConfig, NamesrvConfig)
    for name, setting in settings_of(cls).items()
}


def find_readers(node: ast.AST, around: tuple[str, ...], found: Found) -> None:
    """Note which functions and classes, from the outside in, read which attributes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        around = (*around, node.name)
    elif isinstance(node, ast.Lambda):
        around = (*around, "lambda")
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        found[node.attr].add(around)
    for child in ast.iter_child_nodes(node):
        find_readers(child, around, found)


@cache
def readers() -> Found:
    found: Found = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        find_readers(ast.parse(path.read_text()), (), found)
    return found


def changes_while_running(cls: type, setting: Setting) -> bool:
    """Whether a request may give the setting another value."""
    if cls is NamesrvConfig:
        return setting.name != "listenPort"
    if setting.name in ("brokerId", "authorizationEnabled"):
        return False  # Refused alone: the role does not fit, or nobody is authenticated.
    value = BrokerConfig().export().get(setting.name, "text")
    others = {"true": "false", "false": "true", "04": "05", "5": "7"}
    values = [
        others.get(value),
        f"{value}1",
        "5",
        "V1",
        "POP",
        "SYNC_FLUSH",
        "SLAVE",
        "REFUSE_SENDS",
        "500",
        "920",
        "1s 1s",
        "PROM",
        "zone:north",
    ]
    reasons = []
    for text in values:
        if text is None:
            continue
        live = LiveConfig(BrokerConfig())
        try:
            live.update({setting.name: text}, 1)
        except ConfigurationError as error:
            reasons.append(str(error))
        if live.current != BrokerConfig():
            return True
    assert any("cannot change while" in reason for reason in reasons), (setting.name, reasons)
    return False


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_read_where_it_acts(name: str) -> None:
    cls, setting = SETTINGS[name]
    if setting.attribute in BY_NAME:
        return
    places = readers().get(setting.attribute, set())
    assert places, f"nothing reads {name}"
    if changes_while_running(cls, setting):
        again = [place for place in places if place[-1] != "__init__" or place[0] in MADE_AGAIN]
        assert again, f"{name} is read only when the broker starts"
