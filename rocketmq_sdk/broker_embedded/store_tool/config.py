"""Checks that the files below `config/` are JSON of the form that brokers read."""

from __future__ import annotations

import time
from typing import Final

from rocketmq_sdk.broker_embedded.store_tool.report import NO_FILE, StoreReader, StoreReport
from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.json.dialect import decode_json

DIRECTORY: Final = "config"
_WHOLE_FILE: Final = 1 << 30
_TRIES: Final = 50
_PAUSE: Final = 0.01
"""Seconds between two looks at a file that a broker may be writing."""
_MEMBERS: Final[dict[str, dict[str, tuple[int, type]]]] = {
    "topics.json": {"topicConfigTable": (1, dict), "dataVersion": (0, dict)},
    "topicQueueMapping.json": {"topicQueueMappingInfoMap": (1, dict), "dataVersion": (0, dict)},
    "subscriptionGroup.json": {
        "subscriptionGroupTable": (1, dict),
        "forbiddenTable": (2, int),
        "dataVersion": (0, dict),
    },
    "consumerOffset.json": {"offsetTable": (2, int), "dataVersion": (0, dict)},
    "lmqConsumerOffset.json": {"lmqOffsetTable": (1, int), "offsetTable": (2, int)},
    "delayOffset.json": {"offsetTable": (1, int), "dataVersion": (0, dict)},
    "consumerFilter.json": {"filterDataByTopic": (1, dict)},
    "consumerOrderInfo.json": {"table": (2, dict)},
    "messageRequestMode.json": {"messageRequestModeMap": (2, dict)},
    "timermetrics": {"timingCount": (1, dict), "dataVersion": (0, dict)},
    "transactionMetrics": {"transactionCount": (1, dict), "dataVersion": (0, dict)},
    "deletedTopics.json": {"positions": (1, int)},
    "kvConfig.json": {"configTable": (1, dict)},
    "changedSettings.json": {"changes": (1, dict)},
    "namesrvChangedSettings.json": {"changes": (1, dict)},
}
"""By file, its members: how deep objects are nested above a value, and its type."""


def check_config(reader: StoreReader, report: StoreReport) -> None:
    """Report what cannot be read, and members of another form than brokers expect."""
    for name, size in reader.file_sizes(DIRECTORY):
        path = f"{DIRECTORY}/{name}"
        if not name.endswith(".json") and name not in _MEMBERS:
            continue
        if size == NO_FILE:
            report.add(path, 0, "name", "is no regular file; move it away")
            continue
        data = _content(reader, path, running=report.running)
        if data is None:
            continue
        try:
            if not data:
                raise RemoteProtocolError("the file is empty")
            value = decode_json(data)
        except RemoteProtocolError as error:
            backup = (
                "its .bak can be read"
                if _readable(reader, f"{path}.bak")
                else "there is no .bak that can be read"
            )
            report.add(path, 0, "config", f"{error if not data else f'no JSON: {error}'}; {backup}")
            continue
        _check_members(path, data, value, _MEMBERS.get(name, {}), report)


def _content(reader: StoreReader, path: str, *, running: bool) -> bytes | None:
    """The bytes of a file; None when it is gone.

    A broker that writes it removes the old one a moment before the new one gets its
    name.
    """
    for _ in range(_TRIES if running else 0):
        data = reader.read(path, 0, _WHOLE_FILE)
        if data:
            return data
        time.sleep(_PAUSE)
    return reader.read(path, 0, _WHOLE_FILE) if reader.exists(path) else None


def _readable(reader: StoreReader, path: str) -> bool:
    data = reader.read(path, 0, _WHOLE_FILE)
    try:
        return bool(data) and decode_json(data) is not None
    except RemoteProtocolError:
        return False


def _check_members(
    path: str, data: bytes, value: object, members: dict[str, tuple[int, type]], report: StoreReport
) -> None:
    if not members:
        return
    if not isinstance(value, dict):
        report.add(path, 0, "config", "holds no object")
        return
    for name, (depth, kind) in members.items():
        member = value.get(name)
        problem = None if member is None else _problem(member, depth, kind, name)
        if problem is not None:
            report.add(path, max(0, data.find(f'"{name}"'.encode())), "config", problem)


def _problem(value: object, depth: int, kind: type, where: str) -> str | None:
    """What is wrong with a value, or None."""
    if depth:
        if not isinstance(value, dict):
            return f"{where} is no object"
        for name, inner in value.items():
            found = _problem(inner, depth - 1, kind, f"{where}, {name}")
            if found is not None:
                return found
        return None
    if kind is int:
        fits = (
            isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
        )
        return None if fits else f"{where} is no number of 64 bits"
    return None if isinstance(value, kind) else f"{where} is no object"
