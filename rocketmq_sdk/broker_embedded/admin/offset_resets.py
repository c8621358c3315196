"""Resets of offsets: INVOKE_BROKER_TO_RESET_OFFSET (222).

Follows `AdminBrokerProcessor` and `Broker2Client` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes, refuse
from rocketmq_sdk.broker_embedded.slices import encoded, slices
from rocketmq_sdk.codes import LanguageCode, RequestCode, ResponseCode
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.offsets import (
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.offsets import ResetOffsetRequestHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.pull.part import PullPart
    from rocketmq_sdk.remoting.channel import Channel, Continuation

logger = logging.getLogger(__name__)

_SHOWN: Final = 64
"""Queues whose new offsets are shown in the log."""


class OffsetResetRequests:
    """Moves groups to other offsets, by the broker or by their members."""

    __slots__ = ("_core", "_members", "_pull")

    def __init__(self, core: Core, members: MemberPart, pull: PullPart) -> None:
        self._core = core
        self._members = members
        self._pull = pull

    def requests(self) -> Iterable[Request]:
        """The one row."""
        return (
            Request(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                self.reset_offset,
                needs.topic_and_group(Action.UPDATE, "group"),
                ResetOffsetRequestHeader,
                connection=True,
                cost=Cost.FILES,
                writes=Writes.OFFSETS,
            ),
        )

    def reset_offset(
        self, _channel: Channel, command: Command, header: ResetOffsetRequestHeader
    ) -> Continuation:
        """INVOKE_BROKER_TO_RESET_OFFSET (222): reset a group's offsets in a topic.

        The next pull of each queue is answered with the new offset, or the clients are
        told. Offsets of a time are looked up in a thread.
        """
        return lambda: self._reset(command, header)

    async def _reset(self, command: Command, header: ResetOffsetRequestHeader) -> Command:
        if not self._core.config.current.use_server_side_reset_offset:
            return await self._reset_by_clients(header, for_c=command.language is LanguageCode.CPP)
        topic = self._core.topics.get(header.topic)
        if topic is None:
            return refuse(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if self._core.groups.find_existing(header.group) is None:
            return refuse(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist"
            )
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        known = header.queue_id < queues or header.queue_id in self._core.store.queue_ids(
            header.topic
        )
        if not known:
            return refuse(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, "
                f"topic:[{header.topic}] has {queues} queues",
            )
        offsets: dict[int, int] = {}
        if header.queue_id >= 0 and header.offset is not None and header.offset >= 0:
            low, high = (
                self._core.store.min_offset(header.topic, header.queue_id),
                self._core.store.max_offset(header.topic, header.queue_id),
            )
            if not low <= header.offset <= high + 1:
                return refuse(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {header.offset} not in consume queue range [{low}-{high}]",
                )
            offsets[header.queue_id] = header.offset
        else:
            wanted = [header.queue_id] if header.queue_id >= 0 else range(topic.write_queue_nums)
            async for some in slices(wanted):
                for queue_id in some:
                    offsets[queue_id] = await self._offset_at(
                        header.topic, queue_id, header.timestamp
                    )
        async for part in slices(list(offsets.items())):
            for queue_id, offset in part:
                self._core.offsets.assign_reset(header.group, header.topic, queue_id, offset)
                # Apache's broker lets a consumer notice when its held pull is over;
                # here it is told at once.
                self._pull.held.wake_queue(header.topic, queue_id)
        shown = offsets if len(offsets) <= _SHOWN else f"new offsets in {len(offsets)} queues"
        logger.info(
            "group %s is reset in topic %s to %s",
            header.group,
            header.topic,
            shown,
            extra=about(topic=header.topic, group=header.group),
        )
        body = ResetOffsetBody(self._by_queue(header.topic, offsets))
        return Command.response(body=await encoded(body, len(offsets)))

    async def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        store = self._core.store
        found = (
            store.max_offset(topic, queue_id)
            if timestamp < 0
            else await store.offset_at_time(topic, queue_id, timestamp, BoundaryType.LOWER)
        )
        return max(found, 0)

    def _by_queue(self, topic: str, offsets: dict[int, int]) -> dict[MessageQueue, int]:
        name = self._core.config.current.broker_name
        return {MessageQueue(topic, name, queue_id): offset for queue_id, offset in offsets.items()}

    async def _reset_by_clients(self, header: ResetOffsetRequestHeader, *, for_c: bool) -> Command:
        topic = self._core.topics.get(header.topic)
        if topic is None:
            return refuse(
                ResponseCode.SYSTEM_ERROR,
                "[reset-offset] reset offset failed, no topic in this broker. "
                f"topic={header.topic}",
            )
        offsets: dict[int, int] = {}
        for queue_id in range(topic.write_queue_nums):
            committed = self._core.offsets.query(header.group, header.topic, queue_id)
            if committed < 0:
                return refuse(
                    ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist"
                )
            found = await self._offset_at(header.topic, queue_id, header.timestamp)
            offsets[queue_id] = found if header.is_force or found < committed else committed
        group = self._members.consumers.group(header.group)
        if group is None or not group.channels:
            remark = (
                "Consumer not online, so can not reset offset, "
                f"Group: {header.group} Topic: {header.topic} Timestamp: {header.timestamp}"
            )
            return refuse(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        table = self._by_queue(header.topic, offsets)
        body = ResetOffsetBody(table).encode()
        if for_c:
            listed = tuple(
                MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, offset)
                for queue, offset in table.items()
            )
            body = ResetOffsetBodyForC(listed).encode()
        for channel in list(group.channels):
            _tell(
                channel,
                Command.request(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body=body, oneway=True
                ),
            )
        return Command.response(body=ResetOffsetBody(table).encode())


def _tell(channel: Channel, command: Command) -> None:
    try:
        channel.send_oneway(command)
    except RocketMQError as error:
        logger.info(
            "a consumer at %s could not be told of a reset: %s",
            channel.remote_address,
            error,
            extra=about(peer=channel.remote_address),
        )
