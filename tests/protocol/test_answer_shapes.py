"""Answers that are cut say what they would say if they were decoded."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.answer_shapes import CutAnswer
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.protocol.frame_template import frame_of


def stored(number: int, **more: Any) -> Command:
    fields = {"msgId": f"7F{number:030X}", "queueId": str(number % 4), "queueOffset": str(number)}
    command = Command.response(0)
    command.opaque = number
    command.ext_fields = {**fields, "MSG_REGION": "r", "transactionId": f"{number:X}"}
    for name, value in more.items():
        setattr(command, name, value)
    return command


TEXTS = st.sampled_from(
    ["", "7", "007", "-1", "9" * 30, 'a"b', "a\\b", "\x7f", "\n", "é", "\ud800", '","opaque":5']
)
ODD_HEADERS = st.sampled_from(
    [
        b'{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":1,"version":1}',
        b'{"extFields":{"a":"1"},"opaque":2,"flag":1,"code":0,"version":1,"language":"JAVA"}',
        b'{"code":0,"code":1,"extFields":{"a":"1"},"flag":1,"language":"JAVA","opaque":3,"version":1}',
        b'{"code":0,"extFields":{"a":"1"},"flag":1,"language":"JAVA","opaque":03,"version":1}',
        b'{"code":0,"extFields":{"a":1},"flag":1,"language":"JAVA","opaque":4,"remark":"r","version":1}',
        b'{"code":0,"extFields":{"a":"1","opaque":"5"},"flag":1,"language":"X","opaque":5,"version":1}',
        b"{code:0,extFields:{a:'1'},flag:1,opaque:6}",
    ]
)
COMMANDS = st.builds(
    stored,
    st.one_of(st.integers(0, 50), st.integers(-(2**31), 2**31 - 1), st.just(999_999_999)).map(abs),
) | st.builds(
    stored,
    st.integers(0, 50),
    code=st.sampled_from([0, 0, 10, 11]),
    flag=st.sampled_from([0, 1, 1, 2, 3]),
    opaque=st.integers(-3, 3),
    remark=st.sampled_from([None, None, "", "why"]),
    body=st.sampled_from([b"", b"", b"body"]),
    ext_fields=st.dictionaries(st.sampled_from(["msgId", "queueId", "opaque", "é", '"']), TEXTS),
)
FRAMES = COMMANDS.map(encode_frame) | ODD_HEADERS.map(frame_of)


@settings(max_examples=300)
@given(st.lists(FRAMES, max_size=30), st.lists(st.integers(0, 9), max_size=30), st.data())
def test_cut_answers_are_as_decoded(
    frames: list[bytes], again: list[int], data: st.DataObject
) -> None:
    frames = [frame for frame, times in zip(frames, again, strict=False) for _ in range(times)]
    stream = b"".join(frames)
    at = data.draw(st.integers(0, len(stream)))
    cutting, plain = Connection(), Connection()
    cutting.expect_alike()
    for chunk in (stream[:at], stream[at:]):
        if chunk:
            assert told(cutting, chunk) == told(plain, chunk)


def told(connection: Connection, chunk: bytes) -> list[Command] | str:
    try:
        return connection.receive_commands(chunk)
    except RemoteProtocolError as error:
        return str(error)


def test_answers_of_one_kind_are_cut_from_the_third_on() -> None:
    connection = Connection()
    connection.expect_alike()
    chunk = b"".join(encode_frame(stored(7 * number)) for number in range(100))
    answers = connection.receive_commands(chunk)
    assert sum(type(answer) is CutAnswer for answer in answers) >= 95
    last = answers[-1]
    assert isinstance(last, CutAnswer)
    values = zip(last.shape.names, last.texts + last.shape.constants, strict=True)
    assert {name: value.decode() for name, value in values if name} == last.ext_fields
    assert (last.opaque, last.language) == (693, stored(1).language)


def test_answers_that_never_stay_the_same_are_decoded() -> None:
    connection = Connection()
    connection.expect_alike()
    for number in range(100):
        command = stored(number, ext_fields={f"field{number % 7}": "1"}, version=number)
        [answer] = connection.receive_commands(encode_frame(command))
        assert answer == command
    assert "language" in json.loads(encode_frame(command)[8:])
