"""Acks: ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) (`AckMessageProcessor`).

An ack marks its message in the checkpoint in memory, or becomes a record that meets the
checkpoint when both are due. A late ack, or one that nothing is known of, is taken as
well. (Apache says so even of an ack that could not be stored; here that is an error.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.core import FAQ
from rocketmq_sdk.broker_embedded.pop.records import is_stored
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.broker_embedded.timers.intake import STORED
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import BrokerError
from rocketmq_sdk.protocol.bodies.pop import BatchAckEntry, decode_bit_set
from rocketmq_sdk.protocol.bodies.pop_records import AckRecord, match_key
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pop import AckMessageRequestHeader
from rocketmq_sdk.protocol.json.dialect import decode_json
from rocketmq_sdk.protocol.receipt_handle import ORDERED_QUEUE, ReceiptHandle, topic_of_kind
from rocketmq_sdk.protocol.text import is_number

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.pop.state import PopState
    from rocketmq_sdk.broker_embedded.store.messages import PutResult
    from rocketmq_sdk.broker_embedded.timers.intake import Intake
    from rocketmq_sdk.remoting.channel import Channel

    Answer = Command | Callable[[], Awaitable[Command | None]]

_SLICE: Final = 64
_SLICE_LENGTH: Final = 8192
"""Entries of a batch, and bytes of its text, that are served without interruption."""
_TOLERATED: Final = 4 * 1024
"""Most bytes of a batch that is not strict JSON, which all clients write: more would
hold up the loop.
"""
_REMEMBERED: Final = 1024
_REMEMBERED_LENGTH: Final = 256
DIGITS: Final = 18
"""Most digits of an offset that needs no closer look."""
_RECORD_OFFSETS: Final = 1024
"""Offsets in one record of a batch ack; larger records would not be revived."""


def check_queue(core: Core, channel: Channel, topic: str, queue_id: int) -> None:
    """Raises `BrokerError` when a queue cannot be one of popped messages."""
    found = core.topics.get(topic)
    if found is None:
        raise BrokerError(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}"
        )
    if not 0 <= queue_id < found.read_queue_nums:
        raise BrokerError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"queueId[{queue_id}] is illegal, topic:[{topic}] "
            f"topicConfig.readQueueNums:[{found.read_queue_nums}] "
            f"consumer:[/{channel.remote_address}]",
        )


def check_offset(core: Core, topic: str, queue_id: int, offset: int, *, behind: int) -> None:
    """Raises `BrokerError` when a queue does not hold an offset.

    The offset may lie up to `behind` over the queue's end.
    """
    least, most = (
        core.store.min_offset(topic, queue_id),
        core.store.max_offset(topic, queue_id),
    )
    if not least <= offset < most + behind:
        remark = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{least}~{most}"
        raise BrokerError(ResponseCode.NO_MESSAGE, remark)


def check_revive_queue(core: Core, state: PopState, queue_id: int) -> None:
    """Raises `BrokerError` when no pop of this broker can have named a revive queue."""
    if (
        not 0 <= queue_id < core.config.current.revive_queue_num
        and queue_id not in core.store.queue_ids(state.records.topic)
    ):
        raise BrokerError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the receipt handle names the revive queue {queue_id}, which does not exist",
        )


class AckProcessor:
    """Takes acks."""

    def __init__(self, core: Core, state: PopState) -> None:
        self._core = core
        self._state = state
        self._handles: dict[str, ReceiptHandle] = {}
        """Receipt handles by their text without the message's own offset.

        That text is the same for all messages of one pop of one queue.
        """

    def _handle(self, text: str) -> ReceiptHandle:
        """The receipt handle in a text. Raises `FieldError`.

        Its own offset may be that of another message of the pop.
        """
        head, _space, offset = text.rpartition(" ")
        known = self._handles.get(head)
        if known is not None and is_number(offset, DIGITS):
            return known
        handle = ReceiptHandle.parse_extra_info(text)
        if handle.offset >= 0 and handle.commit_log_offset < 0 and len(head) <= _REMEMBERED_LENGTH:
            if len(self._handles) >= _REMEMBERED:
                self._handles.clear()
            self._handles[head] = handle
        return handle

    def ack(self, channel: Channel, request: Command) -> Answer:
        """One message is done."""
        header = AckMessageRequestHeader.from_ext(request.ext_fields)
        handle = self.admitted(channel, header)
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        if handle.is_ordered:
            return self.acknowledge_ordered(topic, group, queue_id, header.offset, handle.pop_time)
        return answer_when_stored(
            self._state.intake, self.acknowledge(topic, group, queue_id, handle, [header.offset])
        )

    def admitted(self, channel: Channel, header: AckMessageRequestHeader) -> ReceiptHandle:
        """The receipt handle of an ack that can be taken.

        Raises `BrokerError` or `FieldError`.
        """
        topic, queue_id = header.topic, header.queue_id
        check_queue(self._core, channel, topic, queue_id)
        check_offset(self._core, topic, queue_id, header.offset, behind=1)
        handle = self._handle(header.extra_info)
        if not handle.is_ordered:
            check_revive_queue(self._core, self._state, handle.revive_queue_id)
        return handle

    def acknowledge(
        self,
        topic: str,
        group: str,
        queue_id: int,
        handle: ReceiptHandle,
        offsets: list[int],
        requests: int = 1,
    ) -> PutResult | None:
        """Take acks of one pop of one queue; its revive queue is checked.

        Returns the result of storing the acks whose checkpoint is not in memory; None
        when all are.
        """
        self._count(topic, group, queue_id, len(offsets), requests)
        state = self._state
        key = match_key(
            topic, group, queue_id, handle.start_offset, handle.pop_time, handle.broker_name
        )
        left = state.buffer.acknowledge(key, offsets)
        result: PutResult | None = None
        for first in range(0, len(left), _RECORD_OFFSETS):
            some = left[first : first + _RECORD_OFFSETS]
            record = AckRecord(
                topic,
                group,
                queue_id,
                handle.start_offset,
                handle.pop_time,
                handle.broker_name,
                some,
                batch=len(offsets) > 1,
            )
            result = state.records.put_ack(record, handle.revive_queue_id, handle.next_visible_ms)
            if not is_stored(result):
                break
        return result

    def acknowledge_ordered(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int
    ) -> Command:
        """Acknowledge one message of an ordered pop.

        The group's offset moves to the first message that is not acknowledged.
        """
        core, state = self._core, self._state
        if offset < core.offsets.query(group, topic, queue_id):
            return Command.response()
        reached = state.order.commit_and_next(topic, group, queue_id, offset, pop_time)
        if reached == -1:
            remark = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, next:{reached}"
            return Command.response(ResponseCode.MESSAGE_ILLEGAL, remark=remark)
        self._count(topic, group, queue_id, 1)
        if reached >= 0:
            if not core.offsets.has_reset(group, topic, queue_id):
                core.offsets.commit(group, topic, queue_id, reached)
            if state.order.is_free(topic, group, queue_id):
                state.waiting.wake(topic, group, queue_id)
        return Command.response()

    def _count(
        self, topic: str, group: str, queue_id: int, messages: int, requests: int = 1
    ) -> None:
        stats = self._core.stats
        stats.acknowledged(topic, group, messages, requests)
        if stats.figures is not None:
            stats.figures.returned(topic, group, queue_id, messages)

    # Batches

    def batch_ack(self, channel: Channel, request: Command) -> Answer:
        """Acknowledge many messages.

        A long list is served in slices, so that others have their turn.
        """
        body = decode_json(request.body, tolerated=_TOLERATED)
        entries = body.get("acks") if isinstance(body, dict) else None
        if not isinstance(entries, list) or not entries:
            return Command.response(ResponseCode.NO_MESSAGE)
        broker_name = body.get("brokerName") if isinstance(body, dict) else None
        name = (
            broker_name if isinstance(broker_name, str) else self._core.config.current.broker_name
        )
        if len(entries) <= _SLICE and len(request.body) <= _SLICE_LENGTH:
            return answer_when_stored(self._state.intake, self._take(channel, name, entries))
        return lambda: self._take_slices(channel, name, entries, len(request.body))

    async def _take_slices(
        self, channel: Channel, broker_name: str, entries: list[object], length: int
    ) -> Command:
        last: PutResult | None = None
        most = 1 if length > _SLICE_LENGTH * len(entries) // _SLICE else _SLICE
        for first in range(0, len(entries), most):
            result = self._take(channel, broker_name, entries[first : first + most])
            if result is not None:
                last = result
                if not is_stored(result):
                    break
            await trio.lowlevel.checkpoint()
        answer = answer_when_stored(self._state.intake, last)
        if isinstance(answer, Command):
            return answer
        return await answer() or Command.response()

    def _take(self, channel: Channel, broker_name: str, entries: list[object]) -> PutResult | None:
        last: PutResult | None = None
        for item in entries:
            result = self._take_entry(channel, broker_name, BatchAckEntry.from_json(item))
            if result is not None:
                last = result
                if not is_stored(result):
                    break
        return last

    def _take_entry(
        self, channel: Channel, broker_name: str, entry: BatchAckEntry
    ) -> PutResult | None:
        core = self._core
        if entry.start_offset < 0:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"startOffset of an ack is {entry.start_offset}, the least is 0",
            )
        topic = topic_of_kind(entry.retry, entry.topic, entry.consumer_group)
        check_queue(core, channel, topic, entry.queue_id)
        least, most = (
            core.store.min_offset(topic, entry.queue_id),
            core.store.max_offset(topic, entry.queue_id),
        )
        distances = decode_bit_set(entry.bit_set, max(0, most - entry.start_offset))
        offsets = [
            offset for distance in distances if (offset := entry.start_offset + distance) >= least
        ]
        if entry.revive_queue_id == ORDERED_QUEUE:
            for offset in offsets:
                self.acknowledge_ordered(
                    topic, entry.consumer_group, entry.queue_id, offset, entry.pop_time
                )
            return None
        handle = ReceiptHandle(
            entry.start_offset,
            entry.pop_time,
            entry.invisible_time,
            entry.revive_queue_id,
            entry.retry,
            broker_name,
            entry.queue_id,
        )
        if not offsets:
            return None
        check_revive_queue(core, self._state, handle.revive_queue_id)
        return self.acknowledge(topic, entry.consumer_group, entry.queue_id, handle, offsets)


def answer_when_stored(
    intake: Intake, result: PutResult | None, answer: Command | None = None
) -> Answer:
    """The answer for a stored record: at once, after the sync, or an error.

    It waits for the sync where senders do.
    """
    success = answer or Command.response()
    if result is None:
        return success
    if not is_stored(result):
        code, remark = intake.failure(result.status)
        return Command.response(code, remark=remark)
    store = intake.store
    if not store.needs_wait:
        return success
    stored = result

    async def wait() -> Command:
        status = await store.wait_durable(stored)
        if status in STORED:
            return success
        code, remark = intake.failure(PutStatus.SERVICE_NOT_AVAILABLE)
        return Command.response(code, remark=remark)

    return wait
