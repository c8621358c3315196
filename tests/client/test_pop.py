"""Typed calls of pop against conversations recorded between Apache's client and
broker.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.client.api import pop
from rocketmq_sdk.client.api.pull import UndecodableError
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import (
    InvalidParameterError,
    LocalProtocolError,
    NotFoundError,
    TopicNotFoundError,
)
from rocketmq_sdk.model.enums import PopStatus
from rocketmq_sdk.model.properties import FIRST_POP_TIME, POP_CK
from rocketmq_sdk.protocol.bodies.pop import BatchAckMessageRequestBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.frame import decode_frame
from rocketmq_sdk.protocol.headers.pop import (
    NotificationRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketmq_sdk.protocol.message_codec import encode_record
from rocketmq_sdk.protocol.receipt_handle import ReceiptHandle
from support.paths import WIRE_VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator


def exchanges(name: str) -> Iterator[tuple[Command, Command]]:
    """Requests of pop with their answers."""
    waiting: dict[tuple[str, int], Command] = {}
    for line in (WIRE_VECTORS / name).read_text().splitlines():
        entry = json.loads(line)
        if "frame" in entry:
            command = decode_frame(bytes.fromhex(entry["frame"])[4:])
            if entry["dir"] == "c2s":
                waiting[entry["conn"], command.opaque] = command
            elif (entry["conn"], command.opaque) in waiting:
                yield waiting.pop((entry["conn"], command.opaque)), command


class Recorded:
    """A client whose broker answers what was recorded, to the request that was
    recorded.
    """

    client_id = "c"

    def __init__(self, code: int, answer: Command) -> None:
        self.code = code
        self.answer = answer
        self.asked: list[Command] = []

    async def call_broker(
        self,
        broker_name: str,
        command: Command,
        timeout: float | None = None,
        *,
        broker_id: int = 0,
        any_replica: bool = False,
    ) -> Command:
        assert (command.code, broker_name) == (self.code, "broker-a")
        self.asked.append(command)
        return self.answer


@pytest.mark.parametrize("name", ["pop_raw.json.jsonl", "pop_push_consumer.json.jsonl"])
def test_handles_of_popped_messages_are_those_that_javas_client_gave_back(name: str) -> None:
    made: set[str] = set()
    given: set[str] = set()
    for request, answer in exchanges(name):
        if request.code == RequestCode.POP_MESSAGE and answer.code == 0:
            header = PopMessageRequestHeader.from_ext(request.ext_fields)
            result = pop.pop_result(answer, "broker-a", header)
            assert len(result.messages) == len(result.handles) > 0
            for message, handle in zip(result.messages, result.handles, strict=True):
                assert message.topic == "W_pop"
                assert message.properties[POP_CK] == str(handle)
                assert int(message.properties[FIRST_POP_TIME]) <= result.pop_time
                made.add(str(handle))
        elif request.code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
            handle = ReceiptHandle.parse(request.ext_fields["extraInfo"])
            assert (
                handle.real_topic("W_pop", request.ext_fields["consumerGroup"])
                == request.ext_fields["topic"]
            )
            given.add(request.ext_fields["extraInfo"])
    assert len(given) >= 3
    assert given <= made


def test_an_ordered_pop_tells_how_often_a_message_was_delivered() -> None:
    _request, answer = next(
        pair
        for pair in exchanges("pop_raw.json.jsonl")
        if pair[1].ext_fields.get("reviveQid") == "999"
    )
    header = PopMessageRequestHeader(consumer_group="g", topic="W_pop", order=True)
    answer.ext_fields["orderCountInfo"] = "0 1 2;0 qo1%1 5"
    result = pop.pop_result(answer, "broker-a", header)
    assert [message.reconsume_times for message in result.messages] == [2, 5]


def test_messages_of_another_tag_come_apart() -> None:
    request, answer = next(
        pair for pair in exchanges("pop_raw.json.jsonl") if pair[0].code == RequestCode.POP_MESSAGE
    )
    header = PopMessageRequestHeader.from_ext(request.ext_fields)
    whole = pop.pop_result(answer, "broker-a", header, tags=frozenset({"TagA"}))
    nothing = pop.pop_result(answer, "broker-a", header, tags=frozenset({"TagB"}))
    assert (len(whole.messages), len(whole.unwanted)) == (4, 0)
    assert (len(nothing.messages), len(nothing.handles), len(nothing.unwanted)) == (0, 0, 4)


def test_outcomes_and_errors_of_a_pop() -> None:
    header = PopMessageRequestHeader(consumer_group="g", topic="T")
    seen = {
        answer.code: (request, answer)
        for request, answer in exchanges("pop_raw.json.jsonl")
        if request.code == RequestCode.POP_MESSAGE
    }
    assert (
        pop.pop_result(seen[ResponseCode.POLLING_TIMEOUT][1], "broker-a", header).status
        is PopStatus.POLLING_NOT_FOUND
    )
    assert (
        pop.pop_result(Command(ResponseCode.POLLING_FULL), "broker-a", header).status
        is PopStatus.POLLING_FULL
    )
    with pytest.raises(TopicNotFoundError):
        pop.pop_result(seen[ResponseCode.TOPIC_NOT_EXIST][1], "broker-a", header)
    with pytest.raises(InvalidParameterError):
        pop.pop_result(seen[ResponseCode.INVALID_PARAMETER][1], "broker-a", header)
    broken = seen[0][1]
    broken.body = broken.body[:-1]
    with pytest.raises(UndecodableError):
        pop.pop_result(broken, "broker-a", header)


async def test_an_ack_is_written_as_javas_client_writes_it() -> None:
    for request, answer in exchanges("pop_raw.json.jsonl"):
        if request.code != RequestCode.ACK_MESSAGE:
            continue
        client = Recorded(RequestCode.ACK_MESSAGE, answer)
        handle = ReceiptHandle.parse(request.ext_fields["extraInfo"])
        ext = request.ext_fields
        if handle.offset == int(ext["offset"]):
            await pop.ack_message(client, "W_pop", ext["consumerGroup"], handle)  # type: ignore[arg-type]
            assert {
                name: value for name, value in client.asked[0].ext_fields.items() if name != "bname"
            } == ext
        else:
            with pytest.raises(NotFoundError):
                await pop.ack_message(client, "W_pop", ext["consumerGroup"], handle)  # type: ignore[arg-type]


async def test_a_changed_invisible_time_gives_the_next_handle() -> None:
    request, answer = next(
        pair
        for pair in exchanges("pop_raw.json.jsonl")
        if pair[0].code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    )
    client = Recorded(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, answer)
    handle = ReceiptHandle.parse(request.ext_fields["extraInfo"])
    renewed = await pop.change_invisible_time(client, "W_pop", "CG_pop", handle, 3000)  # type: ignore[arg-type]
    assert {
        name: value for name, value in client.asked[0].ext_fields.items() if name != "bname"
    } == request.ext_fields
    found = answer.ext_fields
    assert (
        str(renewed)
        == f"1 {found['popTime']} {found['invisibleTime']} {found['reviveQid']} 0 broker-a 1 1"
    )


async def test_a_batch_ack_is_written_as_javas_client_writes_it() -> None:
    request, answer = next(
        pair
        for pair in exchanges("pop_raw.json.jsonl")
        if pair[0].code == RequestCode.BATCH_ACK_MESSAGE
    )
    client = Recorded(RequestCode.BATCH_ACK_MESSAGE, answer)
    texts = [
        "0 1795237866308 10000 0 0 broker-a 1 2",
        "0 1795237866308 10000 0 0 broker-a 0 0",
        "1 1795237866341 10000 1 0 broker-a 0 1",
    ]
    acks = [("W_pop", "CG_pop", ReceiptHandle.parse(text)) for text in texts]
    await pop.batch_ack_messages(client, "broker-a", acks)  # type: ignore[arg-type]
    assert client.asked[0].body == request.body
    assert len(BatchAckMessageRequestBody.decode(request.body).acks) == 3


def test_messages_of_one_pop_of_one_queue_share_an_entry_of_a_batch_ack() -> None:
    handles = [ReceiptHandle.parse(f"10 1 2 3 0 b 4 {offset}") for offset in (10, 13, 70)] + [
        ReceiptHandle.parse("10 1 2 3 1 b 4 11")
    ]
    first, second = pop.batch_ack_entries(("T", "g", handle) for handle in handles)
    assert (first.bit_set, first.retry, first.start_offset) == ("CQAAAAAAABA=", "0", 10)
    assert (second.bit_set, second.retry) == ("Ag==", "1")
    with pytest.raises(LocalProtocolError):
        pop.batch_ack_entries([("T", "g", ReceiptHandle.parse("10 1 2 3 0 b 4 9"))])


async def test_notification_and_polling_info() -> None:
    pairs = [
        pair
        for pair in exchanges("pop_raw.json.jsonl")
        if pair[0].code in (RequestCode.NOTIFICATION, RequestCode.POLLING_INFO)
    ]
    told = []
    for request, answer in pairs:
        client = Recorded(request.code, answer)
        if request.code == RequestCode.NOTIFICATION:
            header = NotificationRequestHeader.from_ext(request.ext_fields)
            found = await pop.notification(client, "broker-a", header, 5.0)  # type: ignore[arg-type]
            told.append((found.has_msg, found.polling_full))
        else:
            told.append(await pop.polling_info(client, "broker-a", "W_pop", "CG_pop", 0))  # type: ignore[arg-type]
    assert told == [(True, False), (False, False), 1]


def record(offset: int, body: bytes, sys_flag: int = 0) -> bytes:
    return encode_record(
        b"T",
        body,
        b"",
        queue_id=0,
        flag=0,
        queue_offset=offset,
        physical_offset=offset * 200,
        sys_flag=sys_flag,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=2,
        store_host=bytes(8),
        reconsume_times=offset,
        prepared_offset=0,
    )


def test_a_message_that_cannot_be_inflated_holds_up_no_other() -> None:
    header = PopMessageRequestHeader(consumer_group="g", topic="T")
    bad = record(6, b"not compressed", SysFlag.COMPRESSED)
    fields = PopMessageResponseHeader(
        pop_time=1,
        invisible_time=2,
        revive_qid=3,
        start_offset_info="0 0 5",
        msg_offset_info="0 0 5,6,7",
    )
    result = pop.pop_result(
        Command.response(header=fields, body=record(5, b"a") + bad + record(7, b"b")),
        "broker-a",
        header,
    )
    assert [
        (message.body, handle.offset)
        for message, handle in zip(result.messages, result.handles, strict=True)
    ] == [(b"a", 5), (b"b", 7)]
    [(message, handle, reason)] = result.undecodable
    assert (message.body, message.reconsume_times, handle.offset) == (b"not compressed", 6, 6)
    assert "cannot be inflated" in reason
    for broken in (bytes(4), bad[:-1], record(5, b"a") + bad + b"\x00\x00\x00\x05x"):
        with pytest.raises(UndecodableError):
            pop.pop_result(Command.response(header=fields, body=broken), "broker-a", header)
