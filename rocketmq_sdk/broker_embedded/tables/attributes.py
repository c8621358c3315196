"""Attributes of topics and groups, and the request syntax `+key=value,-key`.

`AttributeParser`, `AttributeUtil` and `TopicAttributes` of Apache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

QUEUE_TYPE: Final = "queue.type"
CLEANUP_POLICY: Final = "cleanup.policy"
MESSAGE_TYPE: Final = "message.type"
RESERVE_TIME: Final = "reserve.time"
_LONG_MAX: Final = 0x7FFFFFFFFFFFFFFF


class AttributeKind(NamedTuple):
    """One attribute: how its value is checked, and whether it can be changed later.

    The check returns what is wrong with a value.
    """

    problem: Callable[[str], str | None]
    changeable: bool


def _one_of(*values: str) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        return None if value in values else f"value is not in set: [{', '.join(values)}]"

    return problem


def _whole_number(low: int, high: int) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        digits = value.removeprefix("-")
        if (
            digits.isascii()
            and digits.isdecimal()
            and len(digits) < 20
            and low <= int(value) <= high
        ):
            return None
        return f"value is not in range({low}, {high})"

    return problem


_TYPE_OF_MESSAGES: Final = _one_of(
    "UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED"
)


def _message_type(value: str) -> str | None:
    problem = _TYPE_OF_MESSAGES(value)
    if problem is None or value != "LITE":
        return problem
    return f"{problem}; LITE asks for lite topics, which this broker does not keep"


TOPIC_ATTRIBUTES: Final[dict[str, AttributeKind]] = {
    QUEUE_TYPE: AttributeKind(_one_of("SimpleCQ", "BatchCQ"), False),
    CLEANUP_POLICY: AttributeKind(_one_of("DELETE", "COMPACTION"), False),
    MESSAGE_TYPE: AttributeKind(_message_type, True),
    RESERVE_TIME: AttributeKind(_whole_number(-1, _LONG_MAX), True),
}
GROUP_ATTRIBUTES: Final[dict[str, AttributeKind]] = {
    "priority.factor": AttributeKind(_whole_number(0, 100), True)
}


def parse_attributes(text: str | None) -> dict[str, str]:
    """The changes of a request's text: `+key` to its value, `-key` to an empty text.

    Raises `ConfigurationError` for a text of another form.
    """
    changes: dict[str, str] = {}
    for item in (text or "").rstrip(",").split(","):
        if not item and not changes:
            continue
        key, separator, value = item.partition("=")
        if separator and ("+" not in key or not value):
            raise ConfigurationError(f"add/alter attribute format is wrong: {key}")
        if not separator and "-" not in key:
            raise ConfigurationError(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise ConfigurationError(f"key duplication: {key}")
        changes[key] = value.partition("=")[0]
    return changes


def alter_attributes(
    kinds: Mapping[str, AttributeKind],
    current: Mapping[str, str],
    changes: Mapping[str, str],
    *,
    creating: bool,
) -> dict[str, str]:
    """The attributes after a request's changes.

    Raises `ConfigurationError` for an unknown, repeated, unprefixed or unchangeable key
    and for a bad value; creating something takes additions only.
    """
    added: dict[str, str] = {}
    deleted: list[str] = []
    for prefixed, value in changes.items():
        sign, key = prefixed[:1], prefixed[1:]
        if sign not in ("+", "-") or not key or "+" in key or "-" in key:
            raise ConfigurationError("kv string format wrong.")
        if key in added or key in deleted:
            raise ConfigurationError(f"key duplication: {key}")
        if sign == "+":
            added[key] = value
        elif creating:
            raise ConfigurationError(
                f"only add attribute is supported while creating topic. key: {key}"
            )
        elif key not in current:
            raise ConfigurationError(f"attempt to delete a nonexistent key: {key}")
        else:
            deleted.append(key)
    for key in [*added, *deleted]:
        kind = kinds.get(key)
        if kind is None:
            raise ConfigurationError(f"unsupported key: {key}")
        if not creating and not kind.changeable:
            raise ConfigurationError(f"attempt to update an unchangeable attribute. key: {key}")
        problem = kind.problem(added[key]) if key in added else None
        if problem is not None:
            raise ConfigurationError(problem)
    kept = {key: value for key, value in current.items() if key not in deleted}
    return {**kept, **added}
