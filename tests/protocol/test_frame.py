"""Frames in both header encodings, against frames that Apache RocketMQ wrote and
read.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from rocketmq_sdk.codes import CLIENT_VERSION, LanguageCode, RequestCode
from rocketmq_sdk.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.frame import DEFAULT_MAX_FRAME, decode_frame, encode_frame
from support.paths import CODEC_VECTORS


def load(name: str) -> list[dict[str, Any]]:
    path = CODEC_VECTORS / name
    data = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    entries: list[dict[str, Any]] = json.loads(data)
    return entries


ENCODED = load("remoting_encode.json.gz")
READABLE = [entry for entry in ENCODED if "error" not in entry["decoded"]]
RECEIVED = load("remoting_decode.json")


def label(entry: dict[str, Any]) -> str:
    name = entry.get("name") or entry.get("header_text", "")[:40]
    return f"{name!r}-{entry.get('serialize', entry.get('kind'))}"


def assert_as_recorded(command: Command, decoded: dict[str, Any], *, opaque: bool = True) -> None:
    assert command.code == decoded["code"]
    assert (None if command.language is None else command.language.name) == decoded["language"]
    assert command.version == decoded["version"]
    assert command.flag == decoded["flag"]
    assert command.remark == decoded["remark"]
    assert command.ext_fields == {
        name: value for name, value in (decoded["extFields"] or {}).items() if value is not None
    }
    assert command.body == bytes.fromhex(decoded["body"] or "")
    assert command.encoding.name == decoded["serializeType"]
    assert command.is_response == decoded["response"]
    assert command.is_oneway == decoded["oneway"]
    if opaque:
        assert command.opaque == decoded["opaque"]


@pytest.mark.parametrize("entry", READABLE, ids=label)
def test_recorded_frames_are_decoded_as_apache_does(entry: dict[str, Any], json_mode: str) -> None:
    assert_as_recorded(decode_frame(bytes.fromhex(entry["frame"])[4:]), entry["decoded"])


@pytest.mark.parametrize("entry", READABLE, ids=label)
def test_recorded_frames_are_encoded_to_equal_commands(
    entry: dict[str, Any], json_mode: str
) -> None:
    command = decode_frame(bytes.fromhex(entry["frame"])[4:])
    frame = encode_frame(command)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_frame(frame[4:]) == command


@pytest.mark.parametrize(
    "entry", [entry for entry in ENCODED if "error" in entry["decoded"]], ids=label
)
def test_frames_that_apache_cannot_read_back_are_refused(
    entry: dict[str, Any], json_mode: str
) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_frame(bytes.fromhex(entry["frame"])[4:])


def test_the_same_binary_bytes_as_apache_when_the_order_of_fields_leaves_no_choice() -> None:
    few = [
        entry
        for entry in READABLE
        if entry["serialize"] == "ROCKETMQ" and len(entry["decoded"]["extFields"] or {}) <= 1
    ]
    for entry in few:
        frame = bytes.fromhex(entry["frame"])
        command = decode_frame(frame[4:])
        if None not in (entry["decoded"]["extFields"] or {}).values():
            assert encode_frame(command) == frame, entry["name"]
    assert len(few) > 20


@pytest.mark.parametrize("entry", RECEIVED, ids=label)
def test_lenient_and_broken_frames_are_judged_as_apache_does(
    entry: dict[str, Any], json_mode: str
) -> None:
    frame = bytes.fromhex(entry["frame"])
    if "error" in entry["decoded"]:
        with pytest.raises(RemoteProtocolError):
            decode_frame(frame[4:])
    else:
        known = (
            entry["kind"] != "json"
            or '"opaque"' in entry["header_text"]
            or "'opaque'" in entry["header_text"]
        )
        assert_as_recorded(decode_frame(frame[4:]), entry["decoded"], opaque=known)


def test_releases_up_to_5_3_differ_only_in_what_they_take_beyond_5_4() -> None:
    taken_before = 0
    for old, new in zip(load("5.3.3/remoting_decode.json"), RECEIVED, strict=True):
        assert old["frame"] == new["frame"]
        if "error" not in old["decoded"] and "error" in new["decoded"]:
            taken_before += 1
        elif "error" not in old["decoded"] and '"Code"' not in old.get("header_text", ""):
            known = '"opaque"' in old.get("header_text", '"opaque"') or "'opaque'" in old.get(
                "header_text", ""
            )
            assert_as_recorded(
                decode_frame(bytes.fromhex(old["frame"])[4:]), old["decoded"], opaque=known
            )
    assert taken_before == 3  # names without quotes, a member named body, a byte order mark


def test_the_frames_of_the_specification(json_mode: str) -> None:
    command = Command(
        105, opaque=7, version=0, language=LanguageCode.JAVA, ext_fields={"topic": "T"}
    )
    frame = encode_frame(command)
    assert frame[:8] == bytes.fromhex("0000007D00000079")
    assert json.loads(frame[8:]) == {
        "code": 105,
        "extFields": {"topic": "T"},
        "flag": 0,
        "language": "JAVA",
        "opaque": 7,
        "serializeTypeCurrentRPC": "JSON",
        "version": 0,
    }
    command.encoding = HeaderEncoding.ROCKETMQ
    assert (
        encode_frame(command).hex()
        == "000000250100002100690000000000000700000000000000000000000c0005746f7069630000000154"
    )


def test_json_headers_are_compact_and_always_have_ext_fields(json_mode: str) -> None:
    frame = encode_frame(Command(34))
    header = json.loads(frame[8:])
    assert header["extFields"] == {}
    assert header["language"] == "PYTHON"
    assert header["version"] == CLIENT_VERSION
    assert "remark" not in header
    assert b" " not in frame[8:]


def test_text_travels_as_raw_utf8_and_lone_surrogates_become_question_marks(json_mode: str) -> None:
    fields = {
        "k": '主题-é😀\x01\x02"\\\n',
        "lone": "a\ud800b",
        "pair": "\ud83d\ude00",
        "k\udc00": "v",
    }
    for encoding in HeaderEncoding:
        frame = encode_frame(Command(10, remark="x\udfff", ext_fields=fields, encoding=encoding))
        assert "主题-é😀".encode() in frame
        command = decode_frame(frame[4:])
        assert command.ext_fields == {"k": fields["k"], "lone": "a?b", "pair": "😀", "k?": "v"}
        assert command.remark == "x?"


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, 32768, -32769])
def test_codes_beyond_16_bits_fall_back_to_a_json_header(code: int) -> None:
    frame = encode_frame(Command(code, encoding=HeaderEncoding.ROCKETMQ))
    assert frame[4] == HeaderEncoding.JSON
    assert decode_frame(frame[4:]).code == code


@pytest.mark.parametrize("code", [32767, -32768, -1006, 0])
def test_codes_of_16_bits_stay_binary(code: int) -> None:
    frame = encode_frame(Command(code, encoding=HeaderEncoding.ROCKETMQ))
    assert frame[4] == HeaderEncoding.ROCKETMQ
    assert decode_frame(frame[4:]).code == code


def test_empty_values_are_lost_in_binary_headers_and_kept_in_json_ones() -> None:
    fields = {"empty": "", "full": "x"}
    assert decode_frame(encode_frame(Command(1, ext_fields=fields))[4:]).ext_fields == fields
    assert decode_frame(
        encode_frame(Command(1, ext_fields=fields, encoding=HeaderEncoding.ROCKETMQ))[4:]
    ).ext_fields == {"full": "x"}


def test_frames_up_to_the_limit_are_written_and_no_longer_ones() -> None:
    room = DEFAULT_MAX_FRAME - len(encode_frame(Command(10)))
    assert len(encode_frame(Command(10, body=bytes(room)))) == DEFAULT_MAX_FRAME
    with pytest.raises(LocalProtocolError, match="limit is 16777216"):
        encode_frame(Command(10, body=bytes(room + 1)))


def test_numbers_that_do_not_fit_a_binary_header_are_refused() -> None:
    for broken in (
        {"opaque": 1 << 31},
        {"flag": 1 << 31},
        {"version": 40000},
        {"ext_fields": {"k" * 32768: "v"}},
    ):
        with pytest.raises(LocalProtocolError):
            encode_frame(Command(1, encoding=HeaderEncoding.ROCKETMQ, **broken))


def test_an_unknown_language_is_written_as_other() -> None:
    for encoding in HeaderEncoding:
        frame = encode_frame(Command(1, language=None, encoding=encoding))
        assert decode_frame(frame[4:]).language is LanguageCode.OTHER


def test_memoryviews_are_taken() -> None:
    frame = encode_frame(Command(10, ext_fields={"a": "b"}, body=b"body"))
    command = decode_frame(memoryview(frame)[4:])
    assert command.body == b"body"
    assert type(command.body) is bytes
