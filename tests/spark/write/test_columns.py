"""Columns become frames: against messages and the codec of batches as the other
implementation.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.message_arguments import TRIMMED
from rocketmq_sdk.model.properties import RESERVED_NAMES
from rocketmq_sdk.names import check_send_topic
from rocketmq_sdk.protocol.batch_codec import BatchItem, decode_batch, encode_batch
from rocketmq_sdk.spark.schema import DEDUP_PROPERTY
from rocketmq_sdk.spark.write.columns import (
    MOST_PROPERTY_BYTES,
    Frames,
    _blank,
    _untrimmed,
)
from rocketmq_sdk.spark.write.dedup_ids import DedupIds, content_hash
from rocketmq_sdk.spark.write.rows import LoneRow, RowMaker, content_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


TYPES = {
    "body": pa.binary(),
    "topic": pa.string(),
    "tags": pa.string(),
    "keys": pa.list_(pa.string()),
    "properties": pa.map_(pa.string(), pa.string()),
    "shardingKey": pa.string(),
    "delayLevel": pa.int32(),
    "deliverAt": pa.timestamp("us", tz="UTC"),
    "flag": pa.int32(),
    "dedupKey": pa.string(),
}
WORDS = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(
    ["", " ", "a b", "\x85", "a\x01", "b\x02", "a", "b", "ü", "a,b", "a|b", "*", " a", "b\t"]
)
NAMES = WORDS | st.sampled_from(["KEYS", "TAGS", DEDUP_PROPERTY, "__SHARDINGKEY", "a", "b", "c"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "body": st.none() | st.binary(max_size=12),
    "topic": st.sampled_from(["T", "U", "T", "U", "%RETRY%g", "a b", "", None]),
    "tags": st.none() | WORDS,
    "keys": st.none() | st.lists(st.none() | WORDS, max_size=3),
    "properties": st.none() | st.lists(st.tuples(NAMES, st.none() | WORDS), max_size=4),
    "shardingKey": st.none() | st.sampled_from(["", "one", "two", "\x01"]),
    "delayLevel": st.none() | st.sampled_from([0, 0, 0, 3, -1]),
    "deliverAt": st.none() | st.sampled_from([1_700_000_000_000_000]),
    "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
    "dedupKey": st.none() | WORDS,
}


def batch_of(
    rows: Sequence[dict[str, Any]], columns: Sequence[str], types: dict[str, pa.DataType] = TYPES
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row[name] for row in rows], types[name]) for name in columns],
        names=list(columns),
    )


def large(kind: pa.DataType) -> pa.DataType:
    """A type as the session's `spark.sql.execution.arrow.useLargeVarTypes` makes it."""
    if pa.types.is_map(kind):
        return pa.map_(large(kind.key_type), large(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(large(kind.value_type))
    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)


LARGE = {name: large(kind) for name, kind in TYPES.items()}


def maker(
    columns: Sequence[str],
    *,
    topic: str | None = "T",
    skip_bad: bool = True,
    alone: bool = False,
    max_body: int = 1000,
) -> RowMaker:
    numbers = itertools.count(1)
    ids = lambda count: [f"{next(numbers):032X}" for _ in range(count)]  # noqa: E731
    return RowMaker(
        columns,
        topic=topic,
        scope="s",
        partition=3,
        max_body=max_body,
        skip_bad=skip_bad,
        next_ids=ids,
        alone=alone,
    )


def expected(row: dict[str, Any], columns: Sequence[str], topic: str | None) -> Message | None:
    """The message of a row before it gets its dedup id, made as a user would make it;
    None for a bad row.
    """
    cells = {name: row[name] for name in columns}
    target = topic or cells.get("topic")
    if (
        not cells["body"]
        or target is None
        or (cells.get("delayLevel") and cells.get("deliverAt") is not None)
    ):
        return None
    arguments = {
        "tags": cells.get("tags") or None,
        "keys": cells.get("keys") or (),
        "properties": dict(cells.get("properties") or ()),
        "sharding_key": cells.get("shardingKey") or None,
        "flag": cells.get("flag") or 0,
        "delay_level": cells.get("delayLevel") or None,
        "deliver_at": None if cells.get("deliverAt") is None else cells["deliverAt"] // 1000,
    }
    if cells.get("dedupKey"):
        arguments["properties"][DEDUP_PROPERTY] = cells["dedupKey"]
    try:
        check_send_topic(target)
        return Message(target, cells["body"], **arguments)
    except (ConfigurationError, TypeError):
        return None


def sent(parts: Sequence[Frames | LoneRow]) -> list[tuple[str, str | None, BatchItem]]:
    """Topic, sharding key, flag, body and properties of everything, in order, without
    unique ids.
    """
    found: list[tuple[str, str | None, BatchItem]] = []
    for part in parts:
        if isinstance(part, LoneRow):
            message = part.message
            found.append(
                (
                    message.topic,
                    message.sharding_key,
                    (message.flag, message.body, message.property_text().encode()),
                )
            )
            continue
        items = decode_batch(bytes(part.data[part.offsets[0] : part.offsets[-1]]))
        assert len(items) == len(part)
        for number, (flag, body, properties) in enumerate(items):
            one = decode_batch(bytes(part.data[part.offsets[number] : part.offsets[number + 1]]))
            assert one == [(flag, body, properties)]
            head, _, rest = properties.partition(b"\x02")
            assert head.startswith(b"UNIQ_KEY\x01")
            assert len(head) == len(b"UNIQ_KEY\x01") + 32
            found.append(
                (part.topic, part.sharding[number] if part.sharding else None, (flag, body, rest))
            )
    return found


def with_dedup_id(
    message: Message, row: dict[str, Any], columns: Sequence[str], ids: DedupIds
) -> Message:
    if "dedupKey" in columns and row["dedupKey"]:
        return message
    own = {**message.properties, DEDUP_PROPERTY: ids.id_of(content_hash(content_of(message)))}
    return Message(
        message.topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties=own,
        sharding_key=message.sharding_key,
        flag=message.flag,
        delay_level=message.delay_level,
        deliver_at=message.deliver_at_ms,
    )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_frames_are_what_messages_are_encoded_to(data: st.DataObject) -> None:
    columns = [
        "body",
        *data.draw(
            st.lists(st.sampled_from([name for name in TYPES if name != "body"]), unique=True)
        ),
    ]
    topic = data.draw(st.sampled_from(["T", None])) if "topic" in columns else "T"
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries({name: VALUES[name] for name in columns}), min_size=1, max_size=6
        )
    )
    batch = batch_of(rows, columns, data.draw(st.sampled_from([TYPES, LARGE])))
    begin = data.draw(st.integers(0, len(rows) - 1))
    ids = DedupIds("s", 3)
    wanted: list[tuple[str, str | None, BatchItem]] = []
    bad = 0
    for row in rows[begin:]:
        message = expected(row, columns, topic)
        if message is None:
            bad += 1
            continue
        full = with_dedup_id(message, row, columns, ids)
        wanted.append(
            (full.topic, full.sharding_key, (full.flag, full.body, full.property_text().encode()))
        )
    making = maker(columns, topic=topic)
    got = sent(list(making.parts(batch.slice(begin))))
    assert sorted(got, key=repr) == sorted(wanted, key=repr)
    assert (making.rows, making.skipped) == (len(rows) - begin, bad)
    for lane in {(name, key) for name, key, _ in wanted if key}:
        mine = [
            [
                item
                for name, key, item in all_of
                if (name, key) == lane and b"DELAY" not in item[2] and b"DELIVER" not in item[2]
            ]
            for all_of in (got, wanted)
        ]
        assert mine[0] == mine[1]
    alone = sent(list(maker(columns, topic=topic, alone=True).parts(batch.slice(begin))))
    assert alone == wanted


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()], ids=str)
def test_text_bodies_and_one_text_as_keys(text: pa.DataType) -> None:
    types = {**TYPES, "body": text, "keys": text}
    rows = [
        {"body": "ü", "keys": "k"},
        {"body": "b", "keys": None},
        {"body": "c", "keys": ""},
        {"body": "d", "keys": "k l"},
    ]
    making = maker(["body", "keys"])
    got = sent(list(making.parts(batch_of(rows, ["body", "keys"], types))))
    assert [item[1] for _, _, item in got] == ["ü".encode(), b"b", b"c"]
    assert b"KEYS\x01k\x02" in got[0][2][2]
    assert not any(b"KEYS" in item[2] for _, _, item in got[1:])
    assert making.first_skipped is not None
    assert (making.first_skipped.column, making.first_skipped.row) == ("keys", 3)


@pytest.mark.parametrize("wide", [False, True])
def test_text_that_is_no_utf8_is_a_bad_row(wide: bool) -> None:
    broken = pa.Array.from_buffers(
        pa.string(),
        2,
        [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xff\xfe")],
    )
    texts = {
        "tags": broken,
        "dedupKey": broken,
        "topic": broken,
        "keys": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), broken),
        "properties": pa.MapArray.from_arrays(
            pa.array([0, 1, 2], pa.int32()), pa.array(["n", "n"]), broken
        ),
    }
    for name, column in texts.items():
        if wide:
            column = column.cast(large(column.type))
        batch = pa.RecordBatch.from_arrays([pa.array([b"x", b"y"]), column], names=["body", name])
        making = maker(["body", name], topic=None if name == "topic" else "T")
        assert [item[1] for _, _, item in sent(list(making.parts(batch)))] == [b"x"]
        assert making.first_skipped is not None
        assert f"row 1 of partition 3 cannot be written, column {name}: it is no UTF-8" in str(
            making.first_skipped
        )


@pytest.mark.parametrize("broken", [b"a\x01b", b"\xff"])
@pytest.mark.parametrize("column", ["dedupKey", "properties"])
def test_a_blank_text_is_refused_beside_any_other_row(column: str, broken: bytes) -> None:
    texts = pa.array([b" ", broken, b"x"]).view(pa.string())
    if column == "properties":
        texts = pa.MapArray.from_arrays([0, 1, 2, 3], ["p", "p", "p"], texts)
    body = pa.array([b"1", b"2", b"3"])
    making = maker(["body", column])
    parts = list(making.parts(pa.RecordBatch.from_arrays([body, texts], ["body", column])))
    assert [item[1] for _, _, item in sent(parts)] == [b"3"]
    assert (making.rows, making.skipped) == (3, 2)


def test_large_bodies_go_alone_in_their_turn_and_large_batches_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketmq_sdk.spark.write.rows._PLAIN", 100)
    monkeypatch.setattr("rocketmq_sdk.spark.write.rows._MOST_AT_ONCE", 500)
    rows = [
        {"body": b"%d" % number * (120 if number % 3 == 0 else 1), "shardingKey": "k"}
        for number in range(1, 20)
    ]
    parts = list(maker(["body", "shardingKey"]).parts(batch_of(rows, ["body", "shardingKey"])))
    assert [item[1] for _, _, item in sent(parts)] == [row["body"] for row in rows]
    lone = [part for part in parts if isinstance(part, LoneRow)]
    assert [(part.partition, part.row, len(part.message.body) >= 120) for part in lone] == [
        (3, row, True) for row in range(2, 19, 3)
    ]
    assert sum(isinstance(part, Frames) for part in parts) >= 7


def test_the_same_rows_have_the_same_ids_however_they_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = ["body", "tags", "properties", "delayLevel"]
    cells = itertools.product(
        [b"a", b"b"], ["A", None], [None, [("a", "1")], [("a", "1"), ("a", "2")]], [None, 2]
    )
    rows = [dict(zip(columns, cell, strict=True)) for cell in cells] * 3

    def all_ids(cut: int, order: int) -> list[str]:
        making, found = maker(columns), list[str]()
        for begin in range(0, len(rows), cut):
            for _, _, (_, _, text) in sent(
                list(making.parts(batch_of(rows[::order][begin : begin + cut], columns)))
            ):
                found.append(
                    text.decode().partition(f"{DEDUP_PROPERTY}\x01")[2].partition("\x02")[0]
                )
        return sorted(found)

    first = all_ids(len(rows), 1)
    assert len(set(first)) == len(rows)
    assert all_ids(5, 1) == all_ids(7, -1) == all_ids(1, -1) == first


def test_frames_of_many_rows_are_those_of_the_codec() -> None:
    columns = ["body", "tags", "keys", "properties", "flag"]
    rows = [
        {
            "body": b"body %d" % n,
            "tags": "A",
            "keys": [f"k{n}"],
            "properties": [("a", "one"), ("c", str(n))],
            "flag": n,
        }
        for n in range(5000)
    ]
    (frames,) = maker(columns).parts(batch_of(rows, columns))
    assert isinstance(frames, Frames)
    items = decode_batch(bytes(frames.data))
    assert encode_batch(items) == bytes(frames.data)
    assert items[4321][:2] == (4321, b"body 4321")
    unique, own = b"UNIQ_KEY\x01000000000000000000000000000010E2\x02", b"a\x01one\x02c\x014321\x02"
    assert items[4321][2].startswith(unique + own + DEDUP_PROPERTY.encode() + b"\x01s:3:")
    assert items[4321][2].endswith(b":0\x02KEYS\x01k4321\x02WAIT\x01true\x02TAGS\x01A\x02")


PLACES = {
    **TYPES,
    "messageId": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
}


def ids_of(
    rows: list[dict[str, Any]],
    *,
    partition: int,
    alone: bool = False,
    topic: str | None = "T",
    types: dict[str, pa.DataType] = PLACES,
) -> list[str]:
    columns = list(rows[0])
    made = RowMaker(
        ["body"] if topic else ["body", "topic"],
        topic=topic,
        scope="s",
        partition=partition,
        max_body=1000,
        skip_bad=False,
        next_ids=lambda count: [f"{number:032X}" for number in range(count)],
        alone=alone,
    )
    batch = batch_of(rows, columns, types)
    texts = [text.decode() for _, _, (_, _, text) in sent(list(made.parts(batch)))]
    return [text.partition(f"{DEDUP_PROPERTY}\x01")[2].partition("\x02")[0] for text in texts]


def placed(offset: int | None, body: bytes = b"x", broker: str = "a") -> dict[str, Any]:
    return {
        "body": body,
        "topic": "source",
        "brokerName": broker,
        "queueId": 0,
        "queueOffset": offset,
    }


def test_rows_are_told_apart_by_where_they_were_read_from() -> None:
    """Whatever the partition, and on both ways of encoding."""
    rows = [placed(1), placed(2), placed(2, b"y"), placed(2), placed(1, broker="b"), placed(None)]
    found = ids_of(rows, partition=3)
    assert ids_of(rows, partition=3, alone=True) == found
    wide = {name: large(kind) for name, kind in PLACES.items()}
    assert ids_of(rows, partition=3, types=wide) == found
    assert len(set(found)) == len(found)
    assert [text.split(":")[1] for text in found] == ["-"] * 5 + ["3"]
    assert [text.rsplit(":")[-1] for text in found] == ["0", "0", "0", "1", "0", "0"]
    elsewhere = ids_of(rows[::-1], partition=8)
    assert set(found[:5]) == set(elsewhere[1:])
    assert found[5] != elsewhere[0]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("topic", ["T", None])
def test_a_place_tells_topics_apart_or_is_none(topic: str | None, alone: bool) -> None:
    """Equal rows with the same queue and offset in two topics, each in a task of its
    own: the column `topic` is dropped, or says where both go.
    """

    def ids(*more: str) -> list[str]:
        made: list[str] = []
        for task, source in enumerate(("first", "second")):
            row = placed(1)
            if topic is None:
                row["topic"] = "target"
            else:
                del row["topic"]
            row |= dict.fromkeys(more, source)
            made += ids_of([row], partition=task, alone=alone, topic=topic)
        return made

    without, known = ids(), ids("messageId")
    assert [key.split(":")[1] for key in (*without, *known)] == ["0", "1", "-", "-"]
    assert len({*without, *known}) == 4


SPACES = [chr(code) for code in range(0x3001) if chr(code).isspace()]
MARKS = ["\x01", "\x02", "\0", "|", ",", "*", " ", "ü", "字"]
ODD_TEXTS = [
    None,
    "",
    *SPACES,
    *(mark + text for mark in (*MARKS, *SPACES) for text in ("", "a")),
    *(f"a{mark}" for mark in (*MARKS, *SPACES)),
    *(f"a{mark}b" for mark in (*MARKS, *SPACES)),
    *sorted(RESERVED_NAMES),
    DEDUP_PROPERTY,
    *("x" * (MOST_PROPERTY_BYTES - less) for less in range(-2, 160)),
]
PLAIN_ROW: dict[str, Any] = {
    "body": b"x",
    "topic": "T",
    "tags": "A",
    "keys": ["k"],
    "properties": [("p", "1"), ("q", "2")],
    "shardingKey": "s",
    "dedupKey": None,
}
PLACES_OF_A_TEXT: dict[str, Callable[[str | None], dict[str, Any]]] = {
    "body": lambda text: {"body": None if text is None else text.encode()},
    "tag": lambda text: {"tags": text},
    "only key": lambda text: {"keys": [text]},
    "second key": lambda text: {"keys": ["k", text]},
    "value": lambda text: {"properties": [("p", text), ("q", "2")]},
    "name": lambda text: {"properties": [("p", "1"), (text or "", "2")]},
    "name that comes twice": lambda text: {"properties": [(text or "", "1"), (text or "", "2")]},
    "sharding key": lambda text: {"shardingKey": text},
    "dedup key": lambda text: {"dedupKey": text},
    "topic": lambda text: {"topic": text},
}


def batched(texts: Sequence[str | None], size: int) -> list[Sequence[str | None]]:
    return [texts[begin : begin + size] for begin in range(0, len(texts), size)]


def told(making: RowMaker, batch: pa.RecordBatch) -> tuple[Any, ...]:
    """What is sent, what is refused, and why the first of it."""
    found = sorted(sent(list(making.parts(batch))), key=repr)
    first = making.first_skipped
    return found, making.rows, making.skipped, first and (first.row, first.column, first.reason)


@pytest.mark.parametrize("place", PLACES_OF_A_TEXT)
def test_a_row_is_sent_alike_or_refused_alike_on_both_ways(place: str) -> None:
    """By columns between plain rows, and alone as a message of its own."""
    columns = list(PLAIN_ROW)
    for texts in batched(ODD_TEXTS, 40):
        odd = [{**PLAIN_ROW, **PLACES_OF_A_TEXT[place](text)} for text in texts]
        batch = batch_of([PLAIN_ROW, *odd, PLAIN_ROW], columns)
        by_columns = told(maker(columns, topic=None), batch)
        assert by_columns == told(maker(columns, topic=None, alone=True), batch), texts


def test_arrow_and_python_agree_about_every_character() -> None:
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    column = pa.array(every)
    assert _blank(column, ()).to_pylist() == [text.isspace() for text in every]
    ends = pa.array([f"x{text}" for text in every])
    trimmed = [f"x{text}" != f"x{text}".strip(TRIMMED) for text in every]
    assert _untrimmed(ends, ()).to_pylist() == trimmed
