"""Records become columns: against the codec of messages as the other implementation."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.model import properties as names
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import decode_messages, encode_record
from rocketmq_sdk.spark.plan.loss import DamagedBodyError
from rocketmq_sdk.spark.rows.decoder import RowDecoder, arrow_schema
from rocketmq_sdk.spark.schema import BY_NAME, COLUMNS, DEDUP_PROPERTY, default_columns

if TYPE_CHECKING:
    from rocketmq_sdk.model.received import ReceivedMessage

V4, V6 = bytes([10, 0, 0, 1, 0, 0, 42, 159]), bytes(range(16)) + bytes([0, 0, 42, 159])
EVERYTHING = 1 << 62
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=8)
NAMES = st.one_of(
    TEXT, st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "CLUSTER", "WAIT", DEDUP_PROPERTY, "a", "b"])
)
TEXTS = st.one_of(
    st.lists(st.tuples(NAMES, TEXT), max_size=6).map(
        lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
    ),
    st.lists(
        st.sampled_from(["a", "TAGS", "KEYS", "\x01", "\x02", "x y", " ", "ü"]), max_size=12
    ).map(lambda parts: "".join(parts).encode()),
    st.binary(max_size=20),
)


def record(
    offset: int = 0,
    *,
    body: bytes = b"body",
    properties: bytes = b"",
    sys_flag: int = 0,
    host: bytes = V4,
    topic: bytes = b"T",
) -> bytes:
    return encode_record(
        topic,
        body,
        properties,
        queue_id=3,
        flag=7,
        queue_offset=offset,
        physical_offset=offset * 1000,
        sys_flag=sys_flag,
        born_timestamp=1_795_000_000_123,
        born_host=host,
        store_timestamp=1_795_000_000_456,
        store_host=host,
        reconsume_times=2,
        prepared_offset=0,
    )


def expected(message: ReceivedMessage, broker: str) -> dict[str, object]:
    """The row of a message, by what users of the client see."""
    own = message.properties
    reserved = {*names.RESERVED_NAMES, DEDUP_PROPERTY}
    return {
        "topic": message.topic,
        "brokerName": broker,
        "queueId": message.queue_id,
        "queueOffset": message.offset,
        "messageId": message.offset_message_id,
        "uniqueKey": own.get("UNIQ_KEY"),
        "tags": own.get("TAGS"),
        "keys": list(message.keys) or None,
        "body": message.body,
        "properties": [(name, value) for name, value in own.items() if name not in reserved],
        "flag": message.flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": "10.0.0.1:10911"
        if len(message.born_host) == 8
        else "[1:203:405:607:809:a0b:c0d:e0f]:10911",
        "storeHost": "10.0.0.1:10911"
        if len(message.store_host) == 8
        else "[1:203:405:607:809:a0b:c0d:e0f]:10911",
        "reconsumeTimes": message.reconsume_times,
        "dedupId": own.get(DEDUP_PROPERTY),
    }


def rows(data: bytes) -> list[dict[str, object]]:
    batch = RowDecoder(COLUMNS).decode(data, "b", begin=0, end=EVERYTHING)
    if batch is None:
        return []
    found: list[dict[str, object]] = batch.to_pylist()
    for row, born, stored in zip(
        found,
        batch.column("bornTimestamp").cast(pa.int64()),
        batch.column("storeTimestamp").cast(pa.int64()),
        strict=True,
    ):
        row["bornTimestamp"], row["storeTimestamp"] = born.as_py() // 1000, stored.as_py() // 1000
    return found


@settings(max_examples=300)
@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_every_text_of_properties_is_read_as_the_codec_reads_it(texts: list[bytes]) -> None:
    data = b"".join(record(number, properties=text) for number, text in enumerate(texts))
    assert rows(data) == [expected(message, "b") for message in decode_messages(data)]


@given(
    st.lists(NAMES, max_size=6),
    st.lists(st.lists(TEXT, min_size=6, max_size=6), min_size=1, max_size=6),
    st.booleans(),
)
def test_texts_with_the_same_names_are_read_as_the_codec_reads_them(
    found: list[str], values: list[list[str]], one_differs: bool
) -> None:
    texts = [
        "".join(f"{name}\x01{value}\x02" for name, value in zip(found, row, strict=False))
        for row in values
    ]
    if one_differs:
        texts[-1] += "more\x01x\x02"
    data = b"".join(record(number, properties=text.encode()) for number, text in enumerate(texts))
    assert rows(data) == [expected(message, "b") for message in decode_messages(data)]


def test_a_value_may_hold_the_separator_of_names() -> None:
    data = record(0, properties=b"a\x01x\x01b\x01y\x02") + record(1, properties=b"a\x01x\x02")
    assert [row["properties"] for row in rows(data)] == [[("a", "x\x01b\x01y")], [("a", "x")]]


def test_names_that_swap_their_places_between_messages() -> None:
    data = record(0, properties=b"a\x011\x02TAGS\x01t\x02") + record(
        1, properties=b"TAGS\x01u\x02a\x012\x02"
    )
    assert [(row["tags"], row["properties"]) for row in rows(data)] == [
        ("t", [("a", "1")]),
        ("u", [("a", "2")]),
    ]


def test_unusual_records() -> None:
    inner = encode_batch([(1, b"first", b"TAGS\x01A\x02"), (2, b"second", b"KEYS\x01k1  k2 \x02")])
    data = b"".join(
        [
            record(0),
            record(1, host=V6),
            record(2, body=zlib.compress(b"x" * 1000), sys_flag=SysFlag.COMPRESSED),
            record(3, body=inner, sys_flag=SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP),
            record(5, topic=b"t" * 200),
        ]
    )
    found = rows(data)
    assert found == [expected(message, "b") for message in decode_messages(data)]
    assert [row["queueOffset"] for row in found] == [0, 1, 2, 3, 4, 5]
    assert found[2]["body"] == b"x" * 1000
    assert found[4]["keys"] == ["k1", "k2"]


def test_only_offsets_in_the_range_count() -> None:
    data = b"".join(record(number) for number in range(10))
    decoder = RowDecoder([BY_NAME["queueOffset"]])
    batch = decoder.decode(data, "b", begin=3, end=6)
    assert batch is not None
    assert batch.column(0).to_pylist() == [3, 4, 5]
    assert decoder.decode(data, "b", begin=50, end=60) is None
    shifted = decoder.decode(data, "b", begin=103, end=105, offset_delta=100)
    assert shifted is not None
    assert shifted.column(0).to_pylist() == [103, 104]


def test_a_body_that_does_not_inflate_is_named_and_costs_no_other_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    compressed = SysFlag.COMPRESSED
    usual = [
        record(5, body=b"plain"),
        record(6, body=b"damaged", sys_flag=compressed),
        record(7, body=zlib.compress(b"y"), sys_flag=compressed),
    ]
    columns = [BY_NAME["queueOffset"], BY_NAME["body"]]
    for others in ([], [record(4, body=b"v6", host=V6)]):  # that is read alone
        data = b"".join([*others, *usual])
        with pytest.raises(DamagedBodyError, match="offset 6 of the queue T/b/3 cannot be read"):
            RowDecoder(columns).decode(data, "b", begin=0, end=9)
        part = RowDecoder(columns).decode(data, "b", begin=7, end=9)
        assert part is not None, "damage outside of the range does not count"
        assert len(part) == 1
        batch = RowDecoder(columns, bears_damage=True).decode(data, "b", begin=0, end=9)
        assert batch is not None
        found = dict(zip(*batch.to_pydict().values(), strict=True))
        assert found == {5: b"plain", 6: None, 7: b"y", **({4: b"v6"} if others else {})}
    assert sum("cannot be read" in entry.getMessage() for entry in caplog.records) == 2
    assert RowDecoder(columns[:1]).decode(data, "b", begin=0, end=9) is not None
    data = record(3, body=b"damaged", sys_flag=compressed, host=V6)
    with pytest.raises(RemoteProtocolError) as failure:
        RowDecoder(columns).decode(data, "b", begin=0, end=9)
    assert failure.value.__notes__ == ["in the record at offset 3 of queue 3"]


def test_tags_are_compared_exactly_though_the_column_is_not_asked_for() -> None:
    data = b"".join(
        record(number, properties=f"TAGS\x01{tag}\x02".encode())
        for number, tag in enumerate(["Aa", "BB", "Aa"])
    )
    decoder = RowDecoder([BY_NAME["queueOffset"]], frozenset({"Aa"}))
    batch = decoder.decode(data, "b", begin=0, end=10)
    assert batch is not None
    assert batch.column(0).to_pylist() == [0, 2]
    assert decoder.decode(record(0), "b", begin=0, end=10) is None


def test_types_are_those_that_spark_demands() -> None:
    schema = arrow_schema(default_columns(include_properties=True))
    assert schema.field("body").type == pa.binary()
    assert schema.field("storeTimestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("properties").type == pa.map_(pa.string(), pa.string())
    assert all(field.nullable for field in schema)
    batch = RowDecoder(COLUMNS).decode(record(), "b", begin=0, end=9)
    assert batch is not None
    assert batch.schema == schema


@given(st.data())
def test_broken_records_are_refused_and_never_hang(data: st.DataObject) -> None:
    good = bytearray(record(0, properties=b"TAGS\x01A\x02") + record(1))
    cut = data.draw(st.integers(1, len(good)))
    for _ in range(data.draw(st.integers(0, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    torn = bytes(good[:cut])
    try:
        messages = decode_messages(torn)
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            rows_or_error(torn)
    else:
        assert len(rows_or_error(torn)) == len(messages)


def rows_or_error(data: bytes) -> list[bytes]:
    batch = RowDecoder([BY_NAME["body"]]).decode(data, "b", begin=-(1 << 63), end=1 << 63)
    return [] if batch is None else batch.column(0).to_pylist()
