"""CHANGE_MESSAGE_INVISIBLETIME (200053): change a popped message's visible time.

`ChangeInvisibleTimeProcessor` of Apache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.pop.ack import (
    AckProcessor,
    answer_when_stored,
    check_offset,
    check_queue,
    check_revive_queue,
)
from rocketmq_sdk.broker_embedded.pop.checks import check_invisible
from rocketmq_sdk.broker_embedded.pop.records import is_stored
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.bodies.pop_records import PopCheckPoint
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pop import (
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from rocketmq_sdk.protocol.receipt_handle import ORDERED_QUEUE, ReceiptHandle

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.pop.ack import Answer
    from rocketmq_sdk.broker_embedded.pop.state import PopState
    from rocketmq_sdk.remoting.channel import Channel


class ChangeInvisibleTimeProcessor:
    """Moves a message from the checkpoint of its pop to one of its own."""

    def __init__(self, core: Core, state: PopState) -> None:
        self._core = core
        self._state = state
        self._acks = AckProcessor(core, state)

    def change(self, channel: Channel, request: Command) -> Answer:
        """Change the invisible duration; this ends the old receipt handle.

        The old handle stays valid when the new checkpoint cannot be stored.
        """
        header = ChangeInvisibleTimeRequestHeader.from_ext(request.ext_fields)
        core = self._core
        check_queue(core, channel, header.topic, header.queue_id)
        check_offset(core, header.topic, header.queue_id, header.offset, behind=0)
        check_invisible(core, header.invisible_time)
        handle = ReceiptHandle.parse_extra_info(header.extra_info)
        if handle.is_ordered:
            return self._change_ordered(header, handle)
        check_revive_queue(core, self._state, handle.revive_queue_id)
        # Later than the pop also within its millisecond: acks of the old checkpoint
        # would end the new one if both had the same time.
        now = max(core.clock.now_ms(), handle.pop_time + 1)
        checkpoint = PopCheckPoint(
            header.topic,
            header.consumer_group,
            header.queue_id,
            header.offset,
            now,
            header.invisible_time,
            1,
            [0],
            broker_name=handle.broker_name,
            suspend=bool(header.suspend),
        )
        core.stats.checkpoint(header.topic, header.consumer_group)
        if core.stats.figures is not None:  # its ack, below, takes it off again
            core.stats.figures.popped(header.topic, header.consumer_group, header.queue_id, 1)
        stored = self._state.records.put_checkpoint(checkpoint, handle.revive_queue_id)
        if not is_stored(stored):
            remark = (
                f"the checkpoint could not be stored: {stored.status.name}; "
                "the receipt handle stands"
            )
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=remark)
        acked = self._acks.acknowledge(
            header.topic, header.consumer_group, header.queue_id, handle, [header.offset]
        )
        answer = _answer(now, header.invisible_time, handle.revive_queue_id)
        return answer_when_stored(
            self._state.intake,
            acked if acked is not None and is_stored(acked) else stored,
            answer,
        )

    def _change_ordered(
        self, header: ChangeInvisibleTimeRequestHeader, handle: ReceiptHandle
    ) -> Command:
        """Change a message of an ordered pop; its handle's pop time stays.

        Pops that wait for the queue look again when it is free.
        """
        core, state = self._core, self._state
        visible_at = core.clock.now_ms() + header.invisible_time
        if header.offset >= core.offsets.query(
            header.consumer_group, header.topic, header.queue_id
        ):
            state.order.change_visible(
                header.topic,
                header.consumer_group,
                header.queue_id,
                header.offset,
                handle.pop_time,
                visible_at,
            )
            state.waiting.wake(header.topic, header.consumer_group, header.queue_id)
        return _answer(handle.pop_time, visible_at - handle.pop_time, ORDERED_QUEUE)


def _answer(pop_time: int, invisible_time: int, revive_queue: int) -> Command:
    return Command.response(
        header=ChangeInvisibleTimeResponseHeader(
            pop_time=pop_time, invisible_time=invisible_time, revive_qid=revive_queue
        ),
        remark="not set any response code",
    )
