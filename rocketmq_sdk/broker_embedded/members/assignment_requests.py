"""QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401), GET_ALL_MESSAGE_REQUEST_MODE
(402): who reads which queues, and how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.core import FAQ
from rocketmq_sdk.broker_embedded.members.assignment import assign
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.names import RETRY_PREFIX
from rocketmq_sdk.protocol.bodies.members import (
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.remoting.channel import Channel, Handler

    Answer = Command | Callable[[], Awaitable[Command | None]]


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The table of this module."""
    processor = AssignmentProcessor(context)
    return {
        RequestCode.QUERY_ASSIGNMENT: processor.query,
        RequestCode.SET_MESSAGE_REQUEST_MODE: processor.set_mode,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: processor.all_modes,
    }


class AssignmentProcessor:
    """Shares queues out."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def query(self, _channel: Channel, request: Command) -> Answer:
        """The queues of the member that asks."""
        body = QueryAssignmentRequestBody.decode(request.body)
        queues = self._context.topic_queues.known(body.topic)
        if queues is not None:
            return self._answer(body, queues)

        async def ask() -> Command:
            return self._answer(body, await self._context.topic_queues.ask(body.topic))

        return ask

    def _answer(self, body: QueryAssignmentRequestBody, queues: list[MessageQueue]) -> Command:
        context = self._context
        config = context.config.current
        mode = context.pop.modes.get(body.topic, body.consumer_group)
        if mode is None:
            retried = body.topic.startswith(RETRY_PREFIX)
            default = MessageRequestMode.PULL if retried else config.default_message_request_mode
            mode = SetMessageRequestModeRequestBody(
                body.topic,
                body.consumer_group,
                default,
                0 if retried else config.default_pop_share_queue_num,
            )
        found = assign(
            queues,
            context.consumers.client_ids(body.consumer_group),
            body.client_id,
            mode=mode.mode,
            strategy=body.strategy_name,
            model=body.message_model,
            share=mode.pop_share_queue_num,
            balances=config.server_load_balancer_enable,
        )
        return Command.response(
            body=QueryAssignmentResponseBody(None if found is None else tuple(found)).encode()
        )

    def set_mode(self, _channel: Channel, request: Command) -> Command:
        """A group pulls a topic, or pops it, from now on."""
        body = SetMessageRequestModeRequestBody.decode(request.body)
        topic, group = body.topic or "", body.consumer_group or ""
        if topic.startswith(RETRY_PREFIX):
            return Command.response(
                ResponseCode.NO_PERMISSION, remark="retry topic is not allowed to set mode"
            )
        if self._context.topics.get(topic) is None:
            return Command.response(
                ResponseCode.TOPIC_NOT_EXIST,
                remark=f"topic[{topic}] not exist, apply first please! {FAQ}",
            )
        if self._context.groups.get(group) is None:
            return Command.response(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                remark=f"subscription group [{group}] does not exist, {FAQ}",
            )
        self._context.pop.modes.set(body)
        return Command.response()

    def all_modes(self, _channel: Channel, _request: Command) -> Command:
        """The modes of all groups, as replicas ask for them."""
        return Command.response(body=self._context.pop.modes.wrapper().encode())
