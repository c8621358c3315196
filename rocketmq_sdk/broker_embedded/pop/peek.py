"""PEEK_MESSAGE (200052): what a pop would find (`PeekMessageProcessor`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.pop.checks import checked_group, checked_topic, host_of, refusal
from rocketmq_sdk.broker_embedded.pull.pull_requests import MAX_BYTES
from rocketmq_sdk.broker_embedded.store.messages import GetStatus
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.bodies.pop_records import MAX_COUNT
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pop import (
    PeekMessageRequestHeader,
    PopMessageResponseHeader,
)

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.pop.state import PopState
    from rocketmq_sdk.remoting.channel import Channel


class PeekProcessor:
    """Shows messages without lending them."""

    __slots__ = ("_core", "_state")

    def __init__(self, core: Core, state: PopState) -> None:
        self._core = core
        self._state = state

    def peek(self, channel: Channel, request: Command) -> Command:
        """What a pop would get from the topic, without taking it."""
        header = PeekMessageRequestHeader.from_ext(request.ext_fields)
        core, group, store = self._core, header.consumer_group, self._core.store
        if header.max_msg_nums > MAX_COUNT:
            return refusal(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{host_of(self._core)}] peek message's num is greater than {MAX_COUNT}",
            )
        topic = checked_topic(core, channel, header.topic, header.queue_id)
        checked_group(core, group)
        bodies: list[bytes] = []
        rest = count = 0
        for queue_id in range(topic.read_queue_nums) if header.queue_id < 0 else (header.queue_id,):
            key = (header.topic, group, queue_id)
            offset = max(
                core.offsets.query(group, header.topic, queue_id),
                self._state.buffer.position(key),
            )
            offset = max(offset, store.min_offset(header.topic, queue_id))
            rest += max(0, store.max_offset(header.topic, queue_id) - offset)
            if count < header.max_msg_nums:
                result = store.get(
                    header.topic, queue_id, offset, header.max_msg_nums - count, MAX_BYTES
                )
                bodies.append(result.body)
                count += result.count
                if result.count:
                    core.stats.got(header.topic, group, queue_id, result.count, result.size)
        code = ResponseCode.SUCCESS if count else ResponseCode.PULL_NOT_FOUND
        status = GetStatus.FOUND if count else GetStatus.NO_MESSAGE_IN_QUEUE
        return Command.response(
            code, PopMessageResponseHeader(rest_num=rest), body=b"".join(bodies), remark=status.name
        )
