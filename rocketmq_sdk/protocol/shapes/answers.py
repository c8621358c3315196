"""Answers that are as the one before but for a few values, cut instead of decoded.

A producer that sends plain messages gets one kind of answer, thousands of times, one
of transactions two, in turn. The shape of two of a kind that follow each other is
remembered: what was the same in both, and what differed. What does not match it is
decoded, and may become the next shape. Others that come between them now and then, as
those to heartbeats, do not: the shapes of two kinds are kept that are frequent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.protocol.header_json import decode_json_header
from rocketmq_sdk.protocol.shapes.headers import LONGEST, PLAIN, CutCommand, shape_of
from rocketmq_sdk.protocol.shapes.tries import Tries

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.protocol.shapes.headers import Shape

_new: Final = CutCommand.__new__
_QUICK_SHAPES: Final = 16
"""Shapes that are made at once; later ones are seldom made."""
_REST: Final = 1024
"""Answers that are decoded before one more shape is made."""
_MOST_KINDS: Final = 4
"""Kinds of answers, by the names of their fields, that are remembered."""
_FREQUENT: Final = 16
"""Decoded answers of a kind, after which it takes the place of another."""


class CutAnswer(CutCommand):
    """An answer that says success and has no body."""

    __slots__ = ()


class _Kind:
    """Answers with the same ext fields: the last one that was decoded, what has ever
    differed, their shape, and how many were decoded without one.
    """

    __slots__ = ("decoded", "last", "shape", "varying")

    def __init__(self, text: bytes, fields: dict[str, str]) -> None:
        self.last: tuple[bytes, dict[str, str]] | None = (text, fields)
        self.varying: set[str] = set()
        self.shape: Shape | None = None
        self.decoded = 0


class AnswerShapes:
    """The shapes of the last answers of one connection.

    `cut` gives the answer whose header stands between two positions, None for one that
    has to be decoded, which is for `learn` then.
    """

    __slots__ = ("_kinds", "_other", "_shape", "_tries")

    def __init__(self) -> None:
        self._kinds: dict[frozenset[str], _Kind] = {}
        """In the order in which they were first seen."""
        self._shape: Shape | None = None
        """Of the last answer that was cut; `_other` is the other one."""
        self._other: Shape | None = None
        self._tries = Tries(_QUICK_SHAPES, _REST)

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
        answer, tries = decode_json_header(text, b""), self._tries
        if tries.let_go_by():
            if not tries.resting:
                for kind in self._kinds.values():
                    kind.last = None  # it was long ago
        elif (
            not answer.code
            and answer.flag == FLAG_RESPONSE
            and answer.remark is None
            and len(text) <= LONGEST
        ):
            self._look_at(text, answer)
        return answer

    def _look_at(self, text: bytes, answer: Command) -> None:
        fields, kinds = dict(answer.ext_fields), self._kinds
        names = frozenset(fields)
        kind = kinds.get(names)
        if kind is None:
            if len(kinds) >= _MOST_KINDS:
                del kinds[next(old for old, kind in kinds.items() if kind.shape is None)]
            kinds[names] = _Kind(text, fields)
            return
        last, kind.last = kind.last, (text, fields)
        if last is None:
            return
        before = last[1]
        kind.varying |= {name for name, value in fields.items() if before[name] != value}
        if kind.shape is None:
            kind.decoded += 1
            if self._other is not None and kind.decoded < _FREQUENT:
                return
        self._tries.use()
        shape = shape_of(text, answer, dict.fromkeys(kind.varying, PLAIN))
        self._use(kind, shape if shape is not None and shape.match(last[0]) else None)

    def _use(self, kind: _Kind, shape: Shape | None) -> None:
        """Give a kind its shape, in the place of the one that it had, or of another."""
        old, kind.shape, kind.decoded = kind.shape, shape, 0
        used = [one for one in (self._shape, self._other) if one is not None and one is not old]
        if shape is not None and old is None:
            used[1:] = (shape, *used[1:])  # the last one that was cut stays in front
        elif shape is not None:
            used.insert(0, shape)
        self._shape, self._other = (*used, None, None)[:2]
        for other in self._kinds.values():
            if other.shape not in (self._shape, self._other):
                other.shape = None
