"""Fields cut out of all records at once: against the reading of one record after the
other.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import encode_record
from rocketmq_sdk.spark.rows import fields
from rocketmq_sdk.spark.rows.fields import Fields, read_fields
from rocketmq_sdk.spark.rows.records import Record, read_records, record_starts

NUMBERS = (
    "queue_id",
    "flag",
    "queue_offset",
    "sys_flag",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
)
OCTETS = ("born_host", "store_host", "body", "topic", "properties")
INT, LONG = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
HOST = st.binary(min_size=8, max_size=8)
RECORD = st.builds(
    encode_record,
    st.sampled_from([b"one", b"two"]),
    st.binary(max_size=40),
    st.binary(max_size=200),
    queue_id=INT,
    flag=INT,
    queue_offset=st.integers(0, 1 << 40),
    physical_offset=LONG,
    sys_flag=st.sampled_from([0, SysFlag.TRANSACTION_PREPARED]),
    born_timestamp=LONG,
    born_host=HOST,
    store_timestamp=LONG,
    store_host=HOST,
    reconsume_times=INT,
    prepared_offset=LONG,
)


def rows_of(data: bytes, offset_delta: int = 0) -> list[tuple[object, ...]]:
    return read_records(data, record_starts(data), offset_delta=offset_delta)


def packed_of(data: bytes, offset_delta: int = 0) -> Fields | None:
    starts = record_starts(data)
    return None if starts is None else fields._packed(data, starts, offset_delta)


def of_rows(data: bytes, offset_delta: int = 0) -> Fields:
    return fields._Rows(list(zip(*rows_of(data, offset_delta), strict=True)))


@given(st.lists(RECORD, min_size=1, max_size=20), st.sampled_from([0, 5000]))
def test_all_at_once_and_one_by_one_give_the_same(records: list[bytes], delta: int) -> None:
    data = b"".join(records)
    packed = packed_of(data, delta)
    assert packed is not None, "usual records are read all at once"
    rows = of_rows(data, delta)
    assert packed.count == rows.count == len(records)
    for name in NUMBERS:
        assert packed.numbers(name).equals(rows.numbers(name)), name
    for name in (*OCTETS, "physical_offset"):
        assert packed.octets(name).equals(rows.octets(name)), name


def usual(
    topic: bytes = b"topic", body: bytes = b"body", host: bytes = bytes(8), **fields: int
) -> bytes:
    values = {
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 1,
        "physical_offset": 2,
        "sys_flag": 0,
        "reconsume_times": 0,
        "prepared_offset": 0,
        **fields,
    }
    return encode_record(
        topic,
        body,
        b"a\x01b\x02",
        born_timestamp=1,
        store_timestamp=1,
        born_host=host,
        store_host=host,
        **values,
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(usual(topic=b"longer topic"), id="topics of two lengths"),
        pytest.param(usual(topic=b"t" * 200), id="a long topic"),
        pytest.param(usual(host=bytes(20)), id="hosts of IPv6"),
        pytest.param(usual(body=b"", sys_flag=SysFlag.COMPRESSED), id="a compressed body"),
    ],
)
def test_an_unusual_record_among_usual_ones_is_seen(other: bytes) -> None:
    assert packed_of(usual() + other + usual(), 0) is None


def test_no_record() -> None:
    assert read_fields(b"") is None


@given(st.data())
def test_records_that_tell_wrong_lengths_are_never_cut_at_random(data: st.DataObject) -> None:
    records = bytearray(usual() * 3)
    for _ in range(data.draw(st.integers(1, 3))):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    torn = bytes(records[: data.draw(st.integers(1, len(records)))])
    packed = packed_of(torn, 0)
    if packed is not None:
        bodies = [row[Record._fields.index("body")] for row in rows_of(torn)]
        assert packed.octets("body").to_pylist() == bodies
    else:
        try:
            read_fields(torn)
        except RemoteProtocolError as error:
            assert str(error)  # noqa: PT017 - broken or only unusual: both are right
