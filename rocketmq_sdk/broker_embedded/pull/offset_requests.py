"""Offsets of groups and ends of queues: codes 14, 15, 29, 30, 31, 32.

`ConsumerManageProcessor` and `AdminBrokerProcessor` of Apache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.offsets import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.remoting.channel import Continuation


class OffsetProcessor:
    """Answers questions about positions."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def query(self, header: QueryConsumerOffsetRequestHeader) -> Command:
        """Where a group goes on.

        Without a stored offset, a queue whose first message is still in memory begins
        at 0.
        """
        offset = self._core.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset >= 0:
            return Command.response(header=QueryConsumerOffsetResponseHeader(offset=offset))
        if header.set_zero_if_not_found is False:
            return Command.response(
                ResponseCode.QUERY_NOT_FOUND,
                remark="Not found, do not set to zero, maybe this group boot first",
            )
        if self._core.store.in_memory(header.topic, header.queue_id, 0):
            return Command.response(header=QueryConsumerOffsetResponseHeader(offset=0))
        return Command.response(
            ResponseCode.QUERY_NOT_FOUND,
            remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def update(self, header: UpdateConsumerOffsetRequestHeader) -> Command:
        """Commit an offset; ignored while a reset waits for the next pull."""
        core = self._core
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if core.groups.find_existing(group) is None:
            return Command.response(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"Group {group} not exist!"
            )
        found = core.topics.get(topic)
        if found is None:
            return Command.response(
                ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {topic} not exist!"
            )
        queues = max(found.read_queue_nums, found.write_queue_nums)
        if not 0 <= queue_id < queues and queue_id not in core.store.queue_ids(topic):
            return Command.response(
                ResponseCode.INVALID_PARAMETER,
                remark=f"queueId[{queue_id}] is illegal, topic:[{topic}] has {queues} queues",
            )
        if core.config.current.use_server_side_reset_offset and core.offsets.has_reset(
            group, topic, queue_id
        ):
            return Command.response(remark="Offset has been previously reset")
        core.offsets.commit(group, topic, queue_id, header.commit_offset)
        return Command.response()

    def search(self, header: SearchOffsetRequestHeader) -> Continuation:
        """The offset of a point in time."""
        boundary = header.boundary_type or BoundaryType.LOWER
        store = self._core.store

        async def answer() -> Command:
            offset = await store.offset_at_time(
                header.topic, header.queue_id, header.timestamp, boundary
            )
            return Command.response(header=SearchOffsetResponseHeader(offset=offset))

        return answer

    def maximum(self, header: GetMaxOffsetRequestHeader) -> Command:
        """The offset behind the last message; 0 for a queue that is not known."""
        return Command.response(
            header=GetMaxOffsetResponseHeader(
                offset=self._core.store.max_offset(header.topic, header.queue_id)
            )
        )

    def minimum(self, header: GetMinOffsetRequestHeader) -> Command:
        """The first offset that is still stored; the empty remark is Apache's."""
        offset = self._core.store.min_offset(header.topic, header.queue_id)
        return Command.response(header=GetMinOffsetResponseHeader(offset=offset), remark="")

    def earliest(self, header: GetEarliestMsgStoretimeRequestHeader) -> Continuation:
        """The store time of the first message, -1 for an empty queue."""
        store = self._core.store

        async def answer() -> Command:
            first = store.min_offset(header.topic, header.queue_id)
            [timestamp] = await store.store_times([(header.topic, header.queue_id, first)])
            return Command.response(
                header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp)
            )

        return answer
