"""The protocol engine: states, chunks, limits, ends."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from rocketmq_sdk.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import (
    END_OF_STREAM,
    NEED_DATA,
    RECEIVE_STATES,
    Connection,
    EndOfStream,
    Incoming,
    NeedData,
    ReceiveState,
    SendState,
)
from rocketmq_sdk.protocol.frame import DEFAULT_MAX_FRAME, decode_frame, encode_frame
from support.paths import CODEC_VECTORS

ENCODED: list[dict[str, Any]] = json.loads(
    gzip.decompress((CODEC_VECTORS / "remoting_encode.json.gz").read_bytes())
)
FRAMES = [bytes.fromhex(entry["frame"]) for entry in ENCODED if "error" not in entry["decoded"]]
BROKEN = [
    bytes.fromhex(entry["frame"])
    for entry in json.loads((CODEC_VECTORS / "remoting_decode.json").read_text())
    if "error" in entry["decoded"]
]
TAIL = Command(34, opaque=99)


def events(connection: Connection) -> list[Command | NeedData | EndOfStream]:
    found: list[Command | NeedData | EndOfStream] = []
    while not found or isinstance(found[-1], Command):
        found.append(connection.next_event())
    return found


@pytest.mark.parametrize("index", range(len(FRAMES)))
def test_every_recorded_frame_whole_bytewise_and_with_a_tail(index: int, json_mode: str) -> None:
    frame = FRAMES[index]
    command = decode_frame(frame[4:])
    assert Connection().receive_commands(frame) == [command]
    bytewise, stepwise = Connection(), Connection()
    collected: list[Command] = []
    for position in range(len(frame)):
        piece = frame[position : position + 1]
        collected += bytewise.receive_commands(piece)
        stepwise.receive_data(piece)
        if position < len(frame) - 1:
            assert not collected
            assert stepwise.next_event() is NEED_DATA
            assert stepwise.receive_state is ReceiveState.INSIDE_FRAME
    assert collected == [command]
    assert events(stepwise) == [command, NEED_DATA]
    with_tail = Connection()
    assert with_tail.receive_commands(frame + encode_frame(TAIL)[:9]) == [command]
    assert with_tail.held_bytes >= 9
    assert with_tail.receive_commands(encode_frame(TAIL)[9:]) == [TAIL]
    assert with_tail.held_bytes == 0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 64, 200, 1000, 4096])
def test_any_size_of_chunks_gives_the_same_commands(size: int) -> None:
    stream = b"".join(FRAMES)
    whole = Connection().receive_commands(stream)
    assert len(whole) == len(FRAMES)
    connection = Connection()
    collected: list[Command] = []
    for start in range(0, len(stream), size):
        collected += connection.receive_commands(stream[start : start + size])
    assert collected == whole
    assert connection.receive_commands(b"") == []
    assert connection.receive_state is ReceiveState.ENDED


def test_the_two_ways_in_may_be_mixed() -> None:
    connection = Connection()
    connection.receive_data(FRAMES[0] + FRAMES[1])
    assert connection.receive_commands(FRAMES[2]) == [
        decode_frame(frame[4:]) for frame in FRAMES[:3]
    ]
    assert connection.next_event() is NEED_DATA


def test_a_clean_end_is_an_event() -> None:
    connection = Connection()
    connection.receive_data(FRAMES[0])
    connection.receive_data(b"")
    assert isinstance(connection.next_event(), Command)
    assert connection.next_event() is END_OF_STREAM
    assert connection.next_event() is END_OF_STREAM
    connection.receive_data(b"")
    assert connection.receive_commands(b"") == []


@pytest.mark.parametrize("cut", [1, 3, 4, 7, 8, 20])
def test_an_end_inside_a_frame_is_an_error(cut: int) -> None:
    connection = Connection()
    assert connection.receive_commands(FRAMES[0] + FRAMES[1][:cut]) == [decode_frame(FRAMES[0][4:])]
    with pytest.raises(RemoteProtocolError, match=f"ended {cut} bytes into a frame"):
        connection.receive_commands(b"")
    assert connection.receive_state is ReceiveState.FAILED


def test_bytes_after_the_end_are_an_error() -> None:
    connection = Connection()
    connection.receive_data(b"")
    with pytest.raises(RemoteProtocolError):
        connection.receive_commands(FRAMES[0])


@pytest.mark.parametrize("frame", BROKEN)
def test_after_one_error_the_engine_stays_failed(frame: bytes) -> None:
    connection = Connection()
    assert connection.receive_commands(FRAMES[0] + frame + FRAMES[1]) == [
        decode_frame(FRAMES[0][4:])
    ]
    if connection.error is None:  # the frame announces more than there is: it ends too early
        connection.receive_data(b"")
    error = connection.error
    assert error is not None
    for _ in range(2):
        with pytest.raises(RemoteProtocolError) as caught:
            connection.receive_commands(FRAMES[0])
        assert caught.value is error
        with pytest.raises(RemoteProtocolError):
            connection.next_event()
    assert connection.receive_state is ReceiveState.FAILED
    assert connection.held_bytes == 0


def test_commands_in_front_of_broken_bytes_are_delivered() -> None:
    connection = Connection()
    connection.receive_data(FRAMES[0] + FRAMES[1] + b"\xff" * 8)
    assert connection.error is not None
    assert [connection.next_event(), connection.next_event()] == [
        decode_frame(frame[4:]) for frame in FRAMES[:2]
    ]
    with pytest.raises(RemoteProtocolError):
        connection.next_event()


@pytest.mark.parametrize("announced", [0, 3, 1021, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
@pytest.mark.parametrize("split", [False, True])
def test_an_impossible_length_is_refused_before_anything_is_kept(
    announced: int, split: bool
) -> None:
    connection = Connection(max_frame=1024)
    word = announced.to_bytes(4, "big")
    if split:
        assert connection.receive_commands(word[:2]) == []
        word = word[2:]
    with pytest.raises(RemoteProtocolError, match="from 4 to 1020 are allowed"):
        connection.receive_commands(word)
    assert connection.held_bytes == 0


def test_frames_up_to_the_limit_are_taken() -> None:
    command = Command(10, body=b"x")
    limit = len(encode_frame(command))
    assert Connection(max_frame=limit).receive_commands(encode_frame(command)) == [command]
    with pytest.raises(RemoteProtocolError):
        Connection(max_frame=limit - 1).receive_commands(encode_frame(command))
    largest = Command(10, body=bytes(DEFAULT_MAX_FRAME - limit + 1))
    assert Connection().receive_commands(encode_frame(largest)) == [largest]


def test_a_large_frame_in_small_pieces_costs_time_in_proportion() -> None:
    frame = encode_frame(Command(10, body=bytes(4 * 1024 * 1024)))
    connection = Connection()
    collected: list[Command] = []
    for start in range(0, len(frame), 4096):
        collected += connection.receive_commands(frame[start : start + 4096])
    assert [len(command.body) for command in collected] == [4 * 1024 * 1024]


def test_sending_goes_on_until_a_send_failed() -> None:
    connection = Connection()
    assert decode_frame(connection.send(TAIL)[4:]) == TAIL
    with pytest.raises(RemoteProtocolError):
        connection.receive_commands(b"\xff" * 8)
    assert connection.send(TAIL) == encode_frame(TAIL)
    connection.send_failed()
    assert connection.send_state is SendState.FAILED
    with pytest.raises(LocalProtocolError):
        connection.send(TAIL)


def test_what_is_too_long_for_the_limit_is_not_sent() -> None:
    connection = Connection(max_frame=1000)
    with pytest.raises(LocalProtocolError, match="limit is 1000"):
        connection.send(Command(10, body=bytes(1000)))
    assert connection.send(TAIL) == encode_frame(TAIL)


def test_the_state_table_is_closed_and_broken_bytes_lead_nowhere_else() -> None:
    assert set(RECEIVE_STATES) == set(ReceiveState)
    for moves in RECEIVE_STATES.values():
        assert set(moves.values()) <= set(ReceiveState) - {ReceiveState.FAILED}
        assert Incoming.BROKEN not in moves
    assert RECEIVE_STATES[ReceiveState.FAILED] == {}
