"""Requests about assignment: codes 400, 401, 402.

Which member reads which queues, and whether a group pulls or pops them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.core import FAQ
from rocketmq_sdk.broker_embedded.members.assignment import assign
from rocketmq_sdk.codes import ResponseCode
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

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.assignment import TopicQueues
    from rocketmq_sdk.broker_embedded.members.consumers import ConsumerManager
    from rocketmq_sdk.broker_embedded.members.request_modes import RequestModeManager
    from rocketmq_sdk.model.queue import MessageQueue

    Answer = Command | Callable[[], Awaitable[Command | None]]


class AssignmentProcessor:
    """Shares queues out."""

    def __init__(
        self,
        core: Core,
        consumers: ConsumerManager,
        modes: RequestModeManager,
        topic_queues: TopicQueues,
    ) -> None:
        self._core = core
        self._consumers = consumers
        self._modes = modes
        self._topic_queues = topic_queues

    def query(self, body: QueryAssignmentRequestBody) -> Answer:
        """The queues of the member that asks."""
        queues = self._topic_queues.known(body.topic)
        if queues is not None:
            return self._answer(body, queues)

        async def ask() -> Command:
            return self._answer(body, await self._topic_queues.ask(body.topic))

        return ask

    def _answer(self, body: QueryAssignmentRequestBody, queues: list[MessageQueue]) -> Command:
        config = self._core.config.current
        mode = self._modes.get(body.topic, body.consumer_group)
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
            self._consumers.client_ids(body.consumer_group),
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

    def set_mode(self, body: SetMessageRequestModeRequestBody) -> Answer:
        """A group pulls a topic, or pops it, from now on."""
        topic, group = body.topic or "", body.consumer_group or ""
        if topic.startswith(RETRY_PREFIX):
            return Command.response(
                ResponseCode.NO_PERMISSION, remark="retry topic is not allowed to set mode"
            )
        if self._core.topics.get(topic) is None:
            return Command.response(
                ResponseCode.TOPIC_NOT_EXIST,
                remark=f"topic[{topic}] not exist, apply first please! {FAQ}",
            )
        if self._core.groups.get(group) is None:
            return Command.response(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                remark=f"subscription group [{group}] does not exist, {FAQ}",
            )

        async def answer() -> Command:
            await self._modes.set(body)
            return Command.response()

        return answer

    def all_modes(self) -> Command:
        """The modes of all groups, as replicas ask for them."""
        return Command.response(body=self._modes.wrapper().encode())
