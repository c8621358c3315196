"""Frames that differ in a few texts only, written without encoding the rest again."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.header_json import encode_json_header

if TYPE_CHECKING:
    from collections.abc import Sequence

_pack = Struct(">II").pack
_OPAQUE: Final = 1_999_999_973
"""A number that stands for the opaque while the template is made."""


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
        form = encode_json_header(marked).decode().replace("%", "%%")
        for mark in marks.values():
            form = form.replace(mark, "%s")
        self.form = form.replace(f'"opaque":{_OPAQUE}', '"opaque":%d')


def frame_of(header: bytes, body: bytes = b"") -> bytes:
    """The frame with a JSON header that is encoded already."""
    length = len(header)
    return _pack(4 + length + len(body), length) + header + body
