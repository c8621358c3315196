"""Parsers of option values.

Each raises `ValueError` that says what it wants, for people.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.route import parse_addresses
from rocketmq_sdk.names import check_send_topic, group_problem
from rocketmq_sdk.spark.plan.offsets import EARLIEST, LATEST, OffsetFormatError, QueueKey, from_user

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_UNITS: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?")
_SIZES: Final[Mapping[str, int]] = {"": 1, "k": 1 << 10, "m": 1 << 20}
_SIZE: Final = re.compile(r"([0-9]+)\s*([km]?)i?b?")


class Edge(Enum):
    """An end of every queue."""

    EARLIEST = "earliest"
    LATEST = "latest"


def text(value: str) -> str:
    """Any text that is not blank."""
    if not value.strip():
        raise ValueError("it is empty; leave the option out instead")
    return value.strip()


def boolean(value: str) -> bool:
    """true or false."""
    found = {"true": True, "false": False}.get(value.strip().lower())
    if found is None:
        raise ValueError("it must be true or false")
    return found


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number."""

    def parse(value: str) -> int:
        stripped = value.strip()
        if (
            not re.fullmatch(r"[0-9]{1,18}", stripped)
            or int(stripped) < least
            or (most is not None and int(stripped) > most)
        ):
            raise ValueError(
                f"it must be a whole number from {least} {'on' if most is None else f'to {most}'}"
            )
        return int(stripped)

    return parse


def duration(value: str) -> float:
    """Seconds out of `500ms`, `120s`, `15m`, `2h`, or a bare number of seconds."""
    match = _DURATION.fullmatch(value.strip().lower())
    if match is None or len(match[1]) > 15:
        raise ValueError("it must be a time such as 500ms, 120s or 15m")
    return float(match[1]) * _UNITS[match[2] or "s"]


def size(most: int) -> Callable[[str], int]:
    """Bytes out of `4096`, `64k`, `4m`."""

    def parse(value: str) -> int:
        match = _SIZE.fullmatch(value.strip().lower())
        if match is None or len(match[1]) > 12 or int(match[1]) < 1:
            raise ValueError("it must be a size such as 4096, 64k or 4m")
        found = int(match[1]) * _SIZES[match[2]]
        if found > most:
            raise ValueError(
                f"it must be at most {most} bytes, what one request to a broker has room for"
            )
        return found

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    """One of some words, in any case; the word as it is declared."""

    def parse(value: str) -> str:
        found = next(
            (choice for choice in choices if choice.lower() == value.strip().lower()), None
        )
        if found is None:
            raise ValueError(f"it must be {', '.join(choices[:-1])} or {choices[-1]}")
        return found

    return parse


def moment(value: str) -> int:
    """Epoch milliseconds, or a time with its zone as ISO 8601 writes it."""
    stripped = value.strip()
    if re.fullmatch(r"[0-9]{1,15}", stripped):
        return int(stripped)
    try:
        found = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError(
            "it must be epoch milliseconds or a time like 2026-01-31T12:00:00+00:00"
        ) from None
    if found.tzinfo is None:
        raise ValueError("it has no time zone; write it like 2026-01-31T12:00:00+00:00")
    return round(found.timestamp() * 1000)


def topic_to_send_to(value: str) -> str:
    """The name of a topic that producers can send to."""
    name = text(value)
    try:
        check_send_topic(name)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return name


def group(value: str) -> str:
    """The name of a group."""
    name = text(value)
    problem = group_problem(name)
    if problem is not None:
        raise ValueError(problem)
    return name


def addresses(value: str) -> str:
    """Name servers, `host:port;host:port`."""
    try:
        parse_addresses(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return value.strip()


def topics(value: str) -> tuple[str, ...]:
    """Names separated by commas, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names:
        raise ValueError("it names no topic")
    return names


def pattern(value: str) -> str:
    """A regular expression."""
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from None
    return value


def queues(value: str) -> tuple[QueueKey, ...]:
    """`{"topic":{"broker":[0,1]}}`."""
    import json

    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None
    keys: list[QueueKey] = []
    form = 'it must look like {"topic":{"broker":[0,1]}}'
    if not isinstance(found, dict):
        raise ValueError(form)
    for topic, brokers in found.items():
        if not isinstance(brokers, dict) or not topic:
            raise ValueError(form)
        for broker, ids in brokers.items():
            if (
                not isinstance(ids, list)
                or not broker
                or any(
                    isinstance(item, bool) or not isinstance(item, int) or item < 0 for item in ids
                )
            ):
                raise ValueError(form)
            keys += (QueueKey(topic, broker, item) for item in ids)
    if not keys:
        raise ValueError("it names no queue")
    return tuple(sorted(set(keys)))


def places(least: int) -> Callable[[str], Any]:
    """`earliest`, `latest`, or offsets by queue."""

    def parse(value: str) -> Edge | dict[QueueKey, int]:
        word = value.strip().lower()
        if word == Edge.LATEST.value or (word == Edge.EARLIEST.value and least == EARLIEST):
            return Edge(word)
        if not value.lstrip().startswith("{"):
            words = "earliest, latest" if least == EARLIEST else "latest"
            raise ValueError(
                f'it must be {words} or offsets like {{"topic":{{"broker":{{"0":5}}}}}}'
            )
        return _by_queue(value, least)

    return parse


def times(value: str) -> dict[QueueKey, int]:
    """Epoch milliseconds by queue."""
    return _by_queue(value, LATEST + 1)


def _by_queue(value: str, least: int) -> dict[QueueKey, int]:
    try:
        return from_user(value, source="they", least=least)
    except OffsetFormatError as error:
        raise ValueError(str(error)) from None
