"""The public names, and what importing the package does not do."""

from __future__ import annotations

import subprocess
import sys
import typing
from importlib import import_module
from pathlib import Path

import pytest

import rocketmq_sdk
from support.compiled import is_compiled

EXPECTED = {
    "Client",
    "Producer",
    "PushConsumer",
    "EmbeddedBroker",
    "Message",
    "ReceivedMessage",
    "MessageQueue",
    "SendResult",
    "SendStatus",
    "SendHandle",
    "ConsumeFrom",
    "MessageModel",
    "BrokerConfig",
    "StoreConfig",
    "RocketMQError",
    "BrokerError",
    "RouteError",
    "SendTimeout",
}


def test_what_users_need_is_there() -> None:
    assert set(rocketmq_sdk.__all__) >= EXPECTED
    assert len(set(rocketmq_sdk.__all__)) == len(rocketmq_sdk.__all__)


@pytest.mark.parametrize("name", rocketmq_sdk.__all__)
def test_each_name_loads_and_knows_its_home(name: str) -> None:
    value = getattr(rocketmq_sdk, name)
    assert getattr(import_module(value.__module__), name) is value
    assert value.__module__.startswith("rocketmq_sdk.")
    # A compiled class has no docstring; its source has.
    assert value.__doc__ or is_compiled(value)
    assert name in dir(rocketmq_sdk)


def test_every_error_of_the_tree_is_public() -> None:
    from rocketmq_sdk import errors

    tree = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.RocketMQError)
    }
    assert tree <= set(rocketmq_sdk.__all__)


def test_the_lazy_names_and_those_for_type_checkers_agree() -> None:
    import ast

    assert rocketmq_sdk.__file__ is not None
    tree = ast.parse(Path(rocketmq_sdk.__file__).read_text())
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(imported) == set(rocketmq_sdk.__all__)
    assert {
        name: f"rocketmq_sdk.{home}" for name, home in rocketmq_sdk._HOME_OF.items()
    } == imported
    assert typing.TYPE_CHECKING is False


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = rocketmq_sdk.Nothing


def test_importing_loads_nothing_else() -> None:
    code = (
        "import sys, threading; import rocketmq_sdk; "
        "loaded = [name for name in sys.modules if name.startswith('rocketmq_sdk.') or name in "
        "('trio', 'socket', 'ssl', 'attrs')]; "
        "print(loaded, threading.active_count())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[] 1"


def test_the_keyword_form_of_the_brokers_settings_follows_from_them() -> None:
    from support.broker_options import MODULE, module

    assert MODULE.read_text("utf-8") == module(), "run `python -m tools.broker_options` in tests/"
