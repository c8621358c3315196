"""Answers that are cut say what they would say if they were decoded."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import FieldError, RemoteProtocolError
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.producer.outcome import CutResults, send_result
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.protocol.frame_template import frame_of
from rocketmq_sdk.protocol.shapes.answers import CutAnswer
from support.compiled import fields_of

if TYPE_CHECKING:
    from collections.abc import Iterable


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


FIELDS = ("msgId", "queueId", "queueOffset", "transactionId", "MSG_REGION", "TRACE_ON", "opaque")
SEND = SimpleNamespace(code=310, message_id="the id", _id="the id")
TARGET = SimpleNamespace(
    queue=MessageQueue("t", "b", 0), queue_id_text="0", broker_name="b", address="b:1"
)


class Writer:
    """Writes headers that are nearly alike, as nobody writes them: members twice, in
    another order, with blanks, in other objects.
    """

    def __init__(self, odd: list[int]) -> None:
        self.odd = odd

    def header(self, opaque: int, values: list[str]) -> bytes:
        code, twice, place, blank, end = self.odd
        fields = [f'"{name}":"{value}"' for name, value in zip(FIELDS, values, strict=False)]
        if twice == 1:
            fields.insert(place % len(fields), fields[-1])
        elif twice == 2:
            fields.append(fields[place % len(fields)].replace(":", " :" if blank else ":"))
        members = [
            f'"extFields":{{{",".join(fields)}}}',
            '"flag":1',
            '"language":"JAVA"',
            f'"opaque":{opaque}',
            '"version":1',
            f'"code":{code}',
        ]
        if twice == 3:
            members.insert(place % len(members), f'"opaque":{opaque}' if blank else '"opaque":7')
        elif twice == 4:
            members.append(f'"opaque" :{opaque}' if blank else '"opaque" :7')
        elif twice == 5:
            members.insert(place % len(members), members[0] if blank else '"extFields":{}')
        elif twice == 6:
            members.append(f'"more":{{"opaque":{opaque},"msgId":"{values[0]}"}}')
        members = members[place:] + members[:place]
        return ("{" + ",".join(members) + "}" + " " * end).encode()


ODD = st.tuples(
    st.sampled_from([0, 0, 0, 0, 1]),
    st.integers(0, 6),
    st.integers(0, 6),
    st.booleans(),
    st.sampled_from([0, 0, 1]),
).map(list)
VALUES = st.lists(
    st.sampled_from(["0", "1", "01", "7F01", "", "r", "true", "false", "9" * 19, "JAVA"]),
    min_size=3,
    max_size=7,
)


def told_of(result: SendResult) -> list[object]:
    return [getattr(result, name) for name in fields_of(SendResult)]


def outcome_of(answer: Command, results: CutResults | None) -> object:
    """What a message ends with, by the short way or by the long one."""
    handle: Any = SEND
    if results is not None and type(answer) is CutAnswer:
        found = results.of(handle, TARGET, answer)  # type: ignore[arg-type]
        if found is not None:
            return told_of(found)
    if answer.code:
        return answer.code
    try:
        return told_of(send_result(handle, TARGET, answer, SendStatus.SEND_OK))  # type: ignore[arg-type]
    except (FieldError, ValueError) as error:
        return str(error)


@settings(max_examples=200)
@given(
    st.lists(ODD, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), VALUES), max_size=20),
    st.lists(st.sampled_from(["0", "1"]), min_size=7, max_size=7),
)
def test_what_nearly_has_the_shape_ends_messages_as_if_it_was_decoded(
    oddities: list[list[int]], answers: list[tuple[int, int, list[str]]], alike: list[str]
) -> None:
    cutting, plain, results = Connection(), Connection(), CutResults()
    cutting.expect_alike()
    for which, opaque, values in answers:
        writer = Writer(oddities[which % len(oddities)])
        for number in range(3):
            some = [*values[:number], *alike[number:]][: len(values)]
            frame = frame_of(writer.header(opaque + number, some))
            cut, whole = told(cutting, frame), told(plain, frame)
            if isinstance(cut, str) or isinstance(whole, str):
                assert cut == whole
                return
            assert [each.opaque for each in cut] == [each.opaque for each in whole]
            assert [outcome_of(each, results) for each in cut] == [
                outcome_of(each, None) for each in whole
            ]


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


def test_answers_of_two_kinds_in_turn_are_cut() -> None:
    """As those of transactions: to half messages, and to the words behind them."""
    connection, plain = Connection(), Connection()
    connection.expect_alike()
    cut = 0
    for number in range(100):
        other = Command.response(0)
        other.opaque = 1000 + number
        for command in (stored(7 * number), other, other if number % 3 else stored(number)):
            frame = encode_frame(command)
            (answer,), (whole,) = connection.receive_commands(frame), plain.receive_commands(frame)
            cut += type(answer) is CutAnswer
            assert (answer.code, answer.opaque, answer.ext_fields, answer.language) == (
                *(whole.code, whole.opaque, whole.ext_fields, whole.language),
            )
    assert cut >= 280


def test_answers_of_three_kinds_in_turn_are_as_if_they_were_decoded() -> None:
    connection = Connection()
    connection.expect_alike()
    kinds = []
    for number in range(400):
        for fields in ({}, {"a": str(number)}, {"b": str(number)}):
            command = Command.response(0)
            command.opaque, command.ext_fields = number, fields
            (answer,) = connection.receive_commands(encode_frame(command))
            kinds.append(type(answer))
            assert (answer.opaque, answer.ext_fields) == (number, fields)
    assert kinds.count(CutAnswer) >= 500
    shapes = connection._shapes
    assert shapes is not None
    assert sum(kind.shape is not None for kind in shapes._kinds.values()) == 2


def cut_of(connection: Connection, answers: Iterable[Command]) -> int:
    """How many of the answers, which come one by one, are cut."""
    found = [connection.receive_commands(encode_frame(answer))[0] for answer in answers]
    return sum(type(answer) is CutAnswer for answer in found)


def test_rare_answers_do_not_take_the_place_of_frequent_ones() -> None:
    """As those to heartbeats and commits of offsets between those to messages."""
    connection = Connection()
    connection.expect_alike()
    cut = 0
    for number in range(300):
        for fields in ({}, {"a": "1"}, {"b": str(number)}):
            rare = Command.response(0)
            rare.ext_fields = fields
            cut_of(connection, [rare])
        cut += cut_of(connection, (stored(number + n) for n in range(5)))
    assert cut >= 1200


def test_answers_that_changed_often_are_cut_again_after_a_while() -> None:
    connection = Connection()
    connection.expect_alike()
    for number in range(60):
        assert cut_of(connection, [stored(number, version=number)] * 2) <= 1
    assert not cut_of(connection, (stored(number) for number in range(900)))
    assert cut_of(connection, (stored(number) for number in range(1000))) >= 800


def other(number: int, name: str, **more: Any) -> Command:
    """An answer of a kind that has its name."""
    answer = Command.response(0)
    answer.opaque, answer.ext_fields = number, {name: str(number), **more}
    return answer


def test_of_many_kinds_only_few_are_remembered() -> None:
    """Those that are cut among them, whatever else comes."""
    connection = Connection()
    connection.expect_alike()
    cut_of(connection, (other(number, "ab"[number % 2]) for number in range(10)))
    cut_of(connection, (other(number, f"n{number}") for number in range(1000)))
    shapes = connection._shapes
    assert shapes is not None
    assert len(shapes._kinds) == 4
    assert {"a", "b"} <= set().union(*shapes._kinds)
    # They need no time to be cut again after a change.
    assert cut_of(connection, (other(number, "a", b="") for number in range(4))) == 0
    assert cut_of(connection, (other(number, "a") for number in range(10))) == 10


def test_a_kind_that_becomes_frequent_takes_the_place_of_another() -> None:
    """Only once it came many times; of the one that did not come last."""
    connection = Connection()
    connection.expect_alike()
    cut_of(connection, (other(number, "ab"[number % 2]) for number in range(10)))
    assert not cut_of(connection, (other(number, "c") for number in range(16)))
    assert cut_of(connection, (other(number, "b") for number in range(10))) == 10
    assert not cut_of(connection, (other(number, "c") for number in range(1)))
    assert cut_of(connection, (other(number, "c") for number in range(20))) == 20
    assert cut_of(connection, (other(number, "b") for number in range(10))) == 10
    assert not cut_of(connection, (other(number, "a") for number in range(10)))


def test_what_differed_once_may_always_differ() -> None:
    connection = Connection()
    connection.expect_alike()
    answers = [other(1, "a", b=b) for b in "xy"] + [other(n, "a", b="y") for n in range(50)]
    assert cut_of(connection, answers) >= 48
    assert cut_of(connection, (other(1, "a", b=b) for b in "pqrs")) == 4


def test_whoever_gets_an_answer_may_change_it() -> None:
    connection = Connection()
    connection.expect_alike()
    for number in range(10):
        (answer,) = connection.receive_commands(encode_frame(other(number, "a", b="1")))
        assert answer.ext_fields == {"a": str(number), "b": "1"}
        if type(answer) is not CutAnswer:
            answer.ext_fields.pop("a")
