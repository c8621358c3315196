"""Requests to send that are as one before but for a few values, cut, not decoded.

The messages of a producer have most of their header in common. What may differ is the
queue, when a message was born, its properties, and the topic. That is cut out of the
header; the rest is decoded once for thousands of messages.
"""

from __future__ import annotations

from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.protocol.header_json import decode_json_header
from rocketmq_sdk.protocol.shapes.headers import (
    LONGEST,
    MARKED,
    PLAIN,
    CutCommand,
    Shape,
    shape_of,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from rocketmq_sdk.protocol.command import Command

_DIFFERING: Final = {"b": PLAIN, "e": PLAIN, "g": PLAIN, "i": MARKED}
"""Topic, queue id, born time and properties."""
_new: Final = CutCommand.__new__
_unpack: Final[Callable[[bytes, int], tuple[int, int]]] = Struct(">II").unpack_from
_MOST_SHAPES: Final = 4
"""Several producers may share a connection."""
_MOST_TRIES: Final = 6
"""Headers of which a shape is made, before it is given up."""
_MOST_REFUSALS: Final = 16


class SendShape:
    """What requests that match one shape have in common.

    `code` and `flag` are theirs; `constants` has those of their ext fields that do not
    differ. `values` picks topic, queue id, born time and properties out of
    `CutSend.texts`.
    """

    __slots__ = ("_refusals", "code", "constants", "flag", "match", "opaque_at", "shape", "values")

    def __init__(self, shape: Shape, sample: Command) -> None:
        self.shape = shape
        self.match: Callable[[bytes, int, int], re.Match[bytes] | None] = shape.match
        self.code, self.flag = sample.code, sample.flag
        self.opaque_at = shape.opaque_at
        self.values = itemgetter(*map(shape.names.index, _DIFFERING))
        fields = sample.ext_fields.items()
        self.constants = {name: value for name, value in fields if name not in _DIFFERING}
        self._refusals = 0

    def served(self, count: int) -> None:
        """So many that came together were served by what was cut out of them.

        After several times without any they are decoded: cutting was for nothing.
        """
        self._refusals = 0 if count else self._refusals + 1
        if self._refusals >= _MOST_REFUSALS:
            self.match = _never


def _never(_data: bytes, _start: int, _stop: int) -> None:
    """As a pattern that nothing matches."""


def is_send(command: Command) -> bool:
    """Whether this is a request that may be cut."""
    return command.code == RequestCode.SEND_MESSAGE_V2 and not command.flag & FLAG_RESPONSE


class CutSend(CutCommand):
    """A `SEND_MESSAGE_V2` whose header matches a shape."""

    __slots__ = ("form",)

    form: SendShape


class SendShapes:
    """The shapes of requests to send that came by one connection."""

    __slots__ = ("_shapes", "_tries")

    def __init__(self) -> None:
        self._shapes: list[SendShape] = []
        self._tries = _MOST_TRIES

    def take(self, data: bytes, offset: int, longest: int, commands: list[Command]) -> int:
        """Take the whole frame with a JSON header that begins at an offset.

        And those behind it that match the same shape and have up to `longest` bytes.
        Returns where the last one ends. Raises as `decode_json_header`.
        """
        total, word = _unpack(data, offset)
        start, stop = offset + 8, offset + 4 + total
        for form in self._shapes:
            found = form.match(data, start, start + word)
            if found is not None:
                return _cut(form, found, data, stop, longest, commands)
        text = data[start : start + word]
        command = decode_json_header(text, data[start + word : stop])
        if self._tries and is_send(command):
            self._learn(text, command)
        commands.append(command)
        return stop

    def _learn(self, text: bytes, command: Command) -> None:
        if (
            len(text) > LONGEST
            or len(self._shapes) >= _MOST_SHAPES
            or any(form.match is _never for form in self._shapes)
            or not command.ext_fields.keys() >= _DIFFERING.keys()
        ):
            return
        self._tries -= 1
        shape = shape_of(text, command, _DIFFERING)
        if shape is not None:
            self._shapes.append(SendShape(shape, command))


def _cut(
    form: SendShape,
    found: re.Match[bytes] | None,
    data: bytes,
    stop: int,
    longest: int,
    commands: list[Command],
) -> int:
    """Take a frame that ends at `stop`, and those behind it, for `SendShapes.take`."""
    match, opaque_at, end = form.match, form.opaque_at, len(data)
    shape, code, flag = form.shape, form.code, form.flag
    while found is not None:
        send = _new(CutSend)
        send.form = form
        send.shape = shape
        send.texts = texts = found.groups()
        send.opaque = int(texts[opaque_at])
        send.code = code
        send.flag = flag
        send.body = data[found.end() : stop]
        commands.append(send)
        if end - stop < 8:
            break
        total, word = _unpack(data, stop)
        start, following = stop + 8, stop + 4 + total
        if total > longest or not start + word <= following <= end:
            break
        found = match(data, start, start + word)
        if found is not None:
            stop = following
    return stop
