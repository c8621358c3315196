"""Each number in a request has a range, or a reason why any value is fine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import attrs
import pytest
import trio

from rocketmq_sdk.broker_embedded.admission import limits_of
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.header import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, header_fields
from rocketmq_sdk.protocol.limits import Between
from rocketmq_sdk.protocol.message_codec import decode_message
from support.broker import connect, open_broker, send_request
from support.extreme_requests import GROUP, PLAIN, TOPIC, Extremes
from support.extreme_run import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.request import Request

COMPARED = "it is only compared with what is there"
HANDED_ON = "bits or a number that are kept or handed on as they came"
QUEUE = "the handler compares it with the queues of the topic, in Apache's words and code"
RANGE = "the handler compares it with the offsets of the queue, as Apache does"
UNUSED = "nobody looks at it"
CLAMPED = "the handler takes at most what a setting or a constant allows"
STORED = "the record has 32 or 64 bits for it; what does not fit is refused by the codec"
HASH = "a hash code"
FREE: dict[tuple[str, str], str] = {
    ("AckMessageRequestHeader", "offset"): RANGE,
    ("AckMessageRequestHeader", "queue_id"): QUEUE,
    ("BatchAckEntry", "invisible_time"): "a time that timers do not take is refused by them",
    ("BatchAckEntry", "pop_time"): "part of the key of a checkpoint: " + COMPARED,
    ("BatchAckEntry", "queue_id"): QUEUE,
    ("BatchAckEntry", "revive_queue_id"): QUEUE,
    ("BatchAckEntry", "start_offset"): RANGE,
    ("BrokerData", "broker_addrs"): HANDED_ON,
    ("BrokerHeartbeatRequestHeader", "confirm_offset"): UNUSED,
    ("BrokerHeartbeatRequestHeader", "election_priority"): UNUSED,
    ("BrokerHeartbeatRequestHeader", "epoch"): UNUSED,
    ("BrokerHeartbeatRequestHeader", "max_offset"): UNUSED,
    ("ChangeInvisibleTimeRequestHeader", "invisible_time"): "checked against timerMaxDelaySec",
    ("ChangeInvisibleTimeRequestHeader", "offset"): RANGE,
    ("ChangeInvisibleTimeRequestHeader", "queue_id"): QUEUE,
    ("ConsumeMessageDirectlyResultRequestHeader", "group_sys_flag"): HANDED_ON,
    ("ConsumeMessageDirectlyResultRequestHeader", "topic_sys_flag"): HANDED_ON,
    ("ConsumerSendMsgBackRequestHeader", "delay_level"): CLAMPED + "; below 0 is the dead letter",
    ("ConsumerSendMsgBackRequestHeader", "max_reconsume_times"): COMPARED,
    ("ConsumerSendMsgBackRequestHeader", "offset"): "no record begins there, says the answer",
    ("CreateTopicRequestHeader", "topic_sys_flag"): HANDED_ON,
    ("CustomizedRetryPolicy", "next"): HANDED_ON + "; consumers bound what they wait",
    ("DataVersion", "counter"): COMPARED,
    ("DataVersion", "state_version"): COMPARED,
    ("DataVersion", "timestamp"): COMPARED,
    ("EndTransactionRequestHeader", "commit_log_offset"): "no half message is there",
    ("EndTransactionRequestHeader", "commit_or_rollback"): "three values, checked by the header",
    ("EndTransactionRequestHeader", "tran_state_table_offset"): COMPARED,
    ("GetAllSubscriptionGroupRequestHeader", "max_group_num"): CLAMPED,
    ("GetAllTopicConfigRequestHeader", "max_topic_num"): CLAMPED,
    ("HeartbeatData", "heartbeat_fingerprint"): HASH,
    ("NotificationRequestHeader", "born_time"): "no more than the polling time is left",
    ("NotificationRequestHeader", "poll_time"): CLAMPED,
    ("NotificationRequestHeader", "queue_id"): QUEUE + "; below 0 is any",
    ("PeekMessageRequestHeader", "max_msg_nums"): "more than 32 are refused, as Apache does",
    ("PeekMessageRequestHeader", "queue_id"): QUEUE + "; below 0 is any",
    ("PollingInfoRequestHeader", "queue_id"): QUEUE + "; below 0 is any",
    ("PopMessageRequestHeader", "born_time"): "no more than the polling time is left",
    ("PopMessageRequestHeader", "init_mode"): "1 is the end, all others are the beginning",
    ("PopMessageRequestHeader", "invisible_time"): "checked against timerMaxDelaySec",
    ("PopMessageRequestHeader", "max_msg_nums"): "more than 32 are refused, as Apache does",
    ("PopMessageRequestHeader", "poll_time"): CLAMPED,
    ("PopMessageRequestHeader", "queue_id"): QUEUE + "; below 0 is any",
    ("PullMessageRequestHeader", "commit_offset"): "the group's own; below 0 is none",
    ("PullMessageRequestHeader", "max_msg_bytes"): UNUSED,
    ("PullMessageRequestHeader", "max_msg_nums"): CLAMPED,
    ("PullMessageRequestHeader", "queue_id"): QUEUE,
    ("PullMessageRequestHeader", "queue_offset"): "corrected as Apache does",
    ("PullMessageRequestHeader", "request_source"): COMPARED,
    ("PullMessageRequestHeader", "sub_version"): COMPARED,
    ("PullMessageRequestHeader", "suspend_timeout_millis"): CLAMPED,
    ("PullMessageRequestHeader", "sys_flag"): "bits; those that are not known say nothing",
    ("QueryConsumeQueueRequestHeader", "count"): CLAMPED,
    ("QueryConsumeQueueRequestHeader", "index"): "no such unit, says the answer, as Apache's does",
    ("QueryMessageRequestHeader", "begin_timestamp"): COMPARED,
    ("QueryMessageRequestHeader", "end_timestamp"): COMPARED,
    ("RegisterBrokerRequestHeader", "body_crc32"): HASH,
    ("ResetMasterFlushOffsetHeader", "master_flush_offset"): UNUSED,
    ("ResetOffsetRequestHeader", "offset"): RANGE + "; below 0 is none",
    ("ResetOffsetRequestHeader", "timestamp"): COMPARED + "; below 0 is the end",
    ("SearchOffsetRequestHeader", "timestamp"): COMPARED,
    ("SetMessageRequestModeRequestBody", "pop_share_queue_num"): COMPARED,
    ("SimpleSubscriptionData", "version"): HANDED_ON,
    ("SubscriptionData", "code_set"): HASH,
    ("SubscriptionData", "sub_version"): COMPARED,
    ("SubscriptionGroupConfig", "broker_id"): HANDED_ON,
    ("SubscriptionGroupConfig", "consume_timeout_minute"): HANDED_ON,
    ("SubscriptionGroupConfig", "group_sys_flag"): HANDED_ON,
    ("SubscriptionGroupConfig", "retry_max_times"): COMPARED,
    ("SubscriptionGroupConfig", "which_broker_when_consume_slowly"): HANDED_ON,
    ("TopicConfig", "topic_sys_flag"): HANDED_ON,
    ("QueueData", "topic_sys_flag"): HANDED_ON,
    ("UpdateConsumerOffsetRequestHeader", "commit_offset"): (
        "the group's own; below 0 is as none, as at Apache"
    ),
}
for _header in ("SendMessageRequestHeader", "SendMessageRequestHeaderV2"):
    FREE |= {
        (_header, "born_timestamp"): STORED,
        (_header, "default_topic_queue_nums"): CLAMPED + ": those of the default topic",
        (_header, "flag"): STORED,
        (_header, "max_reconsume_times"): COMPARED,
        (_header, "queue_id"): QUEUE + "; below 0 is any",
        (_header, "reconsume_times"): STORED,
        (_header, "sys_flag"): STORED,
    }
HALF_BIT = 4


def has_number(hint: Any) -> bool:
    return hint is int or any(map(has_number, get_args(hint)))


def classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and attrs.has(hint):
        yield hint
    for part in get_args(hint):
        yield from classes(part)


def parts_of(row: Request) -> set[type]:
    """The header, the body and all classes in them."""
    found: set[type] = set()
    todo = [part for part in (row.header, row.body) if part is not None]
    while todo:
        part = todo.pop()
        if part not in found:
            found.add(part)
            todo += [inner for hint in get_type_hints(part).values() for inner in classes(hint)]
    return found


def numbers_of(row: Request) -> Iterator[tuple[type, str, Between | None]]:
    for part in parts_of(row):
        hints = get_type_hints(part)
        for attribute, _name, limit in limits_of(part):
            if has_number(hints[attribute]):
                yield part, attribute, limit if isinstance(limit, Between) else None


async def all_rows() -> list[Request]:
    of_broker, of_name_server = await rows()
    return of_broker + of_name_server


async def test_every_number_has_a_range_or_a_reason() -> None:
    seen: set[tuple[str, str]] = set()
    missing: list[str] = []
    for row in await all_rows():
        for part, attribute, limit in numbers_of(row):
            key = part.__name__, attribute
            seen.add(key)
            if (limit is None) is not (key in FREE):
                missing.append(f"{row.code.name}: {key} {limit}")
    assert not missing, "a range or a reason, and not both:\n" + "\n".join(sorted(missing))
    assert not FREE.keys() - seen, "nobody has these any more"


async def test_each_range_of_a_header_is_kept(autojump_clock: MockClock) -> None:
    """Just outside is refused by name with one code; the ends of the range are not."""
    tried = 0
    of_broker, of_name_server = await rows()
    async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
        name_server = await connect(broker, nursery, namesrv=True)
        for who, of_who in ((peer, of_broker), (name_server, of_name_server)):
            for row in of_who:
                for field, value, fine in around_ranges(row):
                    command = plain(row)
                    command.ext_fields[field] = str(value)
                    answer = await who.ask(command)
                    named = f"{field} is {value}, " in (answer.remark or "")
                    refused = answer.code == ResponseCode.INVALID_PARAMETER and named
                    assert refused is not fine, (row.code.name, field, value, answer)
                    tried += 1
        nursery.cancel_scope.cancel()
    assert tried > 50


def around_ranges(row: Request) -> Iterator[tuple[str, int, bool]]:
    """Values of the numbers of a header, and whether they are admitted."""
    if row.header is None:
        return
    limits = {found.attribute: found.limit for found in limits_of(row.header)}
    for field in header_fields(row.header):
        limit = limits[field.attribute]
        if isinstance(limit, Between):
            low, high = (INT_MIN, INT_MAX) if field.kind == "int" else (LONG_MIN, LONG_MAX)
            yield field.name, limit.least, True
            yield field.name, low, False
            yield field.name, limit.least - 1, False
            if limit.most < high:
                yield field.name, limit.most + 1, False


def plain(row: Request) -> Command:
    """A request that is mostly served."""
    fields = {
        field.name: PLAIN.get(field.name, "0" if field.kind in ("int", "long") else "false")
        for field in header_fields(row.header or type(None))  # type: ignore[arg-type]
        if field.required or field.name in PLAIN
    }
    body = b"" if row.body is None else Extremes([row]).plain_body(row.body)
    return Command(row.code, ext_fields=fields, body=body)


@pytest.mark.parametrize("name", ["defgh", "j", "l"])
async def test_numbers_that_no_record_holds_are_named(name: str) -> None:
    async with open_broker() as (_broker, peer):
        for field in name:
            for value in ("9" * 30, str(2**63), str(-(2**63) - 1)):
                command = send_request(TOPIC, b"x")
                command.ext_fields[field] = value
                answer = await peer.ask(command)
                if answer.code == ResponseCode.SUCCESS:
                    # Not stored; a queue below 0 is any.
                    assert field in "dl" or (field == "e" and value[0] == "-")
                else:
                    assert value[:10] in (answer.remark or ""), (field, value, answer)


@pytest.mark.parametrize("bit", range(32))
async def test_every_bit_of_the_system_flag_leaves_a_readable_record(bit: int) -> None:
    """The broker knows better than a sender how long the hosts of a record are."""
    async with open_broker() as (broker, peer):
        command = send_request(TOPIC, b"flagged", queue_id=0)
        value = 1 << bit
        command.ext_fields["f"] = str(value - (1 << 32) if value > INT_MAX else value)
        code = (await peer.ask(command)).code
        await peer.send(TOPIC, b"after", queue_id=0)
        bodies: list[bytes] = []
        for offset in range(broker.store.max_offset(TOPIC, 0)):
            unit = broker.store.queue_unit(TOPIC, 0, offset)
            assert unit is not None
            record = broker.store.record_nowait(unit[0])
            assert record is not None
            bodies.append(decode_message(record, inflate=False).body)
        # Half messages are in no queue of their own, as at Apache.
        seen = code == ResponseCode.SUCCESS and value != HALF_BIT
        assert bodies == ([b"flagged", b"after"] if seen else [b"after"])


async def test_numbers_without_end_in_a_subscription() -> None:
    async with open_broker() as (_broker, peer):
        for member in (b'"subVersion":1' + b"0" * 300, b'"codeSet":[4294967296]'):
            body = (
                b'{"clientID":"c","consumerDataSet":[{"groupName":"'
                + GROUP.encode()
                + b'","subscriptionDataSet":[{"topic":"T",'
                + member
                + b"}]}]}"
            )
            answer = await peer.ask(Command(RequestCode.HEART_BEAT, body=body))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "SubscriptionData." in (answer.remark or "")
