"""Frames and commands that differ in a few texts only; the rest is made once."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.header_json import encode_json_header
from rocketmq_sdk.protocol.text import valid_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_pack = Struct(">II").pack
_OPAQUE: Final = 1_999_999_973
"""A number that stands for the opaque while the template is made."""
_new = Command.__new__


class CommandTemplate:
    """Commands that are as a sample, but for a few ext fields."""

    __slots__ = ("_fields", "_sample")

    def __init__(self, sample: Command) -> None:
        self._sample = sample
        self._fields = {name: valid_text(text) for name, text in sample.ext_fields.items()}

    def command(self, values: dict[str, str], body: bytes = b"", opaque: int = 0) -> Command:
        """A command of its own, with these values in place of those of the sample."""
        sample = self._sample
        command = _new(Command)
        command.code = sample.code
        command.flag = sample.flag
        command.opaque = opaque
        command.remark = sample.remark
        command.ext_fields = self._fields | values
        command.body = body
        command.language = sample.language
        command.version = sample.version
        command.encoding = sample.encoding
        return command


class Form(str):
    """A header for `%` with values and opaque, and the texts between those."""

    __slots__ = ("__dict__",)

    pieces: tuple[str, ...]


class FrameTemplate:
    """Frames with a JSON header that are as a sample, but for some fields.

    `form % (values, opaque)` is the header, with the values of the ext fields `fields`
    in the order in which the sample has them. Each value stands in the header as it is:
    it must be what JSON has between the quotes.
    """

    __slots__ = ("form",)

    def __init__(self, sample: Command, fields: Sequence[str]) -> None:
        marks = {name: f"@{number}@{_OPAQUE}@" for number, name in enumerate(fields)}
        marked = Command(
            sample.code,
            flag=sample.flag,
            opaque=_OPAQUE,
            remark=sample.remark,
            ext_fields={**sample.ext_fields, **marks},
            language=sample.language,
            version=sample.version,
        )
        rest, pieces = encode_json_header(marked).decode(), list[str]()
        for mark in (*marks.values(), str(_OPAQUE)):
            piece, _mark, rest = rest.partition(mark)
            pieces.append(piece)
        texts = [piece.replace("%", "%%") for piece in (*pieces, rest)]
        self.form = Form("%s".join(texts[:-1]) + "%d" + texts[-1])
        self.form.pieces = (*pieces, rest)


def header_of(form: Form, values: Sequence[str], opaque: int) -> bytes:
    """The JSON header with these values and this opaque."""
    if len(values) == 2:  # as producers write it: half the cost of the other way
        (one, other), (first, second, third, last) = values, form.pieces
        return f"{first}{one}{second}{other}{third}{opaque}{last}".encode()
    return (form % (*values, opaque)).encode()


def frame_of(header: bytes, body: bytes | memoryview = b"") -> bytes:
    """The frame with a JSON header that is encoded already."""
    length = len(header)
    return b"".join((_pack(4 + length + len(body), length), header, body))


def frames_of(headers: Sequence[bytes]) -> list[bytes]:
    """The frames of several such headers, without bodies. Many have the same length."""
    frames: list[bytes] = []
    known, words = -1, b""
    for header in headers:
        length = len(header)
        if length != known:
            known, words = length, _pack(4 + length, length)
        frames.append(words + header)
    return frames


def head_of(header: bytes, body: bytes | memoryview) -> bytes:
    """What comes before the body in the frame with a JSON header that is encoded."""
    length = len(header)
    return _pack(4 + length + len(body), length) + header
