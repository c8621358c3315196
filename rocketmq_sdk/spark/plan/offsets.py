"""Offsets by queue, in the one shape that options, checkpoints and progress share.

That shape is `{"t":{topic:{broker:{"0":5}}},"v":1}`. A number is the offset of the next
message. The end of a stream's batch may have marks beside it (`BatchEnd`).

Spark compares offsets as text, so the text of equal places is always the same: names in
order of their characters, queue ids in order of numbers, no spaces. Neither Spark nor
trio is needed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from rocketmq_sdk.errors import ConfigurationError

VERSION: Final = 1
EARLIEST: Final = -2
"""In offsets that users write: the first message that is still stored."""
LATEST: Final = -1
"""In offsets that users write: after the last message."""
MOST_OFFSET: Final = (1 << 63) - 1
MOST_QUEUE_ID: Final = (1 << 31) - 1


MEMBERS: Final = frozenset({"t", "v", "b", "e", "n", "m"})
"""The members of offsets: queues, version, the marks of a batch's end, and metrics."""


class OffsetFormatError(ConfigurationError):
    """Offsets that are not written as they have to be; the text names the place."""


@attrs.frozen(order=True)
class QueueKey:
    """One queue of a cluster."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


Offsets = Mapping[QueueKey, int]


@attrs.frozen
class BatchEnd:
    """Where a batch of a stream ends, and what planning it again must not change.

    `tasks` is the number of tasks that it was cut into, None in checkpoints of releases
    before 0.2. `enters`: queues that its start does not name enter where it ends; else,
    in a first batch, they are read from their first offset. `begins`: where the batch
    begins, where that is not what its start says.
    """

    offsets: Offsets
    tasks: int | None = None
    enters: bool = False
    begins: Offsets | None = None

    def to_json(self) -> dict[str, Any]:
        """The dictionary that is handed to Spark."""
        marks: dict[str, Any] = {}
        if self.begins is not None:
            marks["b"] = to_json(self.begins)["t"]
        if self.enters:
            marks["e"] = True
        if self.tasks is not None:
            marks["n"] = self.tasks
        return {**marks, **to_json(self.offsets)}

    @classmethod
    def from_json(cls, value: object, *, source: str) -> BatchEnd:
        """An end out of a checkpoint. Raises `OffsetFormatError`."""
        offsets = from_json(value, source=source)
        assert isinstance(value, dict)
        tasks, enters = value.get("n"), value.get("e", False)
        if tasks is not None and (
            isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1
        ):
            raise OffsetFormatError(f"{source} have {_short(tasks)} tasks; it must be 1 or more")
        if not isinstance(enters, bool):
            raise OffsetFormatError(f'{source} have {_short(enters)} for "e"; it must be a boolean')
        begins = value.get("b")
        if begins is not None:
            begins = _queues(begins, f'{source}, at "b",', least=0)
        return cls(offsets, tasks, enters, begins)


def to_json(offsets: Offsets) -> dict[str, Any]:
    """The dictionary that is handed to Spark.

    `json.dumps` of it is the same for equal places.
    """
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        topics.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = (
            offsets[queue]
        )
    return {"t": topics, "v": VERSION}


def to_text(offsets: Offsets) -> str:
    """The shortest text."""
    return json.dumps(to_json(offsets), separators=(",", ":"), ensure_ascii=False)


def from_json(value: object, *, source: str = "the offsets") -> dict[QueueKey, int]:
    """Places out of a checkpoint.

    `source` says in errors where they come from. Raises `OffsetFormatError`.
    """
    if not isinstance(value, dict) or "t" not in value or "v" not in value:
        raise OffsetFormatError(
            f'{source} must look like {{"t":{{topic:{{broker:{{"0":5}}}}}},"v":{VERSION}}}, not '
            f"{_short(value)}"
        )
    if value["v"] != VERSION or isinstance(value["v"], bool):
        raise OffsetFormatError(
            f"{source} have version {_short(value['v'])}; this release reads version {VERSION}. A "
            "newer release wrote them: use that one, "
            "or a new checkpoint"
        )
    unknown = value.keys() - MEMBERS
    if unknown:
        raise OffsetFormatError(f"{source} have the unknown member {_short(min(unknown, key=str))}")
    return _queues(value["t"], source, least=0)


def from_text(text: str, *, source: str = "the offsets") -> dict[QueueKey, int]:
    """`from_json` of a text. Raises `OffsetFormatError`."""
    return from_json(_parsed(text, source), source=source)


def from_user(text: str, *, source: str, least: int = EARLIEST) -> dict[QueueKey, int]:
    """Places that a user wrote, whole or only the inner map of topics.

    `EARLIEST` and `LATEST` stand for the ends of a queue. `least` is the lowest number
    that is allowed: `LATEST` where the end of a range is meant. Raises
    `OffsetFormatError`.
    """
    value = _parsed(text, source)
    if (
        isinstance(value, dict)
        and {"t", "v"} <= value.keys() <= MEMBERS
        and not isinstance(value["v"], dict)
    ):
        if value["v"] != VERSION:
            raise OffsetFormatError(
                f"{source} have version {_short(value['v'])}; this release reads version {VERSION}"
            )
        value = value["t"]
    return _queues(value, source, least=least)


def _parsed(text: str, source: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OffsetFormatError(f"{source} are no JSON: {error}") from None
    except RecursionError:
        raise OffsetFormatError(f"{source} are nested too deeply") from None


def _queues(topics: object, source: str, *, least: int) -> dict[QueueKey, int]:
    found: dict[QueueKey, int] = {}
    for topic, brokers in _members(topics, source, "a map of topics"):
        for broker, queues in _members(brokers, source, f"a map of brokers at {topic!r}"):
            for text, offset in _members(
                queues, source, f"a map of queue ids at {topic!r}, {broker!r}"
            ):
                if (
                    not (text.isascii() and text.isdecimal())
                    or len(text) > 10
                    or int(text) > MOST_QUEUE_ID
                    or str(int(text)) != text
                ):
                    raise OffsetFormatError(
                        f"{source} have the queue id {text[:40]!r} at {topic!r}, {broker!r}; it "
                        "must be a number from 0 on"
                    )
                if (
                    isinstance(offset, bool)
                    or not isinstance(offset, int)
                    or not least <= offset <= MOST_OFFSET
                ):
                    wanted = f"a whole number from {least} to {MOST_OFFSET}"
                    raise OffsetFormatError(
                        f"{source} have {_short(offset)} for {topic}/{broker}/{text}; it must be "
                        f"{wanted}"
                    )
                found[QueueKey(topic, broker, int(text))] = offset
    return found


def _members(value: object, source: str, what: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise OffsetFormatError(f"{source} must have {what}, not {_short(value)}")
    for name in value:
        if not isinstance(name, str) or not name:
            raise OffsetFormatError(f"{source} have the name {_short(name)} in {what}")
    return list(value.items())


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
