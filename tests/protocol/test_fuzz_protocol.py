"""Bytes that nobody meant: one error type comes out, and chunks never matter."""

from __future__ import annotations

import gzip
import importlib
import json
import pkgutil
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocketmq_sdk.protocol.bodies
from rocketmq_sdk.codes import LanguageCode
from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.bodies.registration import RegisterBrokerBody
from rocketmq_sdk.protocol.bodies.routes import decode_route
from rocketmq_sdk.protocol.body import Body, body_table
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.frame import decode_frame, encode_frame
from rocketmq_sdk.protocol.json import backend as json_backend
from rocketmq_sdk.protocol.json.dialect import decode_json
from support.paths import CODEC_VECTORS

ENCODED: list[dict[str, Any]] = json.loads(
    gzip.decompress((CODEC_VECTORS / "remoting_encode.json.gz").read_bytes())
)
FRAMES = [bytes.fromhex(entry["frame"]) for entry in ENCODED if len(entry["frame"]) < 4000]
TEXTS = [
    entry["json"].encode("utf-8", "replace")
    for entry in json.loads((CODEC_VECTORS / "json_bodies.json").read_text())
    if "json" in entry
]
MODES = json_backend.INSTALLED
quick = settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])


def body_classes() -> list[type[Body]]:
    found: set[type[Body]] = set()
    for module in pkgutil.iter_modules(rocketmq_sdk.protocol.bodies.__path__):
        names = vars(importlib.import_module(f"rocketmq_sdk.protocol.bodies.{module.name}"))
        found |= {
            cls
            for cls in names.values()
            if isinstance(cls, type) and issubclass(cls, Body) and cls is not Body
        }
    return sorted(found, key=lambda cls: cls.__name__)


BODY_CLASSES = body_classes()


@st.composite
def mutated(draw: st.DrawFn, samples: list[bytes]) -> bytes:
    """A sample with some bytes changed, taken out or put in."""
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["change", "cut", "insert", "swap"]))
        if kind == "change":
            data[position : position + 1] = bytes([draw(st.integers(0, 255))])
        elif kind == "cut":
            del data[position : position + draw(st.integers(1, 20))]
        elif kind == "insert":
            data[position:position] = draw(
                st.binary(min_size=1, max_size=8)
                | st.sampled_from([b"{", b"[", b'"', b"null", b"-1", b"1e999", b'"$ref":', b":1"])
            )
        else:
            data[position:] = draw(st.sampled_from(samples))[position:]
    return bytes(data)


@st.composite
def reframed(draw: st.DrawFn) -> bytes:
    """A frame with a changed inside and words that fit it."""
    inside = draw(mutated([frame[8:] for frame in FRAMES]))
    header = draw(st.integers(0, len(inside)))
    word = draw(st.sampled_from([0, 0, 1, 1, 2, 255])) << 24 | header
    return (len(inside) + 4).to_bytes(4, "big") + word.to_bytes(4, "big") + inside


def sane(command: Command) -> None:
    assert all(
        type(name) is str and type(value) is str for name, value in command.ext_fields.items()
    )
    assert all(
        type(number) is int
        for number in (command.code, command.flag, command.opaque, command.version)
    )
    assert -0x80000000 <= command.opaque <= 0x7FFFFFFF
    assert command.remark is None or type(command.remark) is str
    assert type(command.body) is bytes
    again = decode_frame(encode_frame(command)[4:])
    assert (again.code, again.opaque, again.body) == (command.code, command.opaque, command.body)


@pytest.mark.parametrize("mode", MODES)
@quick
@given(data=st.binary(max_size=300) | mutated(FRAMES) | reframed())
def test_frames_give_a_command_or_the_one_error(mode: str, data: bytes) -> None:
    with json_backend.forced(mode):
        try:
            command = decode_frame(data[4:])
        except RemoteProtocolError:
            return
        sane(command)


def outcome(data: bytes, cuts: list[int]) -> tuple[list[Command], str | None]:
    connection = Connection(max_frame=100_000)
    commands: list[Command] = []
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    try:
        for start, stop in pairwise(edges):
            commands += connection.receive_commands(data[start:stop])
        commands += connection.receive_commands(b"")
    except RemoteProtocolError as error:
        return commands, str(error)
    return commands, None if connection.error is None else str(connection.error)


@pytest.mark.parametrize("mode", MODES)
@quick
@given(
    parts=st.lists(
        st.sampled_from(FRAMES) | mutated(FRAMES) | reframed() | st.binary(max_size=20), max_size=4
    ),
    cuts=st.lists(st.integers(0, 5000), max_size=12),
)
def test_chunks_never_change_what_comes_out(mode: str, parts: list[bytes], cuts: list[int]) -> None:
    with json_backend.forced(mode):
        data = b"".join(parts)
        whole, error = outcome(data, [])
        pieces, error_in_pieces = outcome(data, cuts)
        assert pieces == whole
        assert (error is None) == (error_in_pieces is None)


@pytest.mark.parametrize("mode", MODES)
@quick
@given(data=st.binary(max_size=100) | mutated(TEXTS), cls=st.sampled_from(BODY_CLASSES))
def test_bodies_are_read_or_refused_with_the_one_error(
    mode: str, data: bytes, cls: type[Body]
) -> None:
    with json_backend.forced(mode):
        for read in (cls.decode, decode_route, decode_json, RegisterBrokerBody.decode_compressed):
            try:
                value = read(data)
            except RemoteProtocolError:
                continue
            if isinstance(value, Body):
                assert type(value).decode(value.encode()) == value


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "true", "T", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@quick
@given(data=st.data(), cls=st.sampled_from(BODY_CLASSES))
def test_members_of_any_type_are_read_or_refused_with_the_one_error(
    data: st.DataObject, cls: type[Body]
) -> None:
    members = {member.name: data.draw(junk) for member in body_table(cls).members}
    try:
        value = cls.from_json(members)
    except RemoteProtocolError:
        return
    assert isinstance(value, cls)


header_members = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        (
            "code",
            "flag",
            "opaque",
            "version",
            "language",
            "remark",
            "extFields",
            "body",
            "serializeTypeCurrentRPC",
        ),
        junk,
    ),
)


@quick
@given(members=header_members, extra=st.dictionaries(st.text(max_size=4), junk, max_size=4))
def test_header_members_of_any_type_are_read_or_refused_alike_by_both(
    members: dict[str, object], extra: dict[str, object]
) -> None:
    members.setdefault("extFields", extra)
    with json_backend.forced("stdlib"):
        try:
            text = json.dumps(members, allow_nan=False).encode()
        except ValueError:
            return
    frame = len(text).to_bytes(4, "big") + text
    for mode in MODES:
        with json_backend.forced(mode):
            try:
                sane(decode_frame(frame))
            except RemoteProtocolError:
                pass


commands = st.builds(
    Command,
    st.integers(-0x80000000, 0x7FFFFFFF),
    flag=st.integers(0, 3),
    opaque=st.integers(-0x80000000, 0x7FFFFFFF),
    remark=st.none() | st.text(min_size=1),
    ext_fields=st.dictionaries(st.text(min_size=1, max_size=10), st.text(min_size=1), max_size=6),
    body=st.binary(max_size=200),
    language=st.sampled_from(LanguageCode),
    version=st.integers(-0x8000, 0x7FFF),
)


@pytest.mark.parametrize("mode", MODES)
@quick
@given(
    command=commands,
    encoding=st.sampled_from(HeaderEncoding),
    cuts=st.lists(st.integers(0, 2000), max_size=5),
)
def test_commands_survive_the_wire(
    mode: str, command: Command, encoding: HeaderEncoding, cuts: list[int]
) -> None:
    command.encoding = encoding
    with json_backend.forced(mode):
        received, error = outcome(encode_frame(command), cuts)
    assert error is None
    assert len(received) == 1
    if not -0x8000 <= command.code <= 0x7FFF:
        command.encoding = HeaderEncoding.JSON
    assert received == [command]
