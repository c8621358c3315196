"""Frames of the replication protocol, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.replication.wire import (
    MAX_BODY,
    FrameReader,
    ReportReader,
    encode_head,
    encode_report,
)
from rocketmq_sdk.errors import RemoteProtocolError


def test_the_bytes_are_those_of_apache() -> None:
    assert encode_report(0x0102030405060708) == bytes(range(1, 9))
    assert encode_head(0x100000000, 3) == b"\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x03"


def test_only_the_last_of_several_reports_counts() -> None:
    reader = ReportReader()
    assert reader.feed(encode_report(5)[:3]) is None
    assert reader.feed(encode_report(5)[3:] + encode_report(9) + b"\x00") == 9
    assert reader.feed(encode_report(12)[1:]) == 12


def test_a_position_below_zero_is_no_report() -> None:
    with pytest.raises(RemoteProtocolError, match="-1"):
        ReportReader().feed(encode_report(-1))


@pytest.mark.parametrize(("position", "size"), [(-1, 0), (0, -1), (0, MAX_BODY + 1)])
def test_an_impossible_frame_is_refused_before_its_bytes_come(position: int, size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="frame"):
        FrameReader().feed(encode_head(position, size))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1 << 62), st.binary(max_size=60))),
    st.lists(st.integers(1, 40)),
)
def test_frames_come_whole_however_the_stream_is_cut(
    frames: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(encode_head(position, len(body)) + body for position, body in frames)
    reader = FrameReader()
    found: list[tuple[int, bytes]] = []
    for size in cuts:
        found += reader.feed(stream[:size])
        stream = stream[size:]
    found += reader.feed(stream)
    assert found == frames
