"""RECALL_MESSAGE (370): recall a message before its time.

`RecallMessageProcessor` of Apache. What is stored is a message for the same slot of the
timer wheel that names the other one by its unique key; both are dropped when the slot
is due. So SUCCESS means that this was stored, not that a message was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.broker_embedded.timers.intake import STORED
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.model.properties import encode_properties
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.protocol.headers.timers import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)
from rocketmq_sdk.protocol.recall_handle import RecallHandle, decode_recall_handle
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.store.messages import PutResult
    from rocketmq_sdk.broker_embedded.timers.intake import Intake
    from rocketmq_sdk.remoting.channel import Channel

RECALL_TAG: Final = "_RECALL_TAG_"
_NOT_AVAILABLE: Final = "recall failed, broker service not available"


class RecallProcessor:
    """Checks the handle and stores what takes the message back."""

    __slots__ = ("_core", "_intake")

    def __init__(self, core: Core, intake: Intake) -> None:
        self._core = core
        self._intake = intake

    def recall(
        self, channel: Channel, _request: Command, header: RecallMessageRequestHeader
    ) -> Command | Callable[[], Awaitable[Command]]:
        """Serve one request; the checks are in Apache's order."""
        refusal = self._not_served()
        if refusal is not None:
            return self._answer(*refusal)
        if self._core.topics.get(header.topic) is None:
            return self._answer(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
            )
        try:
            handle = decode_recall_handle(header.recall_handle)
        except RemoteProtocolError as error:
            return self._answer(ResponseCode.ILLEGAL_OPERATION, str(error))
        problem = self._problem(header, handle)
        if problem is not None:
            return self._answer(ResponseCode.ILLEGAL_OPERATION, problem)
        message = self._deletion(channel, header, handle)
        result = self._intake.put(message)
        if result.status not in STORED:
            return self._answer(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        self._core.stats.put(message.topic, message.queue_id, result.count, result.size)
        response = self._answer(
            ResponseCode.SUCCESS, None, RecallMessageResponseHeader(msg_id=handle.unique_key)
        )
        return self._later(response, result) if self._core.store.needs_wait else response

    def _not_served(self) -> tuple[int, str] | None:
        """Why this broker takes nothing back now."""
        config = self._core.config.current
        if not config.recall_message_enable:
            return ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"
        not_yet = self._core.clock.now_ms() < config.start_accept_send_request_time_stamp
        writable = (
            config.broker_permission & Permission.WRITE
            or config.allow_recall_when_broker_not_writeable
        )
        return (
            (ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_AVAILABLE)
            if not_yet or not writable
            else None
        )

    def _problem(self, header: RecallMessageRequestHeader, handle: RecallHandle) -> str | None:
        """What is wrong with a handle."""
        config = self._core.config.current
        if not (handle.unique_key + (header.producer_group or "")).isprintable():
            return "recall handle is invalid"
        if header.topic != handle.topic:
            return "recall failed, topic not match"
        if config.broker_name != handle.broker_name:
            return _NOT_AVAILABLE
        text = handle.timestamp
        timestamp = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
        left_ms = timestamp - self._core.clock.now_ms()
        return (
            None
            if 0 < left_ms < config.store.timer_max_delay_sec * 1000
            else "recall failed, timestamp invalid"
        )

    def _deletion(
        self, channel: Channel, header: RecallMessageRequestHeader, handle: RecallHandle
    ) -> MessageToStore:
        now = self._core.clock.now_ms()
        properties = {
            "TAGS": RECALL_TAG,
            "TIMER_DEL_UNIQKEY": handle.unique_key,
            "UNIQ_KEY": handle.unique_key,
            "TIMER_DELIVER_MS": handle.timestamp,
            "BORN_TIMESTAMP": str(now),
            "PGROUP": header.producer_group,
        }
        message = MessageToStore(
            handle.topic,
            0,
            b"0",
            encode_properties(properties),
            born_timestamp=now,
            tags_code=tags_code(RECALL_TAG),
        )
        message.born_host = channel.remote_host_packed
        return message

    def _later(self, response: Command, result: PutResult) -> Callable[[], Awaitable[Command]]:
        store = self._core.store

        async def answer() -> Command:
            if await store.wait_durable(result) in STORED:
                return response
            return self._answer(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")

        return answer

    def _answer(
        self, code: int, remark: str | None, header: RecallMessageResponseHeader | None = None
    ) -> Command:
        fields = {} if header is None else header.to_ext()
        fields["MSG_REGION"] = self._core.config.current.region_id
        return Command(code, flag=FLAG_RESPONSE, remark=remark, ext_fields=fields)
