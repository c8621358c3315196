"""Requests that are cut say what they would say if they were decoded."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import MANY, Connection
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, FLAG_RESPONSE, HeaderEncoding
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.protocol.frame_template import frame_of
from rocketmq_sdk.protocol.header_json import TOLERATED_HEADER
from rocketmq_sdk.protocol.shapes import headers
from rocketmq_sdk.protocol.shapes.headers import without_escapes
from rocketmq_sdk.protocol.shapes.sends import CutSend

if TYPE_CHECKING:
    from collections.abc import Iterable

UNIQUE = "7F0000010D2A2C8D3E0F5A7B0000{:04X}"
JAVA = (
    '{"code":310,"extFields":{"a":"PG","b":"%s","c":"TBW102","d":"4","e":"%s","f":"0","g":"%s",'
    '"h":"0","i":"%s","j":"0","k":"false","l":"0","m":"false","n":"broker-a"},"flag":0,'
    '"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":493}'
)
GO = (
    '{"code":310,"language":"GO","version":431,"opaque":%d,"flag":0,"remark":"","extFields":'
    '{"a":"PG","b":"%s","c":"TBW102","d":"4","e":"%s","f":"0","g":"%s","h":"0","i":"%s",'
    '"j":"0","k":"false","l":"0","m":"false"}}'
)


def sent(number: int, **more: Any) -> Command:
    command = Command(310, opaque=number, body=b"body %d" % number)
    command.ext_fields = {
        "a": "PG",
        "b": "topic",
        "e": str(number % 4),
        "f": "0",
        "g": str(1_700_000_000_000 + number),
        "h": "0",
        "i": f"KEYS\x01order{number}\x02UNIQ_KEY\x01{UNIQUE.format(number)}\x02WAIT\x01true\x02",
        "j": "0",
        "m": "false",
    }
    for name, value in more.items():
        setattr(command, name, value)
    return command


def alone(frames: list[bytes], **options: Any) -> list[Command] | str:
    """What they are as each is decoded; or what is wrong with one of them."""
    connection = Connection(**options)
    try:
        return [command for frame in frames for command in connection.receive_commands(frame)]
    except RemoteProtocolError as error:
        return str(error)


def together(connection: Connection, chunk: bytes) -> list[Command] | str:
    """What the commands of a chunk are, or what is wrong behind them."""
    try:
        commands = connection.receive_commands(chunk)
    except RemoteProtocolError as error:
        return str(error)
    return commands if connection.error is None else str(connection.error)


def expecting() -> Connection:
    """One by which many have come together."""
    connection = Connection()
    connection.receive_commands(b"".join(encode_frame(sent(number)) for number in range(MANY)))
    return connection


TEXTS = st.sampled_from(
    ["", "7", "007", "-1", "9" * 30, 'a"b', "a\\b", "\x7f", "\n", "é", "\ud800", '","opaque":5']
)
MARKED_TEXTS = st.sampled_from(
    ["UNIQ_KEY\x01A\x02", "\x01\x02", "\x03", "\\u0001", "a\x01b\x02" * 9]
)
ODD_HEADERS = st.sampled_from(
    [
        JAVA % ("t", "1", "5", "UNIQ_KEY\\u0001A\\u0002", 5),
        JAVA % ("t", "1", "5", "UNIQ_KEY\\u0001A\\u0002", -5),
        JAVA % ("t", "1", "5", "UNIQ_KEY\\u0001A\\u0002", 2**31 - 1),
        JAVA % ("t", "1", "5", "UNIQ_KEY\\u0001A\\u0002", 2**31),
        JAVA % ("t", "1", "5", "UNIQ_KEY\\u0001A\\u0003", 5),
        JAVA % ("t", "1", "5", "UNIQ_KEY\\u0001A\\", 5),
        JAVA % ("t", "1", "5", "UNIQ_KEY\x01A", 5),
        JAVA % ("t", '1","b":"other', "5", "", 5),
        JAVA % ("t", "1", "5", "é", 5),
        (JAVA % ("t", "1", "5", "", 5)).replace('"5"', "5"),
        (JAVA % ("t", "1", "5", "", 5)).replace('"flag":0', '"flag":0,"opaque":7'),
        (JAVA % ("t", "1", "5", "", 5)).replace('"flag":0', '"flag":0,"extFields":{}'),
        GO % (5, "t", "1", "5", "UNIQ_KEY\\u0001A\\u0002"),
        "{code:310,extFields:{b:'t',e:'1',g:'2',i:'3'},flag:0,opaque:6}",
        '{"code":310,"extFields":null,"flag":0,"language":"JAVA","opaque":1,"version":1}',
    ]
).map(str.encode)
NUMBERS = st.integers(0, 50) | st.just(999_999_999) | st.integers(0, 2**31 - 1)
COMMANDS = st.builds(sent, NUMBERS) | st.builds(
    sent,
    st.integers(0, 50),
    code=st.sampled_from([310, 310, 10, 320, 0]),
    flag=st.sampled_from([0, 0, FLAG_ONEWAY, FLAG_RESPONSE, FLAG_RESPONSE | FLAG_ONEWAY]),
    opaque=st.integers(-3, 3),
    remark=st.sampled_from([None, None, "", "why"]),
    encoding=st.sampled_from([*HeaderEncoding, HeaderEncoding.JSON]),
    body=st.sampled_from([b"", b"body", bytes(3000)]),
    ext_fields=st.dictionaries(st.sampled_from([*"begi", "opaque", "é"]), TEXTS | MARKED_TEXTS),
)
FRAMES = COMMANDS.map(encode_frame) | ODD_HEADERS.map(frame_of)


@settings(max_examples=300)
@given(st.lists(FRAMES, max_size=30), st.lists(st.integers(0, 9), max_size=30), st.data())
def test_cut_requests_are_as_decoded(
    frames: list[bytes], again: list[int], data: st.DataObject
) -> None:
    frames = [frame for frame, times in zip(frames, again, strict=False) for _ in range(times)]
    stream = b"".join(frames)
    at = data.draw(st.integers(0, len(stream)))
    connection = expecting()
    found: list[Command] = []
    for chunk in (stream[:at], stream[at:]):
        if chunk:
            commands = together(connection, chunk)
            if isinstance(commands, str):
                assert commands == alone(frames)
                return
            found += commands
    assert found == alone(frames)


class Writer:
    """Writes headers that are nearly alike, as nobody writes them: members twice, in
    another order, with blanks, in other objects.
    """

    def __init__(self, odd: list[int]) -> None:
        self.odd = odd

    def header(self, opaque: int, values: list[str]) -> bytes:
        twice, which, place, blank = self.odd
        fields = [f'"{name}":"{value}"' for name, value in zip("begia", values, strict=True)]
        more = fields[which % len(fields)].replace(":", " :" if blank else ":")
        if twice == 1:
            fields.insert(place % len(fields), more)
        elif twice == 2:
            fields.append(more)
        members = [
            f'"extFields":{{{",".join(fields)}}}',
            '"flag":0',
            '"language":"JAVA"',
            f'"opaque":{opaque}',
            '"version":1',
            '"code":310',
        ]
        if twice == 3:
            members.insert(place % len(members), f'"opaque":{opaque}' if blank else '"opaque":7')
        elif twice == 4:
            members.append(f'"opaque" :{opaque}' if blank else '"code" :7')
        elif twice == 5:
            members.insert(place % len(members), members[0] if blank else '"extFields":{}')
        elif twice == 6:
            members.append(f'"more":{{"opaque":{opaque},{more}}}')
        elif twice == 7:
            members.append(f'"remark":"{more.replace(chr(34), chr(39))}"')
        members = members[place:] + members[:place]
        return ("{" + ",".join(members) + "}").encode()


ODD = st.tuples(
    st.integers(0, 7), st.integers(0, 4), st.integers(0, 5), st.sampled_from([False, True])
).map(list)
VALUES = st.lists(
    st.sampled_from(["0", "1", "01", "", "r", "9" * 19, "UNIQ_KEY\\u0001A\\u0002", "0\\u0001"]),
    min_size=5,
    max_size=5,
)


@settings(max_examples=300)
@given(
    st.lists(ODD, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), VALUES), max_size=20),
)
def test_what_nearly_has_a_shape_says_what_it_says_decoded(
    oddities: list[list[int]], requests: list[tuple[int, int, list[str]]]
) -> None:
    frames = [
        frame_of(Writer(oddities[which % len(oddities)]).header(opaque, values), b"body")
        for which, opaque, values in requests
    ]
    assert together(expecting(), b"".join(frames)) == alone(frames)


JSON_TEXTS = [
    *("", "7", "a b", "topic", "!#[]~", '\\"', "\\\\", "\\/", "\\n", "\\u0041", "\\U0001", "\\"),
    *("\\u0001", "\\u0002", "\\u0003", "\\u000", "\\\\u0001", "\x01", "\x1f", "\x7f", "é", '"'),
]
OPAQUES = [
    "0",
    "00",
    "07",
    "-5",
    " 5",
    "5.0",
    "5e1",
    '"5"',
    "999999999",
    "1000000000",
    "2147483648",
]


@pytest.mark.parametrize(
    "more", ["", ',"opaque" :9', ',"code" :10', ',"flag" :1', ',"extFields" :{"i":"x"}']
)
def test_whatever_stands_where_a_header_may_differ(more: str) -> None:
    form = JAVA.replace("%d", "%s").replace(',"version":493', f'{more},"version":493')
    usual = ("t", "1", "5", "UNIQ_KEY\\u0001A\\u0002", "9")
    odd = [
        (*usual[:place], text, *usual[place + 1 :])
        for place in range(len(usual))
        for text in (OPAQUES if place == 4 else JSON_TEXTS)
    ]
    for values in odd:
        frames = [frame_of((form % texts).encode(), b"body") for texts in (usual, usual, values)]
        found = together(expecting(), b"".join(frames))
        assert found == alone(frames)
        for send in found:
            if isinstance(send, CutSend):
                cut = map(without_escapes, send.form.values(send.texts))
                assert [value.decode() for value in cut] == [
                    send.ext_fields[name] for name in "begi"
                ]


def test_a_header_that_reaches_into_the_next_frame_is_refused() -> None:
    frame = encode_frame(sent(5))
    short = (len(frame) - 40).to_bytes(4) + frame[4:]
    stream = [frame, frame, short, frame]
    connection = expecting()
    assert len(connection.receive_commands(b"".join(stream))) == 2
    assert str(connection.error) == alone(stream)


def test_requests_that_come_together_are_cut() -> None:
    numbers, connection = count(7), expecting()
    for form, places in ((JAVA, slice(None)), (GO, slice(None))):
        headers = []
        for number in (next(numbers) for _ in range(100)):
            properties = f"UNIQ_KEY\\u0001{UNIQUE.format(number)}\\u0002TAGS\\u0001T\\u0002"
            values = ("topic", str(number % 4), str(number), properties)
            words = (*values, number) if form is JAVA else (number, *values)
            headers.append((form % words[places]).encode())
        frames = [frame_of(header, b"body") for header in headers]
        requests = connection.receive_commands(b"".join(frames))
        assert sum(type(request) is CutSend for request in requests) >= 99
        last = requests[-1]
        assert isinstance(last, CutSend)
        values_of = last.form.values(last.texts)
        assert [without_escapes(value).decode() for value in values_of] == [
            last.ext_fields[name] for name in "begi"
        ]
        constants = {name: last.ext_fields[name] for name in last.form.constants}
        assert last.form.constants == constants
        assert last.ext_fields.keys() == {*constants, *"begi"}
        assert (last.opaque, last.body, last.code) == (number, b"body", 310)
        assert requests == alone(frames)


def test_an_answer_that_waits_needs_nothing_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    request = expecting().receive_commands(2 * encode_frame(sent(5)))[-1]

    def decoded(*_parts: bytes) -> Command:
        raise AssertionError

    monkeypatch.setattr(headers, "decode_json_header", decoded)
    assert type(request) is CutSend
    assert (request.opaque, request.flag, request.encoding) == (5, 0, HeaderEncoding.JSON)


def test_a_request_that_comes_alone_is_decoded() -> None:
    connection = expecting()
    frame = encode_frame(sent(5))
    cut, other = connection.receive_commands(2 * frame)[-1], connection.receive_commands(frame)[0]
    assert (type(cut), type(other), cut) == (CutSend, Command, other)


def kinds_of(connection: Connection, served: Iterable[bool]) -> list[type]:
    """Of requests that come two at a time: the second of them is served, or not."""
    chunk, kinds = 2 * encode_frame(sent(5)), []
    for by_its_texts in served:
        request = connection.receive_commands(chunk)[-1]
        kinds.append(type(request))
        if isinstance(request, CutSend):
            request.form.served(by_its_texts)
    return kinds


def test_what_is_cut_for_nothing_is_decoded_for_a_while() -> None:
    connection = expecting()
    kinds = kinds_of(connection, (number == 10 for number in range(700)))
    assert kinds[:27] == [CutSend] * 27
    for rest, start in ((128, 27), (256, 28 + 128), (256, 29 + 384)):
        assert kinds[start : start + rest] == [Command] * rest
        assert kinds[start - 1] is CutSend


def test_what_was_cut_for_nothing_once_is_cut_again() -> None:
    """A topic is not plain while its settings are written, for instance."""
    connection = expecting()
    kinds_of(connection, [False] * 1000)
    kinds = kinds_of(connection, [True] * 1200)
    assert kinds[-200:] == [CutSend] * 200
    assert kinds_of(connection, [False] * 20) == [CutSend] * 16 + [Command] * 4


def test_headers_that_never_stay_the_same_are_decoded() -> None:
    connection = expecting()
    frames = [encode_frame(sent(number, version=number)) for number in range(100)]
    requests = connection.receive_commands(b"".join(frames))
    assert requests == alone(frames)
    assert sum(type(request) is CutSend for request in requests) <= 4


def test_headers_that_changed_often_are_cut_again_after_a_while() -> None:
    connection = expecting()
    frames = [encode_frame(sent(number, version=number)) for number in range(1, 100)]
    connection.receive_commands(b"".join(frames))
    same = 10 * encode_frame(sent(1, version=7777))
    kinds = [type(connection.receive_commands(same)[-1]) for _ in range(200)]
    assert kinds[:80] == [Command] * 80
    assert kinds[-80:] == [CutSend] * 80
    shapes = connection._send_shapes
    assert shapes is not None
    assert len(shapes._shapes) == 4


@pytest.mark.parametrize("odd", ["{'code'", '{ "code"', '{"code" ', '{"more":[],"code"'])
def test_a_long_header_that_is_no_strict_json_is_refused_behind_short_ones(odd: str) -> None:
    """What is not strict JSON is only read up to a length."""
    headers = [
        (JAVA % ("t", "1", "5", rf"UNIQ_KEY\u0001A\u0002{more}", 5))
        .replace('{"code"', odd)
        .encode()
        for more in ("", "", "x" * TOLERATED_HEADER)
    ]
    frames = [frame_of(header, b"body") for header in headers]
    found = together(expecting(), b"".join(frames))
    assert found == alone(frames)
    assert isinstance(found, str) == ("'" in odd)


def test_a_frame_that_is_too_long_is_refused_behind_requests_that_are_cut() -> None:
    frames = [encode_frame(sent(number)) for number in range(3 * MANY)]
    large = encode_frame(sent(1, body=bytes(2000)))
    connection = Connection(max_frame=1000)
    stream = b"".join(frames)
    assert len(connection.receive_commands(stream)) == 3 * MANY
    found = connection.receive_commands(stream + large)
    assert found == alone(frames)
    assert "1000" in str(connection.error) or "996" in str(connection.error)


def test_requests_with_the_fields_of_sends_are_no_sends() -> None:
    """Batches have the same ones, and come together too."""
    connection = expecting()
    frames = [encode_frame(sent(number, code=320)) for number in range(1, 50)]
    for request in connection.receive_commands(b"".join(frames)):
        assert (type(request), request.code) == (Command, 320)


def test_long_headers_are_decoded() -> None:
    """A pattern of one would take long to make, and much memory."""
    connection = expecting()
    fields = {**sent(1).ext_fields, "a": "P" * headers.LONGEST}
    requests = connection.receive_commands(20 * encode_frame(sent(1, ext_fields=fields)))
    assert {type(request) for request in requests} == {Command}
    shapes = connection._send_shapes
    assert shapes is not None
    assert not shapes._shapes
    assert not shapes._tries.resting


def test_headers_that_cannot_be_a_shape_are_not_tried_each_time() -> None:
    connection = expecting()
    fields = {**sent(1).ext_fields, "a": "Größe"}
    connection.receive_commands(20 * encode_frame(sent(1, ext_fields=fields)))
    shapes = connection._send_shapes
    assert shapes is not None
    assert shapes._tries.resting > 1000
