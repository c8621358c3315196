"""Fields cut out of all records at once: against the reading of one record after the
other.
"""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.batch_codec import encode_batch
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
OCTETS = ("born_host", "store_host", "topic", "properties")
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
    if starts is None or (heads := fields._Heads.of(fields._binary(starts, data))).odd():
        return None
    return fields._packed(heads, offset_delta)


def bodies_of(found: Fields, at_once: int = 100) -> list[bytes]:
    return [body for part in found.bodies(at_once, undamaged) for body in part.to_pylist()]


def undamaged(_number: int, error: Exception) -> None:
    raise error


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
    assert bodies_of(packed) == bodies_of(rows)


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
        pytest.param(usual(topic=b"t" * 200), id="a long topic"),
        pytest.param(usual(host=bytes(20)), id="hosts of IPv6"),
        pytest.param(usual(sys_flag=SysFlag.INNER_BATCH), id="an inner batch"),
    ],
)
def test_an_odd_record_among_usual_ones_is_seen(other: bytes) -> None:
    assert packed_of(usual() + other + usual(), 0) is None


INNER = encode_batch([(1, b"first", b"TAGS\x01A\x02"), (2, b"second", b"")])
ANY = st.one_of(
    RECORD,
    st.sampled_from(
        [
            usual(topic=b"longer topic"),
            usual(topic=b"t" * 200),
            usual(host=bytes(range(20))),
            usual(body=zlib.compress(b"x" * 300), sys_flag=SysFlag.COMPRESSED),
            usual(body=zlib.compress(b""), sys_flag=SysFlag.COMPRESSED),
            usual(body=zlib.compress(b"v6"), sys_flag=SysFlag.COMPRESSED, host=bytes(20)),
            usual(body=INNER, sys_flag=SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP),
        ]
    ),
)


@given(st.lists(ANY, min_size=1, max_size=12), st.sampled_from([0, 7]), st.integers(1, 700))
def test_any_mixture_is_what_its_records_are_one_by_one(
    records: list[bytes], delta: int, at_once: int
) -> None:
    data = b"".join(records)
    found, rows = read_fields(data, offset_delta=delta), of_rows(data, delta)
    assert found is not None
    assert found.count == rows.count
    for name in NUMBERS:
        if name != "sys_flag":  # the codec takes the bit of compressed ones away
            assert found.numbers(name).equals(rows.numbers(name)), name
    for name in (*OCTETS, "physical_offset"):
        assert found.octets(name).equals(rows.octets(name)), name
    assert bodies_of(found, at_once) == bodies_of(rows)
    parts = [sum(map(len, part.to_pylist())) for part in found.bodies(at_once, undamaged)]
    if any(record[39] & SysFlag.COMPRESSED for record in records):
        largest = max(map(len, bodies_of(found)))
        assert max(parts) <= max(at_once, largest)


def test_one_odd_record_does_not_take_the_others_along(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counting(data: bytes, *args: object, **more: object) -> list[tuple[object, ...]]:
        found = read_records(data, *args, **more)  # type: ignore[arg-type]
        read.append(len(found))
        return found

    monkeypatch.setattr(fields, "read_records", counting)
    odd = usual(host=bytes(20))
    found = read_fields(usual() * 500 + odd + usual(topic=b"other") * 500 + odd)
    assert found is not None
    assert (found.count, read) == (1002, [1, 1])
    compressed = usual(body=zlib.compress(b"x"), sys_flag=SysFlag.COMPRESSED)
    found = read_fields(compressed * 300 + usual(topic=b"of another length") * 300)
    assert found is not None
    assert (found.count, read) == (600, [1, 1])


def test_bodies_and_topics_of_no_length_keep_their_places() -> None:
    records = [usual(body=b""), usual(topic=b"a" * 127), usual(body=b"", topic=b"other"), usual()]
    packed, rows = packed_of(b"".join(records)), of_rows(b"".join(records))
    assert packed is not None
    assert packed.octets("topic").equals(rows.octets("topic"))
    assert bodies_of(packed) == bodies_of(rows) == [b"", b"body", b"", b"body"]


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=9))
def test_equal_values_are_told_from_those_that_only_add_up(values: list[bytes]) -> None:
    expected = values[0] if len(set(values)) == 1 else None
    assert fields.all_equal(pa.array(values, pa.binary())) == expected
    assert fields.all_equal(pa.array([b"x", *values], pa.binary())[1:]) == expected


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
        assert bodies_of(packed) == bodies
    else:
        try:
            read_fields(torn)
        except RemoteProtocolError as error:
            assert str(error)  # noqa: PT017 - broken or only unusual: both are right
