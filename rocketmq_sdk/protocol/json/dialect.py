"""JSON as Apache's brokers and clients write and read it.

Follows fastjson, as `RemotingSerializable` uses it.

Bodies of RocketMQ are JSON with liberties: integer keys of maps stand without quotes,
objects are used as keys, the same object twice in a text may be a `$ref` to its first
place (releases up to 5.3), single quotes and a comma behind the last member are taken.
Texts go through the strict parser first; only what it refuses is read by the tolerant
reader below. An object that is a key becomes a tuple of its (name, value) pairs sorted
by name; integer keys become texts.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Final, TypeAlias

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.json import backend as json_backend
from rocketmq_sdk.protocol.json.reader import DEPTH_MAX, read_tolerantly
from rocketmq_sdk.protocol.json.references import resolve_references
from rocketmq_sdk.protocol.text import encode_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FrozenObject: TypeAlias = tuple[tuple[str, object], ...]
"""An object that is the key of another one: its (name, value) pairs sorted by name."""

_MARK_OF_REFERENCE: Final = b'"$ref"'


class NotStrictError(RemoteProtocolError):
    """A text is longer than what is read of one that is not strict JSON."""


def decode_json(data: bytes, *, tolerated: int | None = None) -> object:
    """The value of a JSON text, strict or in Apache's dialect.

    The tolerant reader takes about a second for a megabyte; `tolerated` bounds the
    bytes that it reads for a peer. Raises `RemoteProtocolError` for a text that Apache
    refuses, and for one nested deeper than `DEPTH_MAX` that the strict parser refuses;
    `NotStrictError` for one beyond that bound.
    """
    try:
        value = json_backend.loads(data)
    except ValueError as error:
        if tolerated is not None and len(data) > tolerated:
            raise NotStrictError(
                f"a text of {len(data)} bytes is not strict JSON ({error}); up to {tolerated} are "
                "read all the same"
            ) from None
        value = read_tolerantly(data)
    if _MARK_OF_REFERENCE in data:
        value = resolve_references(value)
    return value


def encode_json(value: object, *, object_keys: bool = False) -> bytes:
    """A value as compact UTF-8, members in the given order.

    A lone surrogate becomes `?`, a number that is not finite null.

    With `object_keys` the dialect is written: integer keys without quotes, keys that
    are tuples of (name, value) pairs as objects. Without it the text is strict JSON and
    integer keys are quoted. Raises `TypeError` or `ValueError` for a value that JSON
    cannot hold.
    """
    # orjson refuses keys that are no texts, so what it writes is right for both; the
    # standard library would quote integers.
    if not object_keys or json_backend.mode == "orjson":
        try:
            return json_backend.dumps(value)
        except (TypeError, ValueError):
            pass  # integer keys, numbers beyond 64 bits, lone surrogates: written below
    parts: list[str] = []
    _write(value, parts, object_keys, DEPTH_MAX)
    return encode_text("".join(parts))


class Written:
    """A value that `encode_pretty` writes as the text that it is already.

    Made by `written_pretty`.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def written_pretty(value: object, depth: int) -> Written:
    """The text of a value `depth` objects below the top. Raises as `encode_pretty`.

    It is for tables of which little changes between two writings.
    """
    parts: list[str] = []
    _write_pretty(value, parts, "\n" + "\t" * depth, DEPTH_MAX - depth)
    return Written("".join(parts))


def written_numbers(table: Mapping[int, int], depth: int) -> Written:
    """`written_pretty` of a table of whole numbers, which may have very many."""
    line = "\n" + "\t" * depth
    inner = line + "\t"
    members = ("," + inner).join([f'"{key}":{value}' for key, value in sorted(table.items())])
    return Written(f"{{{inner}{members}{line}}}")


def encode_pretty(value: object) -> str:
    """The text of a broker's configuration file.

    Tabs, members in alphabetical order, integer keys in numerical order and quoted.

    The layout is that of Apache RocketMQ 5.4.0 (fastjson 2), except that Apache leaves
    integer keys unquoted; it reads both. Raises `TypeError` or `ValueError` for a value
    that JSON cannot hold.
    """
    parts: list[str] = []
    _write_pretty(value, parts, "\n", DEPTH_MAX)
    return "".join(parts)


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return str(encode_basestring(value))
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if value - value == 0.0 else "null"
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _write(value: object, parts: list[str], dialect: bool, depth: int) -> None:
    if not isinstance(value, dict | list | tuple | set | frozenset):
        parts.append(_scalar(value))
        return
    if depth == 0:
        raise ValueError("the value is nested too deeply")
    if isinstance(value, dict):
        _write_members(value.items(), parts, dialect, depth)
        return
    separator = "["
    for item in value:
        parts.append(separator)
        _write(item, parts, dialect, depth - 1)
        separator = ","
    parts.append("[]" if separator == "[" else "]")


def _write_members(
    members: Iterable[tuple[object, object]], parts: list[str], dialect: bool, depth: int
) -> None:
    separator = "{"
    for key, item in members:
        parts.append(separator)
        if isinstance(key, str):
            parts.append(encode_basestring(key))
        elif isinstance(key, int):
            parts.append(_scalar(key) if dialect else f'"{_scalar(key)}"')
        elif isinstance(key, tuple) and dialect:
            _write_members(key, parts, dialect, depth - 1)
        else:
            raise TypeError(f"{type(key).__name__} cannot be a key in JSON")
        parts.append(":")
        _write(item, parts, dialect, depth - 1)
        separator = ","
    parts.append("{}" if separator == "{" else "}")


def _write_pretty(value: object, parts: list[str], line: str, depth: int) -> None:
    if not isinstance(value, dict | list | tuple):
        parts.append(value.text if isinstance(value, Written) else _scalar(value))
        return
    if depth == 0:
        raise ValueError("the value is nested too deeply")
    inner = line + "\t"
    separator = inner
    parts.append("{" if isinstance(value, dict) else "[")
    if not value:
        parts.append(inner)
    elif isinstance(value, dict):
        for key in sorted(value, key=_key_order):
            parts.append(separator)
            if isinstance(key, tuple):
                _write_members(key, parts, True, depth - 1)
            else:
                parts.append(encode_basestring(key if isinstance(key, str) else _scalar(key)))
            parts.append(":")
            _write_pretty(value[key], parts, inner, depth - 1)
            separator = "," + inner
    else:
        for item in value:
            parts.append(separator)
            _write_pretty(item, parts, inner, depth - 1)
            separator = "," + inner
    parts += (line, "}" if isinstance(value, dict) else "]")


def _key_order(key: object) -> tuple[int, int, str]:
    if isinstance(key, int):
        return 0, key, ""
    if isinstance(key, str):
        return 1, 0, key
    if isinstance(key, tuple):
        return 2, 0, str(key)
    raise TypeError(f"{type(key).__name__} cannot be a key in JSON")
