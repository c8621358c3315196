"""Requests that running consumers answer: codes 223, 307, 309.

They are the consumers' progress, their running info, and consuming one message now.
Follows `AdminBrokerProcessor` and `Broker2Client` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import WHOLE_FRAME, Cost, Request, refuse
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError, RequestTimeoutError, RocketMQError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.bodies.offsets import GetConsumerStatusBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.connections import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocketmq_sdk.protocol.headers.offsets import GetConsumerStatusRequestHeader
from rocketmq_sdk.protocol.message_id import parse_offset_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.client_channel import ClientChannel
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.remoting.channel import Channel, Continuation

logger = logging.getLogger(__name__)

CLIENT_TIMEOUT: Final = 10.0
"""Seconds that a consumer has for its answer to 307 and 309."""
STATUS_TIMEOUT: Final = 5.0
"""Seconds that each consumer has for its answer to 223."""


class LiveConsumerRequests:
    """Asks consumers that run now."""

    __slots__ = ("_core", "_members")

    def __init__(self, core: Core, members: MemberPart) -> None:
        self._core = core
        self._members = members

    def requests(self) -> Iterable[Request]:
        """One member or all members of a group."""
        return (
            Request(
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                self.consumer_status,
                needs.topic_and_group(Action.GET, "group"),
                GetConsumerStatusRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                self.running_info,
                needs.group(Action.GET),
                GetConsumerRunningInfoRequestHeader,
            ),
            Request(
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                self.consume_directly,
                needs.topic_and_group(Action.SUB),
                ConsumeMessageDirectlyResultRequestHeader,
                connection=True,
                body_limit=WHOLE_FRAME,
                cost=Cost.MESSAGES,
            ),
        )

    def consumer_status(self, header: GetConsumerStatusRequestHeader) -> Command | Continuation:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): progress told by members."""
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
                        extra=about(group=header.group),
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

    def consume_directly(
        self,
        _channel: Channel,
        command: Command,
        header: ConsumeMessageDirectlyResultRequestHeader,
    ) -> Command | Continuation:
        """CONSUME_MESSAGE_DIRECTLY (309): a member consumes a stored message."""
        if not header.msg_id:
            return self._consume(command.body, header)
        try:
            _host, _port, physical = parse_offset_id(header.msg_id)
        except ConfigurationError as error:
            return refuse(ResponseCode.SYSTEM_ERROR, f"{error}; give the offset message id")

        async def consume_stored() -> Command | None:
            found = await self._core.store.record_cold(physical)
            if found is None:
                return refuse(
                    ResponseCode.SYSTEM_ERROR,
                    f"no message is stored here under the id {header.msg_id}",
                )
            answer = self._consume(found, header)
            return await answer() if callable(answer) else answer

        return consume_stored

    def _consume(
        self, body: bytes, header: ConsumeMessageDirectlyResultRequestHeader
    ) -> Command | Continuation:
        config = self._core.config.current
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
