"""Requests of brokers to a client, and which of its members answers them.

Follows `ClientRemotingProcessor` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.connections import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocketmq_sdk.protocol.headers.members import NotifyConsumerIdsChangedRequestHeader
from rocketmq_sdk.protocol.headers.offsets import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.remoting.dispatch import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.protocol.bodies.connections import (
        ConsumeMessageDirectlyResult,
        ConsumerRunningInfo,
    )
    from rocketmq_sdk.protocol.bodies.members import ConsumerData
    from rocketmq_sdk.remoting.channel import Channel, Continuation

    DirectConsumption = Callable[[], Awaitable[ConsumeMessageDirectlyResult]]

logger = logging.getLogger("rocketmq_sdk.client")


class ConsumerCallbacks:
    """What a consumer registered at a client offers.

    All methods are called synchronously, none may block; the defaults decline.
    """

    def heartbeat_data(self) -> ConsumerData:
        """The consumer's entry in the heartbeat, with its present subscriptions."""
        raise ConfigurationError(f"{type(self).__name__} offers no heartbeat data")

    def on_ids_changed(self) -> None:
        """The members of the group have changed: rebalance now."""

    def on_route_changed(self, topic: str) -> None:
        """The route of a topic in use is known or has changed: rebalance now."""

    def on_broker_connected(self, address: str) -> None:
        """A connection to a broker was opened, for the first time or again.

        The heartbeat is on its way.
        """

    def on_broker_disconnected(self, broker_name: str) -> None:
        """The connection to a broker has ended.

        It may be gone, and forget what it knew of the member.
        """

    def on_reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """An administrator resets the offsets of the group (220)."""

    # For those who override it.
    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:  # noqa: ARG002
        """The offsets that the consumer has reached in a topic (221)."""
        return {}

    # For those who override it.
    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo | None:  # noqa: ARG002
        """The state of the consumer (307); None when it cannot tell."""
        return None

    def consume_directly(
        self,
        message: ReceivedMessage,  # noqa: ARG002 - for those who override it
        broker_name: str | None,  # noqa: ARG002 - for those who override it
    ) -> DirectConsumption | None:
        """An async function that consumes one message now (309), or None.

        It returns a `ConsumeMessageDirectlyResult`; None means that the consumer does
        not.
        """
        return None


class ProducerCallbacks:
    """What a producer registered at a client offers.

    All methods are called synchronously, none may block; the defaults ignore.
    """

    def on_route_changed(self, topic: str) -> None:
        """The route of a topic in use has changed."""

    def on_check_transaction(self, command: Command, channel: Channel) -> None:
        """A broker asks for the outcome of a transaction of the group (39)."""

    def on_reply(self, command: Command) -> bool:  # noqa: ARG002 - for those who override it
        """A reply has come (326); True when it answers a request of this producer."""
        return False


def _answered(run: DirectConsumption) -> Continuation:
    async def answer() -> Command:
        return Command.response(body=(await run()).encode())

    return answer


_NO_GROUP: Final = "The Consumer Group <{}> not exist in this consumer"


class CallbackDispatch:
    """Serves the requests of brokers for registered producers and consumers.

    Others are answered as unknown (3).
    """

    def __init__(
        self, consumers: dict[str, ConsumerCallbacks], producers: dict[str, ProducerCallbacks]
    ) -> None:
        self._consumers = consumers
        self._producers = producers
        self.handler = Dispatcher(
            {
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed,
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._consumer_status,
                RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
                RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
                RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._reply,
            }
        )

    def _ids_changed(self, _channel: Channel, command: Command) -> None:
        group = NotifyConsumerIdsChangedRequestHeader.from_ext(command.ext_fields).consumer_group
        consumer = self._consumers.get(group)
        if consumer is not None:
            consumer.on_ids_changed()

    def _reset_offsets(self, _channel: Channel, command: Command) -> None:
        header = ResetOffsetRequestHeader.from_ext(command.ext_fields)
        consumer = self._consumers.get(header.group)
        if consumer is not None:
            offsets = ResetOffsetBody.decode(command.body).offset_table if command.body else {}
            consumer.on_reset_offsets(header.topic, offsets)

    def _consumer_status(self, _channel: Channel, command: Command) -> Command:
        header = GetConsumerStatusRequestHeader.from_ext(command.ext_fields)
        consumer = self._consumers.get(header.group)
        status = {} if consumer is None else consumer.consumer_status(header.topic)
        return Command.response(body=GetConsumerStatusBody(message_queue_table=status).encode())

    def _running_info(self, _channel: Channel, command: Command) -> Command:
        header = GetConsumerRunningInfoRequestHeader.from_ext(command.ext_fields)
        consumer = self._consumers.get(header.consumer_group)
        info = None if consumer is None else consumer.running_info(stacks=header.jstack_enable)
        if info is None:
            return Command.response(
                ResponseCode.SYSTEM_ERROR, remark=_NO_GROUP.format(header.consumer_group)
            )
        return Command.response(body=info.encode())

    def _consume_directly(self, _channel: Channel, command: Command) -> Command | Continuation:
        header = ConsumeMessageDirectlyResultRequestHeader.from_ext(command.ext_fields)
        consumer = self._consumers.get(header.consumer_group)
        if consumer is not None:
            run = consumer.consume_directly(
                decode_message(command.body, broker_name=header.broker_name or ""),
                header.broker_name,
            )
            if run is not None:
                return _answered(run)
        return Command.response(
            ResponseCode.SYSTEM_ERROR, remark=_NO_GROUP.format(header.consumer_group)
        )

    def _check_transaction(self, channel: Channel, command: Command) -> None:
        group = decode_message(command.body, inflate=False).properties.get("PGROUP", "")
        producer = self._producers.get(group)
        if producer is None:
            logger.debug(
                "a check of a transaction of group %r is ignored: no such producer here",
                group,
                extra=about(group=group),
            )
        else:
            producer.on_check_transaction(command, channel)

    def _reply(self, _channel: Channel, command: Command) -> Command:
        # The group in the header is that of the replier: requests are found by their
        # correlation id. Answered with success even when nobody waits, as Apache's
        # client does.
        if not any(producer.on_reply(command) for producer in list(self._producers.values())):
            logger.debug("a reply is dropped: nobody waits for it")
        return Command.response()
