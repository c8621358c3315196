"""Who may import whom: the table of layers, and the one way inside packages
(`docs/architecture.md`, "Layers").
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

import pytest

from support.paths import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path

# Prefixes of module names, the longest one that fits counts.
LAYER_OF = {
    "errors": "0a",
    "codes": "0a",
    "names": "0a",
    "backoff": "0a",
    "validators": "0a",
    "clock": "0b",
    "watermark": "0b",
    "lifecycle": "0b",
    "model": "1",
    "protocol": "2",
    "transport": "3",
    "remoting": "4",
    "client": "5a",
    "broker_embedded": "5b",
    "producer": "6p",
    "consumer": "6c",
    "admin": "6a",
    "cli": "7",
    "dashboard": "7",
    "spark": "7",
    "__main__": "7",
    "testing": "8",
    "pytest_plugin": "9",
}
MAY_IMPORT = {
    "0a": {"0a"},
    "0b": {"0a", "0b"},
    "1": {"0a", "1"},
    "2": {"0a", "1", "2"},
    "3": {"0a", "0b", "1", "3"},
    "4": {"0a", "0b", "1", "2", "3", "4"},
    "5a": {"0a", "0b", "1", "2", "3", "4", "5a"},
    "5b": {"0a", "0b", "1", "2", "3", "4", "5b"},
    "6p": {"0a", "0b", "1", "2", "3", "4", "5a", "6p"},
    "6c": {"0a", "0b", "1", "2", "3", "4", "5a", "6c"},
    "6a": {"0a", "0b", "1", "2", "3", "4", "5a", "6a"},
    "7": {"0a", "0b", "1", "2", "3", "4", "5a", "5b", "6p", "6c", "6a", "7"},
    "8": {"0a", "0b", "1", "2", "3", "4", "5a", "5b", "6p", "6c", "6a", "8"},
    "9": {"0a", "0b", "1", "2", "3", "4", "5a", "5b", "6p", "6c", "6a", "8", "9"},
}
# Layer 3 takes how addresses are written from the model, the only part of it that is
# about addresses.
MODEL_FOR_TRANSPORT = {"rocketmq_sdk.model.route"}

# Inside packages, left is imported by right. Modules that are not named are free within
# their package.
ORDERS = {
    "client": [
        ["config", "callbacks", "retry", "identity", "namespace", "hooks"],
        ["api"],
        ["routes", "brokers", "name_servers"],
        ["heartbeat"],
        ["runtime"],
    ],
    "producer": [
        ["queue_selector"],
        ["fault_strategy"],
        ["config"],
        ["targets", "outgoing", "detector", "hooks"],
        ["handle"],
        ["request_reply", "accumulator", "under_way"],
        ["waiting_room"],
        ["send"],
        ["producer"],
        ["transaction"],
    ],
    "admin": [["stored_copy"], ["trace", "track"], ["messages"], ["client"]],
    "broker_embedded": [
        ["store", "filter", "acl", "namesrv"],
        ["managers"],
        ["outer", "services"],
        ["processors"],
        ["broker"],
    ],
}
# Rooms inside a package, each row above the ones before it; imports for typing count
# too.
ROOMS = {
    "consumer": [
        ["assign", "offsets"],
        ["config", "constructor_arguments", "listener", "outcome", "statistics"],
        ["retry_states", "retry_delays", "send_back", "health", "hooks", "trace"],
        ["pull"],
        ["pop"],
        ["group"],
        ["push", "lite_pull", "simple"],
    ],
    "spark": [
        ["plan", "schema"],
        ["options", "rows"],
        ["cluster"],
        ["read", "write"],
        ["source"],
        ["session", "helpers"],
    ],
    "broker_embedded.store": [
        ["config", "messages", "files"],
        ["state", "log"],
        ["queues"],
        ["index"],
        ["flush"],
        ["append", "recovery", "reading"],
        ["retention"],
        ["message_store"],
    ],
}
WITHOUT_TRIO = {"0a", "1", "2"}


class Import(NamedTuple):
    """One import of one module."""

    module: str
    line: int
    typing_only: bool


def modules() -> dict[str, Path]:
    """All modules of the package by dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("rocketmq_sdk", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports_of(name: str) -> list[Import]:
    """Everything that a module imports, also inside functions."""
    tree = ast.parse(MODULES[name].read_text())
    guarded: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in (
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        ):
            guarded.update(inner for statement in node.body for inner in ast.walk(statement))
    found: list[Import] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno, node in guarded) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: a relative import"
            module = node.module or ""
            for alias in node.names:
                deeper = f"{module}.{alias.name}"
                found.append(
                    Import(deeper if deeper in MODULES else module, node.lineno, node in guarded)
                )
    return found


def part_of(name: str) -> str:
    """The first part of a module name below the package."""
    return name.split(".")[1] if "." in name else ""


def layer_of(name: str) -> str:
    """The layer of a module."""
    return LAYER_OF[part_of(name)]


BELOW = [name for name in MODULES if name != "rocketmq_sdk"]


@pytest.mark.parametrize("name", BELOW)
def test_layers(name: str) -> None:
    layer = layer_of(name)
    for found in imports_of(name):
        if found.module.split(".")[0] == "rocketmq_sdk":
            assert found.module != "rocketmq_sdk", f"{name}:{found.line} imports the package root"
            other = layer_of(found.module)
            assert other in MAY_IMPORT[layer], (
                f"{name}:{found.line} (layer {layer}) imports {found.module} (layer {other})"
            )
            if layer == "3" and other == "1":
                assert found.module in MODEL_FOR_TRANSPORT, (
                    f"{name}:{found.line} imports {found.module}"
                )


@pytest.mark.parametrize("name", [name for name in BELOW if layer_of(name) in WITHOUT_TRIO])
def test_layers_without_input_and_output(name: str) -> None:
    for found in imports_of(name):
        assert found.module.split(".")[0] not in {
            "trio",
            "socket",
            "ssl",
            "threading",
            "subprocess",
        }, f"{name}:{found.line} imports {found.module}"


def rank(package: str, name: str) -> int | None:
    """The place of a module in the order of its package."""
    parts = name.split(".")
    for place, group in enumerate(ORDERS[package]):
        if len(parts) > 2 and parts[1] == package and parts[2] in group:
            return place
    return None


@pytest.mark.parametrize("name", [name for name in BELOW if part_of(name) in ORDERS])
def test_one_way_inside_packages(name: str) -> None:
    package = part_of(name)
    own = rank(package, name)
    if own is None:
        return
    for found in imports_of(name):
        if found.typing_only or not found.module.startswith(f"rocketmq_sdk.{package}."):
            continue
        other = rank(package, found.module)
        assert other is None or other <= own, (
            f"{name}:{found.line} imports {found.module}, which stands behind it"
        )


def room_of(package: str, name: str) -> str | None:
    """The room of a module in a package that has rooms."""
    inside = name.removeprefix(f"rocketmq_sdk.{package}.")
    return None if inside == name else inside.split(".")[0]


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_lie_above_each_other(package: str) -> None:
    rows = {room: row for row, rooms in enumerate(ROOMS[package]) for room in rooms}
    for name in MODULES:
        room = room_of(package, name)
        if room is None:
            continue
        assert room in rows, f"{name} is in no room"
        for found in imports_of(name):
            other = room_of(package, found.module)
            assert other in (None, room) or rows[other] < rows[room], (
                f"{name}:{found.line} imports {found.module}, whose room is not below its own"
            )


@pytest.mark.parametrize("package", ROOMS)
def test_what_has_rooms_knows_nothing_beside_it(package: str) -> None:
    family = f"rocketmq_sdk.{package.split('.')[0]}."
    for name in MODULES:
        if room_of(package, name) is not None:
            for found in imports_of(name):
                assert not found.module.startswith(family) or room_of(package, found.module), (
                    f"{name}:{found.line} imports {found.module}, which lies outside of {package}"
                )


def test_no_import_cycles() -> None:
    graph = {
        name: {
            found.module
            for found in imports_of(name)
            if found.module in MODULES and not found.typing_only
        }
        for name in BELOW
    }
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        assert name not in trail, " imports ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for other in graph.get(name, ()):
                if other != name:
                    visit(other, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])


def test_every_module_has_a_layer() -> None:
    assert {part_of(name) for name in BELOW} <= set(LAYER_OF)
    assert set(LAYER_OF.values()) == set(MAY_IMPORT)


# Who measures how long a command of a person took, and who puts the first moment into
# clocks.
READS_CLOCKS = {"rocketmq_sdk.clock", "rocketmq_sdk.cli.demo"}


@pytest.mark.parametrize("name", [name for name in BELOW if name not in READS_CLOCKS])
def test_no_clock_is_read_outside_of_clock(name: str) -> None:
    source = MODULES[name].read_text()
    for forbidden in (
        "time.time()",
        "datetime.now(",
        "time.monotonic()",
        "time.time_ns()",
        "time.perf_counter()",
    ):
        assert forbidden not in source, f"{name} reads a clock: {forbidden}"
