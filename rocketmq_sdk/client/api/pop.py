"""Popping messages, which are then invisible for a time unless acknowledged.

All calls go to masters: a slave keeps no record of what was popped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.client.api.pull import UndecodableError
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import (
    CodecMissingError,
    LocalProtocolError,
    NotFoundError,
    NotSupportedError,
    RemoteProtocolError,
    broker_error,
)
from rocketmq_sdk.model.enums import PopStatus
from rocketmq_sdk.model.properties import FIRST_POP_TIME, POP_CK
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.protocol.bodies.pop import (
    BatchAckEntry,
    BatchAckMessageRequestBody,
    encode_bit_set,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.receipt_handle import (
    NORMAL,
    InfoKey,
    ReceiptHandle,
    order_offset_key,
    parse_message_offsets,
    parse_order_counts,
    parse_start_offsets,
    topic_kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


_STATUS: Final[dict[int, PopStatus]] = {
    ResponseCode.SUCCESS: PopStatus.FOUND,
    ResponseCode.POLLING_FULL: PopStatus.POLLING_FULL,
    ResponseCode.POLLING_TIMEOUT: PopStatus.POLLING_NOT_FOUND,
    ResponseCode.PULL_NOT_FOUND: PopStatus.POLLING_NOT_FOUND,
}
_CK_MARK: Final = f"{POP_CK}\x01".encode()
_FIRST_MARK: Final = f"{FIRST_POP_TIME}\x01".encode()
_END: Final = b"\x02"
_BATCH_BITS: Final = 1 << 20
"""How far an offset may lie behind the first one of its pop.

No pop looks at more messages.
"""


class Undecodable(NamedTuple):
    """A popped message whose body cannot be inflated or taken apart here, and why.

    Its body is as it came.
    """

    message: ReceivedMessage
    handle: ReceiptHandle
    reason: str


@attrs.frozen(slots=True)
class PopResult:
    """What one pop brought.

    `handles[n]` is the receipt handle of `messages[n]`, which carries its text in the
    property POP_CK too. `unwanted` are the handles of messages that the broker gave
    because of the hash of their tag, but whose tag is another one: acknowledge them.
    `undecodable` messages come again like any that is not acknowledged. `pop_time`
    (epoch milliseconds of the broker's clock) and `invisible_time` (milliseconds) hold
    for all; `rest_count` is the broker's guess of how many more there are.
    """

    status: PopStatus
    messages: list[ReceivedMessage]
    handles: list[ReceiptHandle]
    unwanted: list[ReceiptHandle]
    pop_time: int = 0
    invisible_time: int = 0
    rest_count: int = 0
    undecodable: list[Undecodable] = attrs.field(factory=list)


async def pop_message(
    client: Caller,
    broker_name: str,
    header: PopMessageRequestHeader,
    timeout: float,
    *,
    tags: frozenset[str] = frozenset(),
    kind: type[ReceivedMessage] = ReceivedMessage,
) -> PopResult:
    """One pop (200050) from a broker's master.

    `timeout` in seconds must be longer than the time that the header lets the broker
    hold the request. With `tags` messages with another tag come as `unwanted`. Raises
    the error of any code that is no outcome of a pop, and `UndecodableError` for an
    answer that is no row of records. When the caller is cancelled, or the answer is
    lost, what was popped comes again when its invisible time is over.
    """
    header.bname = broker_name
    response = await client.call_broker(
        broker_name, Command.request(RequestCode.POP_MESSAGE, header), timeout
    )
    return pop_result(response, broker_name, header, tags=tags, kind=kind)


def pop_result(
    response: Command,
    broker_name: str,
    header: PopMessageRequestHeader,
    *,
    tags: frozenset[str] = frozenset(),
    kind: type[ReceivedMessage] = ReceivedMessage,
) -> PopResult:
    """The result of an answer to a pop: messages decoded, each with its handle.

    `kind` is the class of the messages. Follows `MQClientAPIImpl.processPopResponse`.

    Messages of another class than `ReceivedMessage` do not get the handle as a
    property.
    """
    status = _STATUS.get(response.code)
    if status is None:
        raise broker_error(
            response.code, response.remark, topic=header.topic, group=header.consumer_group
        )
    found = PopMessageResponseHeader.from_ext(response.ext_fields)
    result = PopResult(status, [], [], [], found.pop_time, found.invisible_time, found.rest_num)
    if status is PopStatus.FOUND:
        try:
            messages, bad = _decoded(response.body, broker_name, kind)
            handles = _Handles(found, header, broker_name, marked=kind is ReceivedMessage).of_all(
                messages
            )
        except RemoteProtocolError as error:
            raise UndecodableError(str(error), queue_offset=None) from error
        if tags or bad:
            _sort(result, messages, handles, tags, bad)
        else:
            return attrs.evolve(result, messages=messages, handles=handles)
    return result


def _sort(
    result: PopResult,
    messages: list[ReceivedMessage],
    handles: list[ReceiptHandle],
    tags: frozenset[str],
    bad: dict[int, str],
) -> None:
    """Put the messages of an answer where they belong."""
    for number, (message, handle) in enumerate(zip(messages, handles, strict=True)):
        if tags and message.tags not in tags:
            result.unwanted.append(handle)
        elif number in bad:
            result.undecodable.append(Undecodable(message, handle, bad[number]))
        else:
            result.messages.append(message)
            result.handles.append(handle)


def _decoded(
    body: bytes, broker_name: str, kind: type[ReceivedMessage]
) -> tuple[list[ReceivedMessage], dict[int, str]]:
    """All messages, and by number why some could not be inflated or taken apart.

    Raises `RemoteProtocolError` when a record is broken.
    """
    try:
        return decode_messages(body, broker_name=broker_name, kind=kind), {}
    except (CodecMissingError, RemoteProtocolError):
        messages: list[ReceivedMessage] = []
        bad: dict[int, str] = {}
    position = 0
    while position < len(body):
        total = int.from_bytes(body[position : position + 4], "big")
        record = body[position : position + total]
        if not record:
            raise RemoteProtocolError(
                f"the record at {position} of the answer to a pop claims no bytes"
            )
        try:
            messages += decode_messages(record, broker_name=broker_name, kind=kind)
        except (CodecMissingError, RemoteProtocolError) as error:
            bad[len(messages)] = str(error)
            messages += decode_messages(
                record, broker_name=broker_name, kind=kind, inflate=False, unwrap=False
            )
        position += total
    return messages, bad


class _Handles:
    """Makes the handles of one answer."""

    def __init__(
        self,
        found: PopMessageResponseHeader,
        header: PopMessageRequestHeader,
        broker_name: str,
        *,
        marked: bool,
    ) -> None:
        self._found = found
        self._topic = header.topic
        self._order = header.order
        self._broker_name = broker_name
        self._marked = marked
        self._starts = parse_start_offsets(found.start_offset_info)
        self._offsets = parse_message_offsets(found.msg_offset_info)
        self._known = {key: frozenset(offsets) for key, offsets in self._offsets.items()}
        self._counts = parse_order_counts(found.order_count_info)
        self._firsts: dict[InfoKey, int] = {}
        self._ranks: dict[InfoKey, int] = {}

    def of_all(self, messages: list[ReceivedMessage]) -> list[ReceiptHandle]:
        """A handle for each message.

        Messages get it as a property if wanted, the subscribed topic, and their count
        of deliveries.
        """
        if not self._marked and not self._order:
            quick = self._of_plain(messages)
            if quick is not None:
                return quick
        handles = []
        for message in messages:
            raw = message._properties_raw
            text = message.properties.get(POP_CK) if _CK_MARK in raw else None
            handle = self._make(message) if text is None else ReceiptHandle.parse(text)
            if self._marked:
                self._mark(message, raw, handle if text is None else None)
            message.topic = self._topic
            if self._counts and self._order:
                kind, queue_id = handle.kind, handle.queue_id
                count = self._counts.get((kind, order_offset_key(queue_id, handle.offset)))
                message.reconsume_times = (
                    self._counts.get((kind, queue_id), 0) if count is None else count
                )
            handles.append(handle)
        return handles

    def _of_plain(self, messages: list[ReceivedMessage]) -> list[ReceiptHandle] | None:
        """The handles when all messages lie in the topic itself, as nearly always.

        None when they do not, or when one is missing from the answer's texts.
        """
        topic, broker_name, found = self._topic, self._broker_name, self._found
        pop_time, invisible_time, revive_queue_id = (
            found.pop_time,
            found.invisible_time,
            found.revive_qid,
        )
        handles = []
        queue_id, start = -1, 0
        known: frozenset[int] = frozenset()
        for message in messages:
            if message.topic != topic or _CK_MARK in message._properties_raw:
                return None
            if message.queue_id != queue_id:
                queue_id = message.queue_id
                key: InfoKey = (NORMAL, queue_id)
                if key not in self._starts or key not in self._known:
                    return None
                start, known = self._starts[key], self._known[key]
            offset = message.offset
            if offset not in known:
                return None
            handles.append(
                ReceiptHandle(
                    start,
                    pop_time,
                    invisible_time,
                    revive_queue_id,
                    NORMAL,
                    broker_name,
                    queue_id,
                    offset,
                )
            )
        return handles

    def _mark(self, message: ReceivedMessage, raw: bytes, handle: ReceiptHandle | None) -> None:
        added = b"" if handle is None else b"%s%s\x02" % (_CK_MARK, str(handle).encode())
        if _FIRST_MARK not in raw:
            added += b"%s%d\x02" % (_FIRST_MARK, self._found.pop_time)
        if added:
            message._properties_raw = (
                raw + added if raw[-1:] == _END or not raw else raw + _END + added
            )
            message._properties = None

    def _make(self, message: ReceivedMessage) -> ReceiptHandle:
        kind = topic_kind(message.topic) if message.topic != self._topic else "0"
        queue_id = message.queue_id
        key = (kind, queue_id)
        rank = self._ranks[key] = self._ranks.get(key, -1) + 1
        offset = message.offset
        known = self._known.get(key)
        if known is not None and offset not in known:
            offsets = self._offsets[key]
            if rank < len(offsets):
                offset = offsets[rank]
        start = self._starts.get(key)
        if start is None:
            start = self._firsts.setdefault(key, offset)
        found = self._found
        return ReceiptHandle(
            start,
            found.pop_time,
            found.invisible_time,
            found.revive_qid,
            kind,
            self._broker_name,
            queue_id,
            offset,
        )


async def ack_message(
    client: Caller, topic: str, group: str, handle: ReceiptHandle, *, timeout: float | None = 3.0
) -> None:
    """Acknowledge a popped message (200051); `topic` is the one that was popped.

    A broker says yes to an old handle too. Raises `NotFoundError` when its queue does
    not hold the offset, and the broker's other errors.
    """
    header = AckMessageRequestHeader(
        consumer_group=group,
        topic=handle.real_topic(topic, group),
        queue_id=handle.queue_id,
        extra_info=str(handle),
        offset=handle.offset,
        bname=handle.broker_name,
    )
    checked(
        await client.call_broker(
            handle.broker_name, Command.request(RequestCode.ACK_MESSAGE, header), timeout
        ),
        topic=topic,
        group=group,
    )


async def batch_ack_messages(
    client: Caller,
    broker_name: str,
    acks: Iterable[tuple[str, str, ReceiptHandle]],
    *,
    timeout: float | None = 3.0,
) -> None:
    """Acknowledge several popped messages at one broker (200151).

    Each is given as topic popped, group and handle; all handles are of this broker. A
    broker before 5.1.3 is asked for one after another.

    Raises the broker's error. The broker does not say which of them it knew.
    """
    acks = list(acks)
    body = BatchAckMessageRequestBody(broker_name, batch_ack_entries(acks))
    try:
        checked(
            await client.call_broker(
                broker_name,
                Command.request(RequestCode.BATCH_ACK_MESSAGE, body=body.encode()),
                timeout,
            )
        )
    except NotSupportedError:
        for topic, group, handle in acks:
            with suppress(NotFoundError):
                await ack_message(client, topic, group, handle, timeout=timeout)


def batch_ack_entries(acks: Iterable[tuple[str, str, ReceiptHandle]]) -> tuple[BatchAckEntry, ...]:
    """The entries of a batch ack: one for the messages of one pop of one queue.

    Raises `LocalProtocolError` for a handle that no broker made.
    """
    joined: dict[tuple[str, str, str, int, int, int, int], tuple[ReceiptHandle, list[int]]] = {}
    last_key: tuple[str, str, str, int, int, int, int] | None = None
    distances: list[int] = []
    for topic, group, handle in acks:
        distance = handle.offset - handle.start_offset
        if not 0 <= distance < _BATCH_BITS:
            raise LocalProtocolError(
                f"the receipt handle {str(handle)!r} is not one of a pop: its offset is not "
                "behind its start offset"
            )
        key = (
            topic,
            group,
            handle.kind,
            handle.queue_id,
            handle.start_offset,
            handle.pop_time,
            handle.revive_queue_id,
        )
        if key != last_key:
            last_key, distances = key, joined.setdefault(key, (handle, []))[1]
        distances.append(distance)
    return tuple(
        BatchAckEntry(
            bit_set=encode_bit_set(distances),
            consumer_group=group,
            invisible_time=handle.invisible_time,
            pop_time=handle.pop_time,
            queue_id=handle.queue_id,
            retry=handle.kind,
            revive_queue_id=handle.revive_queue_id,
            start_offset=handle.start_offset,
            topic=topic,
        )
        for (topic, group, *_rest), (handle, distances) in joined.items()
    )


async def change_invisible_time(
    client: Caller,
    topic: str,
    group: str,
    handle: ReceiptHandle,
    invisible_ms: int,
    *,
    timeout: float | None = 3.0,
) -> ReceiptHandle:
    """Change when a popped message is visible again (200053); returns its new handle.

    `invisible_ms` are milliseconds from now.

    Raises `NotFoundError` when the queue does not hold the offset, and the broker's
    other errors; then the old handle stands. After a timeout it is open which of the
    two does.
    """
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=handle.real_topic(topic, group),
        queue_id=handle.queue_id,
        extra_info=str(handle),
        offset=handle.offset,
        invisible_time=invisible_ms,
        bname=handle.broker_name,
    )
    command = Command.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    response = checked(
        await client.call_broker(handle.broker_name, command, timeout), topic=topic, group=group
    )
    found = ChangeInvisibleTimeResponseHeader.from_ext(response.ext_fields)
    if handle.is_ordered:
        return attrs.evolve(handle, pop_time=found.pop_time, invisible_time=found.invisible_time)
    return handle.renewed(found.pop_time, found.invisible_time, found.revive_qid)


async def notification(
    client: Caller, broker_name: str, header: NotificationRequestHeader, timeout: float
) -> NotificationResponseHeader:
    """Ask whether there is something to pop (200054). Raises the broker's error.

    The broker holds the request for as long as the header says.
    """
    header.bname = broker_name
    command = Command.request(RequestCode.NOTIFICATION, header)
    response = checked(
        await client.call_broker(broker_name, command, timeout),
        topic=header.topic,
        group=header.consumer_group,
    )
    return NotificationResponseHeader.from_ext(response.ext_fields)


async def polling_info(
    client: Caller,
    broker_name: str,
    topic: str,
    group: str,
    queue_id: int = -1,
    *,
    timeout: float | None = None,
) -> int:
    """How many pops wait for a queue, -1 for those of any queue (200055).

    Raises the broker's error.
    """
    header = PollingInfoRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, bname=broker_name
    )
    response = checked(
        await client.call_broker(
            broker_name, Command.request(RequestCode.POLLING_INFO, header), timeout
        ),
        topic=topic,
        group=group,
    )
    return PollingInfoResponseHeader.from_ext(response.ext_fields).polling_num
