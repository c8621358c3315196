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
from rocketmq_sdk.protocol.shapes.tries import Tries

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
_QUICK_SHAPES: Final = 6
"""Headers of which a shape is made at once; later ones are seldom made."""
_REST: Final = 1024
"""Requests that are decoded before one more shape is made."""
_MOST_REFUSALS: Final = 16
_SHORT_REST: Final = 256
"""Requests that are decoded after so many refusals."""


class SendShape:
    """What requests that match one shape have in common.

    `code` and `flag` are theirs; `constants` has those of their ext fields that do not
    differ. `values` picks topic, queue id, born time and properties out of
    `CutSend.texts`.
    """

    __slots__ = ("code", "constants", "flag", "match", "opaque_at", "shape", "tries", "values")

    def __init__(self, shape: Shape, sample: Command) -> None:
        self.shape = shape
        self.match: Callable[[bytes, int, int], re.Match[bytes] | None] = shape.match
        self.code, self.flag = sample.code, sample.flag
        self.opaque_at = shape.opaque_at
        self.values = itemgetter(*map(shape.names.index, _DIFFERING))
        fields = sample.ext_fields.items()
        self.constants = {name: value for name, value in fields if name not in _DIFFERING}
        self.tries = Tries(_MOST_REFUSALS, _SHORT_REST)

    def served(self, count: int) -> None:
        """So many that came together were served by what was cut out of them.

        After several times without any they are decoded for a while: cutting was for
        nothing.
        """
        if count:
            self.tries.worked()
        else:
            self.tries.use()


def is_send(command: Command) -> bool:
    """Whether this is a request that may be cut."""
    return command.code == RequestCode.SEND_MESSAGE_V2 and not command.flag & FLAG_RESPONSE


class CutSend(CutCommand):
    """A `SEND_MESSAGE_V2` whose header matches a shape."""

    __slots__ = ("form",)

    form: SendShape


class SendShapes:
    """The shapes of the last requests to send that came by one connection."""

    __slots__ = ("_shapes", "_tries")

    def __init__(self) -> None:
        self._shapes: list[SendShape] = []
        self._tries = Tries(_QUICK_SHAPES, _REST)

    def take(self, data: bytes, offset: int, longest: int, commands: list[Command]) -> int:
        """Take the whole frame with a JSON header that begins at an offset.

        And those behind it that match the same shape and have up to `longest` bytes.
        Returns where the last one ends. Raises as `decode_json_header`.
        """
        total, word = _unpack(data, offset)
        start, stop = offset + 8, offset + 4 + total
        rests = False
        for form in self._shapes:
            if form.tries.let_go_by():
                rests = True  # and nothing is learned: this one may be of that shape
                continue
            found = form.match(data, start, start + word)
            if found is not None:
                return _cut(form, found, data, stop, longest, commands)
        text = data[start : start + word]
        command = decode_json_header(text, data[start + word : stop])
        if not rests and is_send(command):
            self._learn(text, command)
        commands.append(command)
        return stop

    def _learn(self, text: bytes, command: Command) -> None:
        tries, shapes = self._tries, self._shapes
        if (
            not tries.let_go_by()
            and len(text) <= LONGEST
            and command.ext_fields.keys() >= _DIFFERING.keys()
        ):
            tries.use()
            shape = shape_of(text, command, _DIFFERING)
            if shape is not None:
                shapes.append(SendShape(shape, command))
                del shapes[:-_MOST_SHAPES]


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
