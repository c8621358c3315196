"""SEND_REPLY_MESSAGE (324, 325): push a reply to the client that asked.

It goes over that client's own connection (`ReplyMessageProcessor` of Apache). The
answer to the replier says whether the requester has taken the reply. With
`storeReplyMessageEnable` the reply is stored as well, whatever became of the push; then
the answer says where.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.send.send_requests import SendProcessor
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import FieldError, RocketMQError
from rocketmq_sdk.model.properties import REPLY_TO_CLIENT, TAGS, property_in_text
from rocketmq_sdk.model.route import join_address, unpack_host
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.protocol.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from rocketmq_sdk.remoting.channel import Channel, Continuation

    SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

PUSH_TIMEOUT: Final = 10.0
"""Seconds that a requester has to take a reply."""


class ReplyProcessor(SendProcessor):
    """Hands replies to waiting clients; the checks are those of every send."""

    def reply(self, channel: Channel, request: Command) -> Command | Continuation:
        """SEND_REPLY_MESSAGE with the long names of its fields."""
        return self._reply(channel, request, SendMessageRequestHeader.from_ext(request.ext_fields))

    def reply_v2(self, channel: Channel, request: Command) -> Command | Continuation:
        """SEND_REPLY_MESSAGE_V2."""
        return self._reply(
            channel, request, SendMessageRequestHeaderV2.from_ext(request.ext_fields)
        )

    def _reply(
        self, channel: Channel, request: Command, header: SendHeader
    ) -> Command | Continuation:
        if not request.body:
            raise FieldError("a reply without a body cannot be handed on")
        ext = {
            "b": header.topic,
            "c": header.default_topic,
            "d": str(header.default_topic_queue_nums),
            "k": str(bool(header.unit_mode)).lower(),
        }
        config = self._check(ext, header.topic)
        if isinstance(config, Command):
            return config
        queue_id = (
            header.queue_id
            if header.queue_id >= 0
            else random.randrange(max(1, config.write_queue_nums))
        )
        text = header.properties or ""
        if text and not text.endswith("\x02"):
            text += "\x02"
        message = MessageToStore(
            header.topic,
            queue_id,
            request.body,
            text,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=channel.remote_host_packed,
            reconsume_times=header.reconsume_times or 0,
            tags_code=tags_code(property_in_text(text, TAGS)),
        )

        async def answer() -> Command:
            problem = await self._push(header, message, channel)
            return await self._answer(message, problem)

        return answer

    async def _push(
        self, header: SendHeader, message: MessageToStore, replier: Channel
    ) -> str | None:
        """Hand a reply to its requester; the reason when that does not work."""
        client_id = property_in_text(message.properties, REPLY_TO_CLIENT)
        if client_id is None:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        core = self._core
        channel = self._members.producers.channel_of(client_id)
        if channel is None or channel.closed:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = core.clock.now_ms()
        added = (
            f"PUSH_REPLY_TIME\x01{now}\x02MSG_REGION\x01{self.region}\x02"
            f"TRACE_ON\x01{self.trace}\x02"
        )
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=message.queue_id,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=message.properties + added,
            reconsume_times=message.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=join_address(*unpack_host(replier.remote_host_packed)),
            store_host=core.address(),
            store_timestamp=now,
        )
        try:
            response = await channel.call(
                Command.request(
                    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, body=message.body
                ),
                PUSH_TIMEOUT,
            )
        except RocketMQError as error:
            return f"push reply message to {client_id}fail. {error}"
        if response.code:
            return (
                f"push reply message to {client_id} fail. response code: {int(response.code)}, "
                f"{response.remark}"
            )
        return None

    async def _answer(self, message: MessageToStore, problem: str | None) -> Command:
        """Store the reply if configured, and answer the replier."""
        fields = {
            "msgId": "0",
            "queueId": str(message.queue_id),
            "queueOffset": "0",
            "MSG_REGION": self.region,
            "TRACE_ON": self.trace,
        }
        if self._core.config.current.store_reply_message_enable:
            result = self._intake.put(message)
            if result.ok:
                stats = self._stats
                stats.put(message.topic, message.queue_id, result.count, result.size)
                if stats.figures is not None:
                    stats.figures.put_text(
                        message.topic, message.properties, result.count, result.size
                    )
                fields["msgId"] = f"{self._host_hex}{result.physical_offset:016X}"
                fields["queueOffset"] = str(result.queue_offset)
            else:
                self._stats.put_failed += 1
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        return Command(code, flag=FLAG_RESPONSE, remark=problem, ext_fields=fields)
