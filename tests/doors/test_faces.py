"""The faces of the doors are complete, and written from the classes for trio."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

import rocketmq_sdk
from rocketmq_sdk.lifecycle import RunsOnce
from tools.door_tables import DOORS, FACES, Door, Face
from tools.doors import outdated


async def on_anything(_message: object) -> Any:
    """A listener, or a checker."""


def on_anything_plainly(_message: object) -> Any:
    """The same for threads."""


PAIRS = [
    pytest.param(door, face, id=f"{door.package}.{face.name}") for door in DOORS for face in FACES
]


def inner_class(face: Face) -> type:
    """The class for trio."""
    found: type = getattr(import_module(f"rocketmq_sdk.{face.module}"), face.name)
    return found


def face_class(door: Door, face: Face) -> type:
    """The class of the door."""
    found: type = getattr(import_module(f"{door.package}.faces.{face.file}"), face.name)
    return found


def public(kind: type, face: Face) -> set[str]:
    """What users use of a class."""
    return {
        name
        for name in dir(kind)
        if (not name.startswith("_") or name in ("__aiter__", "__anext__"))
        and name not in face.left_out
        and not hasattr(RunsOnce, name)
    }


def inherited(face: Face) -> set[str]:
    """What is left out of the faces that this one is made from."""
    bases = [other for other in FACES if other.name in (face.base, *face.mixed_in)]
    return {name for other in bases for name in other.left_out}


def test_the_faces_are_as_the_classes_for_trio_say() -> None:
    assert outdated() == [], "run `python -m tools.doors` in tests/"


def test_everything_that_is_entered_has_a_face() -> None:
    entered = {
        name
        for name in rocketmq_sdk.__all__
        if isinstance(value := getattr(rocketmq_sdk, name), type) and issubclass(value, RunsOnce)
    }
    assert entered == {face.name for face in FACES if face.public}


@pytest.mark.parametrize(("door", "face"), PAIRS)
def test_no_method_and_no_property_is_missing(door: Door, face: Face) -> None:
    inner, outer = inner_class(face), face_class(door, face)
    there = {name for name in dir(outer) if not name.startswith("_") or name.startswith("__")}
    wanted = {door.names.get(name, name) for name in public(inner, face) - inherited(face)}
    assert wanted <= there | set(face.attributes)
    assert {name for name in face.left_out if not hasattr(inner, name)} <= {
        *(
            "client",
            "clock",
            "ids",
            "namespace",
            "brokers",
            "routes",
            "troubles",
        )  # made by constructors
    }


MADE = {
    "Client": {},
    "Producer": {"group": "g"},
    "TransactionProducer": {"group": "g", "checker": on_anything},
    "PushConsumer": {"group": "g", "subscriptions": {"t": "*"}, "listener": on_anything},
    "SimpleConsumer": {"group": "g", "subscriptions": {"t": "*"}},
    "LitePullConsumer": {"group": "g"},
    "PullConsumer": {"group": "g"},
    "Admin": {},
}
"""How everything is made that takes name servers."""


@pytest.mark.parametrize(("door", "face"), [pair for pair in PAIRS if pair.values[1].entered])
def test_no_attribute_is_missing(door: Door, face: Face) -> None:
    arguments: dict[str, Any] = {**MADE.get(face.name, {})}
    if face.name in MADE:
        arguments["namesrv"] = "127.0.0.1:1"
    inner = inner_class(face)(**arguments)
    plain = on_anything_plainly if door.package == "rocketmq_sdk.sync" else on_anything
    given = {name: plain if value is on_anything else value for name, value in arguments.items()}
    outer = face_class(door, face)(**given)
    left_out = face.left_out | inherited(face)
    names = {name for name in vars(inner) if not name.startswith("_")} - left_out
    assert {name for name in names if not hasattr(outer, name)} == set()


@pytest.mark.parametrize(("door", "face"), PAIRS)
def test_signatures_and_docstrings_are_the_same(door: Door, face: Face) -> None:
    inner, outer = inner_class(face), face_class(door, face)
    assert outer.__doc__
    names = {name: door.names.get(name, name) for name in public(inner, face) - inherited(face)}
    if face.entered:
        names["__init__"] = "__init__"
    for name, own_name in names.items():
        ours, theirs = inspect.getattr_static(outer, own_name), inspect.getattr_static(inner, name)
        if isinstance(theirs, property):
            assert isinstance(ours, property)
            assert ours.__doc__
            continue
        shown, expected = inspect.signature(ours), inspect.signature(theirs)
        assert [(p.name, p.kind, p.default) for p in shown.parameters.values()] == [
            (p.name, p.kind, p.default) for p in expected.parameters.values()
        ], name
        if not name.startswith("__"):
            assert ours.__doc__


@pytest.mark.parametrize("door", DOORS, ids=[door.package for door in DOORS])
def test_a_door_has_every_public_name(door: Door) -> None:
    package = import_module(door.package)
    assert set(package.__all__) == set(rocketmq_sdk.__all__)
    own = {face.name for face in FACES if face.public} | {"SendHandle", "AccumulatedHandle"}
    for name in package.__all__:
        value = getattr(package, name)
        assert (value is getattr(rocketmq_sdk, name)) is (name not in own), name
        assert name in dir(package)
    with pytest.raises(AttributeError, match="Nothing"):
        _ = package.Nothing


@pytest.mark.parametrize("door", DOORS, ids=[door.package for door in DOORS])
def test_importing_a_door_loads_nothing_else(door: Door) -> None:
    code = (
        f"import sys, threading; import {door.package}; "
        "loaded = [name for name in sys.modules if name.startswith('rocketmq_sdk.') or name in "
        "('trio', 'asyncio', 'socket', 'ssl')]; "
        "print(loaded, threading.active_count())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == f"['{door.package}'] 1"
