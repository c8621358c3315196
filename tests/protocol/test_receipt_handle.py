"""Receipt handles, info texts and pop records against tables made by Apache's
classes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk.errors import FieldError, RemoteProtocolError
from rocketmq_sdk.names import pop_retry_topic_v1, pop_retry_topic_v2
from rocketmq_sdk.protocol.bodies.pop import decode_bit_set, encode_bit_set
from rocketmq_sdk.protocol.bodies.pop_records import AckRecord, PopCheckPoint
from rocketmq_sdk.protocol.receipt_handle import (
    ReceiptHandle,
    message_offsets_part,
    order_offset_key,
    parse_message_offsets,
    parse_order_counts,
    parse_start_offsets,
    start_offset_part,
    topic_kind,
)
from support.paths import VECTORS

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE: list[dict[str, Any]] = json.loads((VECTORS / "codec" / "pop.json").read_text())


def entries(kind: str) -> list[dict[str, Any]]:
    found = [entry for entry in TABLE if entry["kind"] == kind]
    assert found, kind
    return found


@pytest.mark.parametrize("entry", entries("extra_info"))
def test_handles_are_written_as_apache_writes_them(entry: dict[str, Any]) -> None:
    handle = ReceiptHandle(
        entry["startOffset"],
        entry["popTime"],
        entry["invisibleTime"],
        entry["reviveQid"],
        topic_kind(entry["topic"]),
        entry["broker"],
        entry["queueId"],
        entry["msgQueueOffset"],
    )
    assert str(handle) == entry["built8"]
    assert ReceiptHandle.parse_extra_info(entry["built7"]).offset == -1
    assert str(ReceiptHandle.parse_extra_info(entry["built7"])) == entry["built7"]
    assert handle.real_topic("T", "g") == entry["real_topic_for_T_g"]
    assert handle.is_ordered is entry["isOrder"]
    text = entry["receipt_handle"]["input"]
    read = ReceiptHandle.parse(text)
    assert str(read) == entry["receipt_handle"]["encode"]
    assert read.commit_log_offset == entry["receipt_handle"]["commitLogOffset"]
    wrapped = (read.next_visible_ms + (1 << 63)) % (1 << 64) - (1 << 63)  # Java's sum of longs
    assert wrapped == entry["receipt_handle"]["nextVisibleTime"]


@pytest.mark.parametrize("entry", entries("receipt_decode"), ids=lambda entry: entry["input"])
def test_handles_are_read_as_apache_reads_them(entry: dict[str, Any]) -> None:
    result = entry["result"]
    if "error" in result:
        with pytest.raises(FieldError):
            ReceiptHandle.parse(entry["input"])
        return
    handle = ReceiptHandle.parse(entry["input"])
    assert (
        handle.start_offset,
        handle.pop_time,
        handle.invisible_time,
        handle.revive_queue_id,
        handle.kind,
        handle.broker_name,
    ) == (
        result["startOffset"],
        result["retrieveTime"],
        result["invisibleTime"],
        result["reviveQueueId"],
        result["topicType"],
        result["brokerName"],
    )
    assert (handle.queue_id, handle.offset, handle.commit_log_offset) == (
        result["queueId"],
        result["offset"],
        result["commitLogOffset"],
    )


def test_a_renewed_handle_begins_at_its_message() -> None:
    handle = ReceiptHandle.parse("100 1700000000000 60000 3 1 broker-a 5 103")
    assert (
        str(handle.renewed(1700000001000, 5000, 3)) == "103 1700000001000 5000 3 1 broker-a 5 103"
    )


def keyed(found: dict[Any, Any]) -> dict[str, Any]:
    return {f"{kind}@{place}": value for (kind, place), value in found.items()}


PARSERS: dict[str, Callable[[str | None], dict[Any, Any]]] = {
    "start": parse_start_offsets,
    "msg": parse_message_offsets,
    "order": parse_order_counts,
}


@pytest.mark.parametrize("entry", entries("parse"), ids=lambda entry: str(entry["input"]))
@pytest.mark.parametrize("name", PARSERS)
def test_info_texts_are_read_as_apache_reads_them(entry: dict[str, Any], name: str) -> None:
    expected = entry[name]
    if isinstance(expected, dict) and "error" in expected:
        with pytest.raises(FieldError):
            PARSERS[name](entry["input"])
    else:
        assert keyed(PARSERS[name](entry["input"])) == (expected or {})


def test_info_texts_are_written_as_apache_writes_them() -> None:
    (entry,) = entries("infos")
    starts, offsets = (
        parse_start_offsets(entry["startOffsetInfo"]),
        parse_message_offsets(entry["msgOffsetInfo"]),
    )
    assert keyed(starts) == entry["parsed"]
    assert keyed(offsets) == entry["msg_parsed"]
    assert keyed(parse_order_counts(entry["orderCountInfo"])) == entry["order_parsed"]
    assert (
        ";".join(start_offset_part(kind, queue, value) for (kind, queue), value in starts.items())
        == entry["startOffsetInfo"]
    )  # type: ignore[arg-type]
    assert (
        ";".join(
            message_offsets_part(kind, queue, value) for (kind, queue), value in offsets.items()
        )
        == entry["msgOffsetInfo"]
    )  # type: ignore[arg-type]
    (keys,) = entries("keys")
    assert order_offset_key(2, 33) == keys["offset_value_key"]


@pytest.mark.parametrize("entry", entries("ck"), ids=lambda entry: entry["name"])
def test_checkpoints_are_those_of_apache(entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["bytes"])
    read = PopCheckPoint.decode(data)
    assert read.encode() == data
    assert read.unique_key == entry["unique_id"]
    assert read.revive_time == entry["reviveTime"]
    assert {offset: read.index_of(int(offset)) for offset in entry["index_of_ack"]} == entry[
        "index_of_ack"
    ]
    assert (read.re_put_times or 0) == entry["parseRePutTimes"]


def test_acks_are_those_of_apache() -> None:
    for kind, batch in (("ack", False), ("batch_ack", True)):
        (entry,) = entries(kind)
        data = entry["json"].encode()
        read = AckRecord.decode(data, batch=batch)
        assert read.encode() == data
        assert read.unique_key == entry["unique_id"]


@pytest.mark.parametrize("entry", entries("ack_decode"), ids=lambda entry: entry["json"])
def test_acks_are_read_under_both_names(entry: dict[str, Any]) -> None:
    for name, batch in (("ack", False), ("batch", True)):
        read = AckRecord.decode(entry["json"].encode(), batch=batch)
        offsets = f"ackOffsetList={read.offsets}" if batch else f"ackOffset={read.offsets[0]}"
        shown = (
            f"{offsets}, startOffset={read.start_offset}, consumerGroup='{read.group or 'null'}', "
            f"topic='{read.topic or 'null'}', "
            f"queueId={read.queue_id}, popTime={read.pop_time}, "
            f"brokerName={read.broker_name or 'null'}"
        )
        assert shown in entry[name]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "7",
        "{",
        "{}",
        '{"t":"T"}',
        '{"t":"T","c":"g","n":33}',
        '{"t":"T","c":"g","n":2,"d":[0]}',
        '{"t":"T","c":"g","n":"x"}',
        '{"t":"T","c":"g","n":1,"d":["a"]}',
        '{"t":"T","c":"g","n":1,"d":{}}',
    ],
)
def test_what_is_no_checkpoint_is_told(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        PopCheckPoint.decode(text.encode())


def test_the_last_bit_of_a_checkpoint_is_a_negative_number_as_in_java() -> None:
    checkpoint = PopCheckPoint("T", "g", 0, 100, 1, 2, 32, list(range(32)), broker_name="b")
    assert checkpoint.acknowledge([131]) == []
    assert b'"bm":-2147483648' in checkpoint.encode()
    again = PopCheckPoint.decode(checkpoint.encode())
    assert again.open_offsets() == list(range(100, 131))
    for offset in range(100, 132):
        again.acknowledge([offset])
    assert again.all_done
    assert again.acknowledge([132, 133]) == [132, 133]


@pytest.mark.parametrize("entry", entries("retry_topic"), ids=lambda entry: entry["v1"])
def test_retry_topics_are_named_as_apache_names_them(entry: dict[str, Any]) -> None:
    assert pop_retry_topic_v1(entry["topic"], entry["group"]) == entry["v1"]
    assert pop_retry_topic_v2(entry["topic"], entry["group"]) == entry["v2"]
    assert (topic_kind(entry["v1"]) == "2") is entry["isV2_of_v1"]


def test_bit_sets() -> None:
    assert decode_bit_set("CQIAAAAAAABA", 1000) == [0, 3, 9, 70]
    assert encode_bit_set(decode_bit_set("CQIAAAAAAABA", 1000)) == "CQIAAAAAAABA"
    assert decode_bit_set("CQIAAAAAAABA", 5) == [0, 3]
    assert decode_bit_set("", 5) == []
    with pytest.raises(FieldError):
        decode_bit_set("%", 5)
