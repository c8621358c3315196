"""Answers that are as the one before but for a few values, cut instead of decoded.

A producer that sends plain messages gets one kind of answer, thousands of times, one
of transactions two, in turn. The shape of two of a kind that follow each other is
remembered: what was the same in both, and what differed. What does not match it is
decoded, and may become the next shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.protocol.header_json import decode_json_header
from rocketmq_sdk.protocol.shapes.headers import LONGEST, PLAIN, CutCommand, shape_of

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.protocol.shapes.headers import Shape

_new: Final = CutCommand.__new__
_MOST_SHAPES: Final = 16
"""Answers that change their shape more often are decoded from then on."""
_KINDS: Final = 2
"""Kinds of answers, by the names of their fields, whose shapes are remembered."""


class CutAnswer(CutCommand):
    """An answer that says success and has no body."""

    __slots__ = ()


class _Kind:
    """Answers with the same ext fields: the last one that was decoded, what has ever
    differed, and their shape.
    """

    __slots__ = ("last", "names", "shape", "varying")

    def __init__(self, names: frozenset[str], text: bytes, fields: dict[str, str]) -> None:
        self.names = names
        self.last = text, fields
        self.varying: set[str] = set()
        self.shape: Shape | None = None


class AnswerShapes:
    """The shapes of the last answers of one connection.

    `cut` gives the answer whose header stands between two positions, None for one that
    has to be decoded, which is for `learn` then.
    """

    __slots__ = ("_kinds", "_left", "_other", "_shape")

    def __init__(self) -> None:
        self._kinds: list[_Kind] = []
        """The one that was decoded last stands last."""
        self._shape: Shape | None = None
        self._other: Shape | None = None
        self._left = _MOST_SHAPES

    def cut(self, data: bytes, start: int, stop: int) -> CutAnswer | None:
        shape = self._shape
        if shape is None:
            return None
        found = shape.match(data, start, stop)
        if found is None:
            other = self._other
            if other is None:
                return None
            found = other.match(data, start, stop)
            if found is None:
                return None
            # Answers of one kind mostly come together.
            self._shape, self._other, shape = other, shape, other
        answer = _new(CutAnswer)
        answer.texts = texts = found.groups()
        answer.opaque = int(texts[shape.opaque_at])
        answer.code = 0
        answer.flag = FLAG_RESPONSE
        answer.shape = shape
        return answer

    def learn(self, text: bytes) -> Command:
        """Decode a header that was not cut, and remember what it looks like.

        Raises as `decode_json_header`.
        """
        answer = decode_json_header(text, b"")
        if (
            self._left
            and not answer.code
            and answer.flag == FLAG_RESPONSE
            and answer.remark is None
            and len(text) <= LONGEST
        ):
            self._look_at(text, answer)
        return answer

    def _look_at(self, text: bytes, answer: Command) -> None:
        fields, kinds = answer.ext_fields, self._kinds
        names = frozenset(fields)
        kind = next((kind for kind in kinds if kind.names == names), None)
        if kind is None:
            kinds.append(_Kind(names, text, dict(fields)))
            del kinds[:-_KINDS]
        else:
            last, kind.last = kind.last, (text, dict(fields))
            kind.varying |= {name for name, value in fields.items() if last[1][name] != value}
            self._left -= 1
            shape = shape_of(text, answer, dict.fromkeys(kind.varying, PLAIN))
            kind.shape = shape if shape is not None and shape.match(last[0]) else None
            kinds.remove(kind)
            kinds.append(kind)
        shapes = [kind.shape for kind in reversed(kinds) if kind.shape is not None]
        self._shape, self._other = (*shapes, None, None)[:2]
