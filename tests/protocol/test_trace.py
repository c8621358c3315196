"""The texts of message traces: those recorded from Apache's client, and what readers
tolerate.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.protocol.frame import decode_frame
from rocketmq_sdk.protocol.trace import (
    ConsumeEnded,
    ConsumeResult,
    ConsumeStarted,
    MessageType,
    Published,
    Recalled,
    TraceRecord,
    TransactionEnded,
    decode_traces,
    encode_traces,
    keys_of,
)
from support.paths import WIRE_VECTORS


def recorded(name: str) -> list[tuple[str, str]]:
    """Bodies and KEYS of the trace messages that Apache's client sent."""
    found = []
    for line in (WIRE_VECTORS / name).read_text().splitlines():
        record = json.loads(line)
        if "frame" in record and record["dir"] == "c2s":
            command = decode_frame(bytes.fromhex(record["frame"])[4:])
            if command.ext_fields.get("b") == "RMQ_SYS_TRACE_TOPIC":
                keys = command.ext_fields["i"].partition("KEYS\x01")[2].partition("\x02")[0]
                found.append((command.body.decode(), keys))
    return found


@pytest.mark.parametrize(
    "name", ["trace.json.jsonl", "trace.rocketmq.jsonl", "trace.json-5.3.3.jsonl"]
)
def test_recorded_traces_are_read_and_written_again_as_they_were(name: str) -> None:
    bodies = recorded(name)
    assert len(bodies) >= 2
    kinds = set()
    for body, keys in bodies:
        records = decode_traces(body)
        assert encode_traces(records) == body
        assert set(keys_of(records)) == set(keys.split(" "))
        kinds |= {type(record) for record in records}
    assert kinds == {Published, ConsumeStarted, ConsumeEnded}


def test_what_a_recorded_trace_says() -> None:
    records = [
        record for body, _keys in recorded("trace.json.jsonl") for record in decode_traces(body)
    ]
    published, started, ended = records
    assert isinstance(published, Published)
    assert (published.group, published.topic, published.tags, published.keys) == (
        "PG_trace",
        "W_trace",
        "TagA",
        "traced",
    )
    assert (published.body_length, published.cost, published.message_type, published.success) == (
        8,
        18,
        MessageType.NORMAL,
        True,
    )
    assert (published.store_host, published.offset_message_id) == (
        "127.0.0.1:21911",
        "7F00000100005597000000000000BF69",
    )
    assert isinstance(started, ConsumeStarted)
    assert isinstance(ended, ConsumeEnded)
    assert started.request_id == ended.request_id
    assert (started.group, started.retries, ended.group, ended.result) == (
        "CG_trace",
        0,
        "CG_trace",
        ConsumeResult.SUCCESS,
    )


def test_older_and_newer_forms_are_read() -> None:
    old = "Pub\x011\x01r\x01g\x01t\x01id\x01null\x01null\x01h:1\x015\x012\x010\x01true\x02"
    (record,) = decode_traces(old)
    assert isinstance(record, Published)
    assert (record.offset_message_id, record.success, record.tags) == (None, True, None)
    new = "Pub\x011\x01r\x01g\x01t\x01id\x01a\x01b\x01h:1\x015\x012\x013\x01off\x01false"
    new += "\x0110.0.0.1\x02"
    (record,) = decode_traces(new)
    assert isinstance(record, Published)
    assert (record.offset_message_id, record.success, record.client_host, record.message_type) == (
        "off",
        False,
        "10.0.0.1",
        MessageType.DELAY,
    )
    (ended,) = decode_traces("SubAfter\x01req\x01id\x017\x01true\x01k\x02")
    assert ended == ConsumeEnded(request_id="req", message_id="id", cost=7, keys="k")


@pytest.mark.parametrize(
    "torn",
    [
        "Pub\x011\x02",
        "Pub\x01x\x01r\x02",
        "SubBefore\x02",
        "Nobody\x011\x02",
        "",
        "\x02\x02",
        "Recall\x011\x01r\x02",
    ],
)
def test_torn_and_unknown_records_are_left_out(torn: str) -> None:
    good = "Recall\x011\x01null\x01g\x01t\x01id\x01true\x02"
    assert decode_traces(torn + good) == [Recalled(time=1, group="g", topic="t", message_id="id")]


CHARACTERS = st.characters(blacklist_characters="\x01\x02", blacklist_categories=("Cs",))
TEXT = st.text(CHARACTERS, min_size=1, max_size=8).filter(lambda text: text != "null")
TIME = st.integers(0, 2**48)
RECORDS: st.SearchStrategy[TraceRecord] = st.one_of(
    st.builds(
        Published,
        time=TIME,
        region=st.none() | TEXT,
        group=TEXT,
        topic=TEXT,
        message_id=TEXT,
        tags=st.none() | TEXT,
        keys=st.none() | TEXT,
        store_host=st.none() | TEXT,
        body_length=TIME,
        cost=TIME,
        message_type=st.sampled_from(MessageType),
        offset_message_id=st.none() | TEXT,
        success=st.booleans(),
        client_host=st.none(),
    ),
    st.builds(
        ConsumeStarted,
        time=TIME,
        region=st.none() | TEXT,
        group=TEXT,
        request_id=TEXT,
        message_id=TEXT,
        retries=TIME,
        keys=st.none() | TEXT,
        client_host=st.none(),
    ),
    st.builds(
        ConsumeEnded,
        request_id=TEXT,
        message_id=TEXT,
        cost=TIME,
        success=st.booleans(),
        keys=st.none() | TEXT,
        result=st.sampled_from(ConsumeResult),
        time=TIME,
        group=TEXT,
    ),
    st.builds(
        TransactionEnded,
        time=TIME,
        region=st.none() | TEXT,
        group=TEXT,
        topic=TEXT,
        message_id=TEXT,
        tags=st.none() | TEXT,
        keys=st.none() | TEXT,
        store_host=st.none() | TEXT,
        message_type=st.sampled_from(MessageType),
        transaction_id=st.none() | TEXT,
        state=TEXT,
        from_check=st.booleans(),
    ),
    st.builds(
        Recalled,
        time=TIME,
        region=st.none() | TEXT,
        group=TEXT,
        topic=TEXT,
        message_id=TEXT,
        success=st.booleans(),
    ),
)


@given(st.lists(RECORDS, max_size=5))
def test_records_survive_their_text(records: list[TraceRecord]) -> None:
    assert decode_traces(encode_traces(records)) == records


@given(
    st.text(st.characters(blacklist_categories=("Cs",)) | st.sampled_from("\x01\x02"), max_size=60)
)
def test_no_text_breaks_the_reader(text: str) -> None:
    assert isinstance(decode_traces(text), list)
    traces = decode_traces(f"Pub\x01{text}\x02SubAfter\x01{text}\x02")
    assert len(traces) <= 2 + text.count("\x02")
