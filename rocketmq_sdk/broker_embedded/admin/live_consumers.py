"""Requests that reach running consumers: reset of offsets (222), progress (223),
running info (307), consume one message now (309).

Follows `AdminBrokerProcessor` and `Broker2Client` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes, refuse
from rocketmq_sdk.codes import LanguageCode, RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError, RequestTimeoutError, RocketMQError
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.offsets import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.connections import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocketmq_sdk.protocol.headers.offsets import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketmq_sdk.protocol.message_id import parse_offset_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.clients import ClientChannel
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.pull.part import PullPart
    from rocketmq_sdk.remoting.channel import Channel, Continuation

logger = logging.getLogger(__name__)

CLIENT_TIMEOUT: Final = 10.0
"""Seconds that a consumer has for its answer to 307 and 309."""
STATUS_TIMEOUT: Final = 5.0


class LiveConsumerRequests:
    """What reaches consumers that run now."""

    def __init__(self, core: Core, members: MemberPart, pull: PullPart) -> None:
        self._core = core
        self._members = members
        self._pull = pull

    def requests(self) -> Iterable[Request]:
        """The rows."""
        return (
            Request(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                self.reset_offset,
                ResetOffsetRequestHeader,
                raw=True,
                cost=Cost.FILES,
                writes=Writes.OFFSETS,
            ),
            Request(
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                self.consumer_status,
                GetConsumerStatusRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                self.running_info,
                GetConsumerRunningInfoRequestHeader,
            ),
            Request(
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                self.consume_directly,
                ConsumeMessageDirectlyResultRequestHeader,
                raw=True,
                cost=Cost.MESSAGES,
            ),
        )

    def reset_offset(self, _channel: Channel, command: Command) -> Command:
        """INVOKE_BROKER_TO_RESET_OFFSET (222): the next pull of each queue is answered
        with the new offset, or the clients are told.
        """
        header = ResetOffsetRequestHeader.from_ext(command.ext_fields)
        if not self._core.config.current.use_server_side_reset_offset:
            return self._reset_by_clients(header, for_c=command.language is LanguageCode.CPP)
        topic = self._core.topics.get(header.topic)
        if topic is None:
            return refuse(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if self._core.groups.find_existing(header.group) is None:
            return refuse(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist"
            )
        offsets: dict[int, int] = {}
        for queue_id in (
            [header.queue_id] if header.queue_id >= 0 else range(topic.write_queue_nums)
        ):
            if header.queue_id >= 0 and header.offset is not None and header.offset >= 0:
                low, high = (
                    self._core.store.min_offset(header.topic, queue_id),
                    self._core.store.max_offset(header.topic, queue_id),
                )
                if not low <= header.offset <= high + 1:
                    return refuse(
                        ResponseCode.SYSTEM_ERROR,
                        f"Target offset {header.offset} not in consume queue range [{low}-{high}]",
                    )
                offsets[queue_id] = header.offset
            else:
                offsets[queue_id] = self._offset_at(header.topic, queue_id, header.timestamp)
        for queue_id, offset in offsets.items():
            self._core.offsets.assign_reset(header.group, header.topic, queue_id, offset)
            # Apache's broker lets a consumer notice when its held pull is over; here it
            # is told at once.
            self._pull.held.wake_queue(header.topic, queue_id)
        logger.info("group %s is reset in topic %s to %s", header.group, header.topic, offsets)
        return Command.response(
            body=ResetOffsetBody(self._by_queue(header.topic, offsets)).encode()
        )

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        store = self._core.store
        found = (
            store.max_offset(topic, queue_id)
            if timestamp < 0
            else store.offset_by_time(topic, queue_id, timestamp, BoundaryType.LOWER)
        )
        return max(found, 0)

    def _by_queue(self, topic: str, offsets: dict[int, int]) -> dict[MessageQueue, int]:
        name = self._core.config.current.broker_name
        return {MessageQueue(topic, name, queue_id): offset for queue_id, offset in offsets.items()}

    def _reset_by_clients(self, header: ResetOffsetRequestHeader, *, for_c: bool) -> Command:
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
            found = self._offset_at(header.topic, queue_id, header.timestamp)
            offsets[queue_id] = found if header.is_force or found < committed else committed
        group = self._members.consumers.group(header.group)
        if group is None or not group.channels:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: "
                f"{header.topic} Timestamp: {header.timestamp}"
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

    def consumer_status(self, header: GetConsumerStatusRequestHeader) -> Command | Continuation:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): how far each member is, asked
        from the members.
        """
        group = self._members.consumers.group(header.group)
        members = [] if group is None else list(group.channels.values())
        if not members:
            return refuse(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        asked = [
            member
            for member in members
            if not header.client_addr or member.client_id == header.client_addr
        ]

        async def ask_all() -> Command:
            table: dict[str, dict[MessageQueue, int]] = {}

            async def ask(member: ClientChannel) -> None:
                question = Command.request(
                    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                    GetConsumerStatusRequestHeader(topic=header.topic, group=header.group),
                )
                try:
                    answer = await member.channel.call(question, STATUS_TIMEOUT)
                    if answer.code == ResponseCode.SUCCESS and answer.body:
                        table[member.client_id] = GetConsumerStatusBody.decode(
                            answer.body
                        ).message_queue_table
                except RocketMQError as error:
                    logger.info(
                        "the consumer %s of group %s does not tell its progress: %s",
                        member.client_id,
                        header.group,
                        error,
                    )

            async with trio.open_nursery() as nursery:
                for member in asked:
                    nursery.start_soon(ask, member)
            return Command.response(body=GetConsumerStatusBody(consumer_table=table).encode())

        return ask_all

    def running_info(self, header: GetConsumerRunningInfoRequestHeader) -> Command | Continuation:
        """GET_CONSUMER_RUNNING_INFO (307): asked from the member."""
        return self._forwarded(
            header.consumer_group,
            header.client_id,
            Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header),
        )

    def consume_directly(self, _channel: Channel, command: Command) -> Command | Continuation:
        """CONSUME_MESSAGE_DIRECTLY (309): the stored message goes to the member, whose
        listener takes it now.
        """
        header = ConsumeMessageDirectlyResultRequestHeader.from_ext(command.ext_fields)
        config = self._core.config.current
        body = command.body
        if header.msg_id:
            try:
                _host, _port, physical = parse_offset_id(header.msg_id)
            except ConfigurationError as error:
                return refuse(ResponseCode.SYSTEM_ERROR, f"{error}; give the offset message id")
            found = self._core.store.record_at(physical)
            if found is None:
                return refuse(
                    ResponseCode.SYSTEM_ERROR,
                    f"no message is stored here under the id {header.msg_id}",
                )
            body = bytes(found)
        topic = self._core.topics.get(header.topic) if header.topic else None
        group = self._core.groups.find_existing(header.consumer_group)
        header.broker_name = config.broker_name
        header.topic_sys_flag = None if topic is None else topic.topic_sys_flag
        header.group_sys_flag = None if group is None else group.group_sys_flag
        question = Command.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, body=body)
        return self._forwarded(header.consumer_group, header.client_id or "", question)

    def _forwarded(
        self, group_name: str, client_id: str, question: Command
    ) -> Command | Continuation:
        group = self._members.consumers.group(group_name)
        member = None if group is None else group.find(client_id)
        if member is None:
            return refuse(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online"
            )

        async def ask() -> Command:
            try:
                answer = await member.channel.call(question, CLIENT_TIMEOUT)
            except RequestTimeoutError as error:
                return refuse(
                    ResponseCode.CONSUME_MSG_TIMEOUT,
                    f"consumer <{group_name}> <{client_id}> Timeout: {error}",
                )
            except RocketMQError as error:
                return refuse(
                    ResponseCode.SYSTEM_ERROR,
                    f"invoke consumer <{group_name}> <{client_id}> Exception: {error}",
                )
            relayed = Command.response(answer.code, remark=answer.remark, body=answer.body)
            relayed.ext_fields = dict(answer.ext_fields)
            return relayed

        return ask


# -- offsets


def _tell(channel: Channel, command: Command) -> None:
    try:
        channel.send_oneway(command)
    except RocketMQError as error:
        logger.info(
            "a consumer at %s could not be told of a reset: %s", channel.remote_address, error
        )


# -- forwarded
