"""JSON headers of frames (`RemotingSerializable` over `RemotingCommand`).

Reading follows what Apache RocketMQ 5.4.0 accepts: numbers in quotes, booleans as
numbers, missing members, and anything but an array for an ext field value. The straight
path is for headers as all known peers write them; whatever differs goes through the
careful one.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import Any, Final

from rocketmq_sdk.codes import LanguageCode
from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.json import backend as json_backend
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_json
from rocketmq_sdk.protocol.text import encode_text

_JSON = HeaderEncoding.JSON
_join = "".join
_new = Command.__new__
_JAVA = LanguageCode.JAVA
_LANGUAGES: Final[dict[object, LanguageCode]] = {
    language.name: language for language in LanguageCode
}
_LANGUAGE_NAMES: Final[dict[LanguageCode | None, str]] = {
    language: language.name for language in LanguageCode
}
TOLERATED_HEADER: Final = 64 * 1024
"""Bytes of a header that is not strict JSON.

No known peer writes such a header, and properties are at most 32 KiB.
"""
_INT_MIN, _INT_MAX = -0x80000000, 0x7FFFFFFF


def encode_json_header(command: Command) -> bytes:
    """The header text of a command: compact UTF-8, ext field values always strings.

    A lone surrogate becomes `?` as Apache writes it.
    """
    if json_backend.mode == "stdlib":
        return _encode_by_template(command)
    fields: dict[str, object] = {
        "code": command.code,
        "extFields": command.ext_fields,
        "flag": command.flag,
        "language": _LANGUAGE_NAMES.get(command.language, "OTHER"),
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.remark is not None:
        fields["remark"] = command.remark
    try:
        return json_backend.dumps(fields)
    except (TypeError, ValueError):
        return encode_json(fields)


_TEMPLATE: Final = (
    '{"code":%d,"extFields":{%s},"flag":%d,"language":"%s","opaque":%d,'
    '"serializeTypeCurrentRPC":"JSON",%s"version":%d}'
)


# Without orjson a template with escaped texts is a third faster than the standard
# library's encoder.
def _encode_by_template(command: Command) -> bytes:
    fields = ",".join(
        [
            f"{encode_basestring(name)}:{encode_basestring(value)}"
            for name, value in command.ext_fields.items()
        ]
    )
    remark = "" if command.remark is None else f'"remark":{encode_basestring(command.remark)},'
    language = _LANGUAGE_NAMES.get(command.language, "OTHER")
    return encode_text(
        _TEMPLATE
        % (command.code, fields, command.flag, language, command.opaque, remark, command.version)
    )


def decode_json_header(text: bytes, body: bytes) -> Command:
    """A command out of its header text and its body.

    Raises `RemoteProtocolError` for a text that Apache refuses too.
    """
    try:
        header: Any = json_backend.loads(text)
        code, flag, opaque, version = (
            header["code"],
            header["flag"],
            header["opaque"],
            header["version"],
        )
        ext_fields = header["extFields"]
        # One test for four ranges: a negative or too long number makes the combination
        # negative or too long. Texts and floats raise TypeError, as does joining values
        # that are not all texts.
        if (
            0 <= code | flag | opaque | version <= _INT_MAX
            and type(code) is type(flag) is type(opaque) is type(version) is int
            and type(ext_fields) is dict
            and "body" not in header
        ):
            _join(ext_fields.values())
            command = _new(Command)
            command.language = _LANGUAGES[header["language"]]
            command.remark = remark = header.get("remark")
            if remark is None or type(remark) is str:
                command.code = code
                command.flag = flag
                command.opaque = opaque
                command.ext_fields = ext_fields
                command.body = body
                command.version = version
                command.encoding = _JSON
                return command
    except (KeyError, TypeError, ValueError):
        pass  # whatever this was, the careful path tells what it means
    return _decode_carefully(text, body)


def _decode_carefully(text: bytes, body: bytes) -> Command:
    header = decode_json(text, tolerated=TOLERATED_HEADER)
    if not isinstance(header, dict):
        raise RemoteProtocolError("the header of a frame is not a JSON object")
    if header.get("body") is not None:
        raise RemoteProtocolError("the header of a frame has a member named body")
    remark = header.get("remark")
    return Command(
        _number(header, "code"),
        flag=_number(header, "flag"),
        opaque=_number(header, "opaque"),
        remark=None if remark is None else text_of(remark),
        ext_fields=_ext_fields(header.get("extFields")),
        body=body,
        language=_language(header["language"]) if "language" in header else _JAVA,
        version=_number(header, "version"),
        encoding=_JSON,
    )


def _number(header: dict[object, object], name: str) -> int:
    value = header.get(name)
    if value is None:
        return 0
    if isinstance(value, str | int | float):
        try:
            number = int(value)
        except (ValueError, OverflowError):
            number = _INT_MAX + 1
        if _INT_MIN <= number <= _INT_MAX:
            return number
    raise RemoteProtocolError(
        f"{name} in the header of a frame is {str(value)[:40]!r}, not a 32-bit number"
    )


def _language(value: object) -> LanguageCode | None:
    if isinstance(value, int) and not isinstance(value, bool):
        if value not in _LANGUAGE_NAMES:
            raise RemoteProtocolError(
                f"the header of a frame names language {value}, which does not exist"
            )
        return LanguageCode(value)
    return _LANGUAGES.get(value) if isinstance(value, str) else None


def _ext_fields(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RemoteProtocolError("extFields in the header of a frame is not an object")
    return {text_of(name): text_of(item) for name, item in value.items() if item is not None}


def text_of(value: object) -> str:
    """The text that Apache makes of a JSON value where it wants a string."""
    if isinstance(value, str):
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int | float):
        return str(value)
    return encode_json(value).decode()
