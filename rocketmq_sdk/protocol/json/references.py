"""`$ref` in JSON texts of Apache RocketMQ up to 5.3.

An object met again is written as a path to its first place (fastjson 1, `JSONPath`).
"""

from __future__ import annotations

from typing import Final

from rocketmq_sdk.errors import RemoteProtocolError

_NAME: Final = "$ref"
_STEPS_MAX: Final = 100_000


def resolve_references(value: object) -> object:
    """The value with each `{"$ref": "$.path"}` replaced by what the path names.

    Raises `RemoteProtocolError` for a path that leads nowhere or to something that
    holds the reference itself.
    """
    return _Resolver(value).resolve(value, 0)


class _Resolver:
    __slots__ = ("_left", "_root")

    def __init__(self, root: object) -> None:
        self._root = root
        self._left = _STEPS_MAX

    def resolve(self, value: object, depth: int) -> object:
        self._left -= 1
        if depth > 200 or self._left < 0:
            raise RemoteProtocolError(
                "a JSON text is nested too deeply, or a reference in it leads back to itself"
            )
        if isinstance(value, dict):
            path = value.get(_NAME)
            if len(value) == 1 and isinstance(path, str):
                return self.resolve(self._find(path), depth + 1)
            for name, item in value.items():
                if isinstance(item, dict | list):
                    value[name] = self.resolve(item, depth + 1)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict | list):
                    value[index] = self.resolve(item, depth + 1)
        return value

    def _find(self, path: str) -> object:
        found = self._root
        for step in _steps(path):
            if isinstance(found, dict):
                found = _member(found, step)
            elif (
                isinstance(found, list)
                and step.isdecimal()
                and len(step) < 10
                and int(step) < len(found)
            ):
                found = found[int(step)]
            else:
                found = None
            if found is None:
                raise RemoteProtocolError(
                    f"a JSON text refers to {path[:100]!r}, which it does not hold"
                )
        return found


def _member(members: dict[object, object], step: str) -> object:
    if step in members:
        return members[step]
    for key, item in members.items():
        if isinstance(key, tuple) and _java_text(dict(key)) == step:
            return item
    return None


def _java_text(key: dict[str, object]) -> str:
    # `MessageQueue.toString`: the only class that is a key of Apache's maps.
    return (
        f"MessageQueue [topic={key.get('topic')}, brokerName={key.get('brokerName')}, "
        f"queueId={key.get('queueId')}]"
    )


def _steps(path: str) -> list[str]:
    # `$.name[3].other`; a backslash takes the next character as it is.
    if not path.startswith("$") or len(path) > 10_000:
        raise RemoteProtocolError(
            f"a JSON text refers to {path[:100]!r}; only paths from the root are understood"
        )
    steps: list[str] = []
    current = ""
    characters = iter(path[1:])
    for character in characters:
        if character == "\\":
            current += next(characters, "")
        elif character in ".[]":
            if current:
                steps.append(current)
            current = ""
        else:
            current += character
    if current:
        steps.append(current)
    return steps
