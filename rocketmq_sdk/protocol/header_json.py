"""JSON headers of frames (`RemotingSerializable` over `RemotingCommand`).

Reading follows what Apache RocketMQ 5.4.0 accepts: numbers in quotes, booleans as numbers, missing members, and anything but an array for an ext
field value. The straight path is for headers as all known peers write them; whatever differs goes through the careful one.
"""

from typing import Final

from rocketmq_sdk.codes import LanguageCode
from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol import json_backend
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.json_dialect import decode_json, encode_json

_JSON = HeaderEncoding.JSON
_JAVA = LanguageCode.JAVA
_LANGUAGES: Final[dict[object, LanguageCode]] = {language.name: language for language in LanguageCode}
_LANGUAGE_NAMES: Final[dict[LanguageCode | None, str]] = {language: language.name for language in LanguageCode}
_INT_MIN, _INT_MAX = -0x80000000, 0x7FFFFFFF


def encode_json_header(command: Command) -> bytes:
    """The header text of a command: compact UTF-8, ext field values always strings; a lone surrogate becomes `?` as Apache writes it."""
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


def decode_json_header(text: bytes, body: bytes) -> Command:
    """A command out of its header text and its body.

    Raises `RemoteProtocolError` for a text that Apache refuses too.
    """
    try:
        header = json_backend.loads(text)
        code, flag, opaque, version = header["code"], header["flag"], header["opaque"], header["version"]  # type: ignore[index]
        ext_fields = header["extFields"]  # type: ignore[index]
        # One test for four ranges: a negative or too long number makes the combination negative or too long. Texts and floats raise TypeError.
        if (
            code | flag | opaque | version <= _INT_MAX
            and type(code) is type(flag) is type(opaque) is type(version) is int
            and type(ext_fields) is dict
            and "body" not in header  # type: ignore[operator]
        ):
            language = _LANGUAGES.get(header["language"])  # type: ignore[index]
            remark = header.get("remark")  # type: ignore[attr-defined]
            "".join(ext_fields.values())  # raises TypeError when a value is not a text
            if language is not None and (remark is None or type(remark) is str) and -1 < code | flag | opaque | version:
                return Command(
                    code, flag=flag, opaque=opaque, remark=remark, ext_fields=ext_fields, body=body, language=language, version=version, encoding=_JSON
                )
    except (KeyError, TypeError, ValueError):
        pass
    return _decode_carefully(text, body)


def _decode_carefully(text: bytes, body: bytes) -> Command:
    header = decode_json(text)
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
    raise RemoteProtocolError(f"{name} in the header of a frame is {str(value)[:40]!r}, not a 32-bit number")


def _language(value: object) -> LanguageCode | None:
    if isinstance(value, int) and not isinstance(value, bool):
        if value not in _LANGUAGE_NAMES:
            raise RemoteProtocolError(f"the header of a frame names language {value}, which does not exist")
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
