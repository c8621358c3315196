"""Binary headers of frames (`RocketMQSerializable`)."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from rocketmq_sdk.codes import LanguageCode
from rocketmq_sdk.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.text import encode_text

_FIXED = Struct(">hBhiii")  # code, language, version, opaque, flag, length of the remark
_INT = Struct(">i")
_KEY_MAX: Final = 0x7FFF
_LANGUAGES: Final = {int(language): language for language in LanguageCode}
_ROCKETMQ = HeaderEncoding.ROCKETMQ
_OTHER = LanguageCode.OTHER
CODE_MIN: Final = -0x8000
CODE_MAX: Final = 0x7FFF


def encode_binary_header(command: Command) -> bytes:
    """The header bytes of a command.

    The caller has made sure that the code fits 16 bits.

    Raises `LocalProtocolError` when a number or a key does not fit its field.
    """
    remark = b"" if command.remark is None else encode_text(command.remark)
    parts: list[bytes] = []
    for name, value in command.ext_fields.items():
        data = encode_text(value)
        parts += (_PREFIXES.get(name) or _prefix(name), len(data).to_bytes(4, "big"), data)
    fields = b"".join(parts)
    language = _OTHER if command.language is None else command.language
    try:
        fixed = _FIXED.pack(
            command.code, language, command.version, command.opaque, command.flag, len(remark)
        )
    except error as broken:
        raise LocalProtocolError(
            f"{command!r} has a number that does not fit a binary header: {broken}"
        ) from broken
    return b"".join((fixed, remark, _INT.pack(len(fields)), fields))


# Length and bytes of field names that were written before; there are few, whatever
# arrives.
_PREFIXES: Final[dict[str, bytes]] = {}
_PREFIXES_MAX: Final = 1024


def _prefix(name: str) -> bytes:
    key = encode_text(name)
    if len(key) > _KEY_MAX:
        raise LocalProtocolError(
            f"the name of an ext field has {len(key)} bytes, more than {_KEY_MAX}"
        )
    prefix = len(key).to_bytes(2, "big") + key
    if len(_PREFIXES) < _PREFIXES_MAX and len(key) < 64:
        _PREFIXES[name] = prefix
    return prefix


def decode_binary_header(header: bytes, body: bytes) -> Command:
    """A command out of its header bytes and its body.

    Raises `RemoteProtocolError` when a length leads out of the header.
    """
    try:
        code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
        position = 21 - 4 + remark_length
        if remark_length < 0:
            raise RemoteProtocolError("the remark of a binary header has a negative length")
        remark = str(header[17:position], "utf-8", "replace") if remark_length else None
        (fields_length,) = _INT.unpack_from(header, position)
        position += 4
        end = position + max(fields_length, 0)
        if end > len(header):
            raise RemoteProtocolError(
                f"the fields of a binary header have {fields_length} bytes, more than are left of "
                f"{len(header)}"
            )
        ext_fields = _decode_fields(header, position, end)
    except (error, IndexError):
        raise RemoteProtocolError(
            f"a binary header of {len(header)} bytes ends too early"
        ) from None
    if end != len(header):
        # Apache takes the body from where the header stopped being read, not from
        # behind its announced length.
        body = (header[end:] + body)[: len(body)]
    return Command(
        code,
        flag=flag,
        opaque=opaque,
        remark=remark,
        ext_fields=ext_fields,
        body=body,
        language=_LANGUAGES.get(language),
        version=version,
        encoding=_ROCKETMQ,
    )


def _decode_fields(header: bytes, position: int, end: int) -> dict[str, str]:
    # One text for all slices; a slice that is not ASCII is decoded from its bytes.
    text = header.decode("latin-1")
    fields: dict[str, str] = {}
    unpack_int = _INT.unpack_from
    while position < end:
        key_length = header[position] << 8 | header[position + 1]
        value_at = position + key_length + 6
        if not 0 < key_length <= _KEY_MAX or value_at > end:
            raise RemoteProtocolError(
                f"a field name of a binary header has the length {key_length}"
            )
        name = text[position + 2 : value_at - 4]
        if not name.isascii():
            name = header[position + 2 : value_at - 4].decode("utf-8", "replace")
        (value_length,) = unpack_int(header, value_at - 4)
        position = value_at + value_length
        if value_length < 0 or position > end:
            raise RemoteProtocolError(
                f"the field {name[:40]!r} of a binary header has the length {value_length}"
            )
        if value_length:
            value = text[value_at:position]
            fields[name] = (
                value if value.isascii() else header[value_at:position].decode("utf-8", "replace")
            )
    return fields
