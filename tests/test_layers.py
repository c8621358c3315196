"""Who may import whom: the table of layers, and the rooms inside packages
(`docs/architecture.md`, "Layers").

Imports for typing alone count like all others.
"""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

from support.paths import PACKAGE, ROOT
from support.source import FILES, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAYERS = {
    # layer: (the first parts of its modules' names, the layers that it may import)
    "0a": (
        (
            "errors codes names backoff spelling constructors validators distinct releases "
            "log_fields log_format compiling"
        ),
        "",
    ),
    "0b": ("clock watermark lifecycle sleeper", "0a"),
    "1": ("model", "0a"),
    "2": ("protocol", "0a 1"),
    "3": ("transport", "0a 0b 1"),
    "3h": ("http_server", "0a 0b 1"),
    "4": ("remoting", "0a 0b 1 2 3"),
    "5a": ("client", "0a 0b 1 2 3 4"),
    "5b": ("broker_embedded", "0a 0b 1 2 3 3h 4"),
    "6p": ("producer", "0a 0b 1 2 3 4 5a"),
    "6c": ("consumer", "0a 0b 1 2 3 4 5a"),
    "6a": ("admin", "0a 0b 1 2 3 4 5a"),
    "6t": ("otel", "0a 0b 1 5a"),
    "7b": ("doors", "0a 0b"),
    "7d": ("aio sync", "0a 0b 1 2 3 4 5a 5b 6p 6c 6a 7b"),
    "7": ("spark", "0a 0b 1 2 3 4 5a 5b 6p 6c 6a"),
    "8": ("testing", "0a 0b 1 2 3 3h 4 5a 5b 6p 6c 6a"),
    "9c": ("cli __main__", "0a 0b 1 2 3 4 5a 5b 6p 6c 6a 8"),
    "9": ("pytest_plugin", "0a 0b 1 2 3 4 5a 5b 6p 6c 6a 8"),
}
WITHOUT_INPUT_AND_OUTPUT = ("0a", "1", "2")
# Layer 3 takes how addresses are written from the model, the only part of it that is
# about addresses.
MODEL_FOR_TRANSPORT = "rocketmq_sdk.model.route"

ROOMS = {
    # Modules and folders inside a package: each row may import the rows before it, and
    # nothing of its own row.
    "client": [
        ["api", "callbacks", "hooks", "identity", "namespace", "troubles"],
        ["address_server", "arguments", "observers"],
        ["brokers", "config", "name_servers", "periodic_jobs", "retry", "side_by_side"],
        ["heartbeat", "queries", "routes"],
        ["runtime"],
        ["together", "trace", "words"],
    ],
    "producer": [
        ["queue_selector", "request_reply", "transaction_arguments"],
        ["fault_strategy"],
        ["config", "detector"],
        ["outgoing", "targets"],
        ["handle", "message_type"],
        ["departures", "outbox", "timekeeper", "trace", "under_way", "waiting_room"],
        ["gathered", "health", "hooks", "outcome"],
        ["accumulator"],
        ["send"],
        ["engine"],
        ["producer"],
        ["transaction"],
    ],
    "consumer": [
        ["assign", "failures", "offsets", "outcome"],
        ["config", "constructor_arguments", "listener", "statistics"],
        ["retry_states", "retry_delays", "send_back", "health", "hooks", "trace"],
        ["pull"],
        ["pop"],
        ["group"],
        ["push", "lite_pull", "simple"],
    ],
    "admin": [
        ["cluster", "following", "stored_copy", "track"],
        ["access", "groups", "topics", "trace"],
        ["messages"],
        ["dead_letters"],
        ["client"],
    ],
    "aio": [
        ["guest"],
        ["run"],
        ["callbacks", "handles"],
        ["life"],
        ["arguments", "polling"],
        ["faces"],
    ],
    "sync": [
        ["signals"],
        ["driving"],
        ["run"],
        ["callbacks", "futures"],
        ["life"],
        ["arguments", "polling"],
        ["faces"],
    ],
    "doors": [["outcomes", "face", "turns"]],
    "spark": [
        ["plan", "schema"],
        ["options", "rows"],
        ["cluster"],
        ["read", "write"],
        ["source"],
        ["session", "dedup", "progress"],
    ],
    "broker_embedded": [
        ["store", "admission", "slices", "needs"],
        ["request"],
        ["settings", "part"],
        ["tables", "fast_failure", "supervision", "secured_ports"],
        ["core", "namesrv"],
        ["access", "timers", "filter", "registration", "housekeeping"],
        ["members", "short_answers", "store_tool"],
        ["replication", "transactions"],
        ["pull", "send", "ports"],
        ["pop", "admin"],
        ["composition", "files_of_settings"],
        ["metrics", "request_tables"],
        ["broker"],
    ],
    "broker_embedded.store": [
        ["config", "messages", "files", "services", "columns"],
        ["state", "log"],
        ["queues"],
        ["index", "following"],
        ["flush"],
        ["append", "recovery", "reading"],
        ["kept_records"],
        ["memory_retention"],
        ["retention", "sizing"],
        ["message_store"],
    ],
}
KNOWS_NOTHING_BESIDE = {"broker_embedded.store": "broker_embedded"}
"""Packages that import nothing else of the package around them."""

# Who puts the first moment into clocks, and who measures how long a command of a person
# took.
READS_CLOCKS = {"rocketmq_sdk.clock", "rocketmq_sdk.cli.demo"}
CLOCKS = {
    f"{module}.{name}{unit}"
    for module, names in {
        "time": ("time", "monotonic", "perf_counter", "process_time"),
        "datetime": ("now", "utcnow", "today"),
        "date": ("today",),
    }.items()
    for name in names
    for unit in (("", "_ns") if module == "time" else ("",))
}


class Import(NamedTuple):
    """One import of one module."""

    module: str
    line: int
    relative: bool


def modules() -> dict[str, Path]:
    """All modules of the package by dotted name."""
    found = {}
    for path in FILES:
        parts = ("rocketmq_sdk", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
BELOW = [name for name in MODULES if name != "rocketmq_sdk"]
LAYER_OF = {part: layer for layer, (parts, _) in LAYERS.items() for part in parts.split()}


@cache
def imports_of(name: str) -> list[Import]:
    """Everything that a module imports, also for typing and inside functions."""
    found: list[Import] = []
    for node in source_of(MODULES[name]).imports:
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno, relative=False) for alias in node.names]
        else:
            module = node.module or ""
            for alias in node.names:
                deeper = f"{module}.{alias.name}"
                found.append(
                    Import(
                        deeper if deeper in MODULES else module,
                        node.lineno,
                        relative=node.level > 0,
                    )
                )
    return found


def place(name: str, line: int) -> str:
    """Where to look: file:line."""
    return f"{MODULES[name].relative_to(ROOT)}:{line}"


def layer_of(name: str) -> str:
    """The layer of a module."""
    return LAYER_OF[name.split(".")[1]]


def room_of(package: str, name: str) -> str | None:
    """The room of a module in a package, None for modules outside of it."""
    inside = name.removeprefix(f"rocketmq_sdk.{package}.")
    return None if inside == name else inside.split(".")[0]


def none(offenders: Iterator[str]) -> None:
    """Fail with all offenders, one on a line."""
    found = sorted(offenders)
    assert not found, "\n" + "\n".join(found)


def test_every_module_has_a_layer() -> None:
    parts = {name.split(".")[1] for name in BELOW}
    assert parts == set(LAYER_OF)


def test_layers() -> None:
    def offenders() -> Iterator[str]:
        for name in BELOW:
            layer = layer_of(name)
            allowed = {layer, *LAYERS[layer][1].split()}
            for module, line, relative in imports_of(name):
                if relative:
                    yield f"{place(name, line)}: a relative import"
                elif module == "rocketmq_sdk":
                    yield f"{place(name, line)} imports the root of the package"
                elif module.startswith("rocketmq_sdk."):
                    other = layer_of(module)
                    if other not in allowed or (
                        (layer, other) == ("3", "1") and module != MODEL_FOR_TRANSPORT
                    ):
                        yield f"{place(name, line)} (layer {layer}) imports {module} ({other})"

    none(offenders())


def test_layers_without_input_and_output() -> None:
    forbidden = {"trio", "socket", "ssl", "threading", "subprocess"}
    none(
        f"{place(name, line)} imports {module}"
        for name in BELOW
        if layer_of(name) in WITHOUT_INPUT_AND_OUTPUT
        for module, line, _ in imports_of(name)
        if module.split(".")[0] in forbidden
    )


def test_rooms_lie_above_each_other() -> None:
    def offenders() -> Iterator[str]:
        for package, rooms in ROOMS.items():
            rows = {room: row for row, names in enumerate(rooms) for room in names}
            there = {room for name in MODULES if (room := room_of(package, name))}
            yield from (f"{package}: {room} is in no row" for room in there - set(rows))
            yield from (f"{package}: {room} does not exist" for room in set(rows) - there)
            for name in MODULES:
                room = room_of(package, name)
                for module, line, _ in imports_of(name) if room in rows else ():
                    other = room_of(package, module)
                    if other in rows and other != room and rows[other] >= rows[room]:
                        yield f"{place(name, line)} imports {module}, not of a row before its own"

    none(offenders())


def test_packages_that_know_nothing_beside_them() -> None:
    none(
        f"{place(name, line)} imports {module}"
        for package, around in KNOWS_NOTHING_BESIDE.items()
        for name in MODULES
        if room_of(package, name)
        for module, line, _ in imports_of(name)
        if module.startswith(f"rocketmq_sdk.{around}.") and not room_of(package, module)
    )


def test_no_circles() -> None:
    graph = {
        name: {module for module, _, _ in imports_of(name) if module in MODULES} - {name}
        for name in BELOW
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
        raise AssertionError(" is imported by ".join(circle)) from None


def test_no_clock_is_read_outside_of_clock() -> None:
    def offenders() -> Iterator[str]:
        for name in BELOW:
            if name in READS_CLOCKS:
                continue
            found = source_of(MODULES[name])
            for node in found.attributes:
                text = ast.unparse(node)
                if any(text == clock or text.endswith(f".{clock}") for clock in CLOCKS):
                    yield f"{place(name, node.lineno)} reads {text}"
            for node in found.imports:
                if isinstance(node, ast.ImportFrom) and node.module == "time":
                    yield f"{place(name, node.lineno)} imports from time"

    none(offenders())
