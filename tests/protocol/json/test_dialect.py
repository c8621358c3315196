"""JSON in Apache's dialect: the tolerant reader, references, writers, configuration
files.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import ConfigurationError, RemoteProtocolError
from rocketmq_sdk.protocol.json import backend as json_backend
from rocketmq_sdk.protocol.json import reader as json_reader
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_json, encode_pretty
from rocketmq_sdk.protocol.json.reader import DEPTH_MAX, read_tolerantly
from support.paths import CODEC_VECTORS

QUEUE = (("brokerName", "b"), ("queueId", 3), ("topic", "T"))
ACCEPTED: list[tuple[str, Any]] = [
    ("{0:1,-1:2,4294967296:3}", {"0": 1, "-1": 2, "4294967296": 3}),
    ('{{"topic":"T","brokerName":"b","queueId":3}:5}', {QUEUE: 5}),
    (
        '{ {"brokerName":"b","queueId":3,"topic":"T"} : {"a":1} , {"brokerName":"c"}:2}',
        {QUEUE: {"a": 1}, (("brokerName", "c"),): 2},
    ),
    ('{"a":1,}', {"a": 1}),
    ("[1,2,]", [1, 2]),
    ("{'a':'b\"c'}", {"a": 'b"c'}),
    ('{"a":"x\ny\tz"}', {"a": "x\ny\tz"}),
    (r'{"a":"\u4e2d\uD83D\uDE00\ud800\"\\\/\b\f\n\r\t",}', {"a": '中😀?"\\/\b\f\n\r\t'}),
    ("{0:[true,false,null,-1.5e3,0]}", {"0": [True, False, None, -1500.0, 0]}),
    ("{0:{},1:[]}", {"0": {}, "1": []}),
    ('{"a":1,"a":2,}', {"a": 2}),
    (
        '{\n\t"offsetTable":{\n\t\t"T@g":{0:1,1:2\n\t\t}\n\t}\n}',
        {"offsetTable": {"T@g": {"0": 1, "1": 2}}},
    ),
]
REFUSED = [
    "",
    " ",
    "{",
    "}",
    "[1",
    "{a:1}",
    "{0:1}x",
    '{"a"}',
    '{"a":}',
    "{0 1}",
    "{0:1 1:2}",
    "[,]",
    "{,}",
    "'a",
    '"a',
    '"\\',
    '"\\x41"',
    '"\\u12"',
    "nul",
    "tru",
    "01",
    "+1",
    "1.",
    ".5",
    "NaN",
    "Infinity",
    "{[1]:2}",
    '{{"a":[1]}:2}',
    "9" * 5000,
    "﻿{}",
]


PARTS = [
    '{"a":1}',
    "{",
    "}",
    '"',
    "'",
    ":",
    ",",
    "NaN",
    "1e400",
    "-0",
    "01",
    " ",
    "\f",
    "\n",
    '"b"',
    "\\",
    "true",
    "[]",
    "é",
]


@given(st.lists(st.sampled_from(PARTS), max_size=12))
def test_flat_objects_are_read_the_same_with_and_without_the_standard_library(
    parts: list[str],
) -> None:
    text = "{" + "".join(parts) + "}"

    def outcome() -> object:
        try:
            return repr(read_tolerantly(text.encode()))
        except RemoteProtocolError as error:
            return str(error)

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_reader, "_FLAT", re.compile("(?!)"))
        assert outcome() == found


@pytest.mark.parametrize(("text", "value"), ACCEPTED)
def test_texts_of_the_dialect_are_read(text: str, value: object, json_mode: str) -> None:
    assert decode_json(text.encode()) == value


@pytest.mark.parametrize("text", REFUSED)
def test_broken_texts_are_refused(text: str, json_mode: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_json(text.encode())


def test_text_that_is_not_utf8_is_refused(json_mode: str) -> None:
    for data in (b'"\xff"', b'{0:"\xed\xa0\x80"}', b'"\xed\xa0\x80"'):
        with pytest.raises(RemoteProtocolError):
            decode_json(data)


@pytest.mark.parametrize("pair", [("[", "]"), ('{"a":', "}"), ("{0:", "}"), ("{", ":1}")])
def test_the_depth_is_bounded(pair: tuple[str, str], json_mode: str) -> None:
    opening, closing = pair
    with pytest.raises(RemoteProtocolError):
        decode_json((opening * 100_000 + "1" + closing * 100_000).encode())
    with pytest.raises(RemoteProtocolError):
        read_tolerantly(("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)).encode())
    assert read_tolerantly(("[" * DEPTH_MAX + "]" * DEPTH_MAX).encode()) is not None


def test_references_lead_to_what_they_name(json_mode: str) -> None:
    text = (
        '{"a":[{"x":1},{"$ref":"$.a[0]"}],"b":{"$ref":"$.a[0].x"},"c":{"d.e":[5]},'
        '"f":{"$ref":"$.c.d\\\\.e"}}'
    )
    assert decode_json(text.encode()) == {
        "a": [{"x": 1}, {"x": 1}],
        "b": 1,
        "c": {"d.e": [5]},
        "f": [5],
    }


def test_references_to_queues_are_by_their_java_text(json_mode: str) -> None:
    path = (
        "$.t.MessageQueue\\\\ \\\\[topic\\\\=T\\\\,\\\\ brokerName\\\\=b\\\\,\\\\ "
        "queueId\\\\=3\\\\]"
    )
    text = (
        '{"t":{{"brokerName":"b","queueId":3,"topic":"T"}:{"o":1},'
        '{"brokerName":"c"}:{"$ref":"PATH"}}}'
    ).replace("PATH", path)
    assert decode_json(text.encode()) == {"t": {QUEUE: {"o": 1}, (("brokerName", "c"),): {"o": 1}}}


@pytest.mark.parametrize("path", ["$.b", "$.a[7]", "..", "@", "$", "$.a", "$.a[0].x.y"])
def test_references_to_nowhere_or_themselves_are_refused(path: str, json_mode: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_json('{"a":[{"x":1},{"$ref":"PATH"}]}'.replace("PATH", path).encode())


def test_the_dialect_is_written_with_bare_integers_and_object_keys() -> None:
    assert encode_pretty({QUEUE: 1}) == '{\n\t{"brokerName":"b","queueId":3,"topic":"T"}:1\n}'
    value = {
        "t": {QUEUE: {0: "a", 1: []}, (("brokerName", "c\n"),): None},
        "s": [1.5, True, "主\x01"],
    }
    text = (
        '{"t":{{"brokerName":"b","queueId":3,"topic":"T"}:{0:"a",1:[]},'
        '{"brokerName":"c\\n"}:null},"s":[1.5,true,"主\\u0001"]}'
    )
    assert encode_json(value, object_keys=True).decode() == text


def test_strict_json_has_quoted_integers(json_mode: str) -> None:
    assert (
        encode_json({"a": {0: 1, -5: {}}, "é": "\ud800"})
        == '{"a":{"0":1,"-5":{}},"é":"?"}'.encode()
    )
    assert encode_json({"big": 1 << 70}) == b'{"big":1180591620717411303424}'


@pytest.mark.parametrize("value", [{"a": object()}, {b"k": 3}, {None: 1}])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_json(value, object_keys=True)
    with pytest.raises((TypeError, ValueError)):
        encode_pretty(value)


def test_numbers_that_are_not_finite_become_null(json_mode: str) -> None:
    value = {"a": [float("nan"), float("inf"), -float("inf"), 1.5]}
    for text in (encode_json(value), encode_json(value, object_keys=True)):
        assert text == b'{"a":[null,null,null,1.5]}'
    assert decode_json(encode_pretty(value).encode()) == {"a": [None, None, None, 1.5]}


def test_values_nested_too_deeply_are_refused(json_mode: str) -> None:
    value: object = 1
    for _ in range(5000):
        value = [value]
    for write in (encode_json, encode_pretty, lambda deep: encode_json(deep, object_keys=True)):
        with pytest.raises(ValueError, match="nested"):
            write(value)


def is_a_file(entry: dict[str, Any]) -> bool:
    # Object keys are in no file, a lone surrogate is not UTF-8, and fastjson keeps
    # short lists of numbers or texts on one line.
    pretty = entry.get("pretty", "{{[[")
    return (
        "{{" not in entry.get("json", "{{")
        and "\ud800" not in pretty
        and re.search(r"\[[^\n]", pretty) is None
    )


FILES = [
    entry
    for entry in json.loads((CODEC_VECTORS / "json_bodies.json").read_text())
    if is_a_file(entry)
]


def integer_keys(value: object) -> object:
    if isinstance(value, dict):
        return {
            int(name) if name.isdecimal() else name: integer_keys(item)
            for name, item in value.items()
        }
    return [integer_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("entry", FILES, ids=lambda entry: entry["name"])
def test_pretty_texts_are_those_of_apache_but_for_quotes_and_order(entry: dict[str, Any]) -> None:
    apache = entry["pretty"]
    written = encode_pretty(integer_keys(decode_json(apache.encode())))
    assert decode_json(written.encode()) == decode_json(apache.encode())
    quoted = re.sub(r"^(\t*)(\d+):", r'\1"\2":', apache, flags=re.MULTILINE)
    assert sorted(line.rstrip(",") for line in written.split("\n")) == sorted(
        line.rstrip(",") for line in quoted.split("\n")
    )


def test_most_recorded_texts_are_such_files() -> None:
    assert len(FILES) > 30


def test_the_layout_of_configuration_files() -> None:
    text = (
        '{\n\t"a":{\n\t\t"2":1,\n\t\t"10":2\n\t},\n\t"b":[\n\t\t"x",\n\t\t{\n\t\t\t\n\t\t}\n\t],'
        '\n\t"c":null\n}'
    )
    assert encode_pretty({"c": None, "b": ["x", {}], "a": {10: 2, 2: 1}}) == text


def test_texts_of_5_3_3_with_references_read_like_those_of_5_4(json_mode: str) -> None:
    old = {
        entry["name"]: entry
        for entry in json.loads(
            gzip.decompress((CODEC_VECTORS / "5.3.3" / "json_bodies.json.gz").read_bytes())
        )
    }
    referring = 0
    for entry in json.loads((CODEC_VECTORS / "json_bodies.json").read_text()):
        before = old.get(entry["name"], {})
        if '"$ref"' in before.get("json", ""):
            referring += 1
            assert decode_json(before["json"].encode()) == decode_json(entry["json"].encode())
            assert decode_json(before["pretty"].encode()) == decode_json(entry["json"].encode())
    assert referring >= 3


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=15,
)


@settings(deadline=None, max_examples=150)
@given(json_values)
def test_all_writers_and_readers_agree(value: object) -> None:
    for mode in json_backend.INSTALLED:
        with json_backend.forced(mode):
            for text in (
                encode_json(value),
                encode_json(value, object_keys=True),
                encode_pretty(value).encode("utf-8", "replace"),
            ):
                if b'"$ref"' not in text:
                    assert json_backend.loads(text) == value
                    assert read_tolerantly(text) == value


def test_the_implementation_can_be_forced() -> None:
    before = json_backend.mode
    with json_backend.forced("stdlib"):
        assert json_backend.mode == "stdlib"
    assert json_backend.mode == before
    with pytest.raises(ConfigurationError, match="ROCKETMQ_SDK_JSON"):
        json_backend.select("simplejson")
    assert json_backend.mode == before


def test_a_long_text_that_is_not_strict_is_refused_for_a_peer() -> None:
    text = b"{'a':[" + b"1," * 100_000 + b"1]}"
    with pytest.raises(RemoteProtocolError, match="not strict JSON"):
        decode_json(text, tolerated=64 * 1024)
    assert decode_json(text, tolerated=1024 * 1024) == {"a": [1] * 100_001}
    assert decode_json(text.replace(b"'", b'"'), tolerated=10) == {"a": [1] * 100_001}
