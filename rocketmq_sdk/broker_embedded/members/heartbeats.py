"""Clients: heartbeats (34), leaving (35), members (38), subscription checks (46).

`ClientManageProcessor` and `ConsumerManageProcessor` of Apache RocketMQ 5.4.0. A client
is known by its connection: what a heartbeat registers belongs to the connection it came
on, and ends with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.filter.consumer_filters import AT_ONCE
from rocketmq_sdk.broker_embedded.members.client_channel import ClientChannel
from rocketmq_sdk.broker_embedded.slices import SLICE, slices
from rocketmq_sdk.broker_embedded.tables.topics import UNIT_SUBSCRIPTION_FLAG
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import FilterSyntaxError
from rocketmq_sdk.names import retry_topic
from rocketmq_sdk.protocol.bodies.members import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
)
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.filter.part import FilterPart
    from rocketmq_sdk.broker_embedded.members.consumers import ConsumerManager
    from rocketmq_sdk.broker_embedded.members.producers import ProducerManager
    from rocketmq_sdk.protocol.headers.members import (
        GetConsumerListByGroupRequestHeader,
        UnregisterClientRequestHeader,
    )
    from rocketmq_sdk.remoting.channel import Channel, Continuation


class ClientProcessor:
    """Keeps the tables of consumers and producers."""

    def __init__(
        self,
        core: Core,
        consumers: ConsumerManager,
        producers: ProducerManager,
        filters: FilterPart,
    ) -> None:
        self._core = core
        self._consumers = consumers
        self._producers = producers
        self._filters = filters
        self._fingerprints: dict[str, int] = {}
        """Of groups with members; nobody has to be known because of a name."""
        consumers.group_left.append(self.forget_group)

    def forget_group(self, group: str) -> None:
        """A group is gone: its next heartbeat has to bring everything."""
        self._fingerprints.pop(group, None)

    def heartbeat(
        self, channel: Channel, request: Command, data: HeartbeatData
    ) -> Command | Continuation:
        """Register a client in the groups that its body names.

        A body with a fingerprint and without subscriptions only says that the client is
        alive. The answer asks for the subscriptions when the group is not known any
        more, or when its last fingerprint was another one.
        """
        core = self._core
        clock = core.clock
        client = ClientChannel(
            channel,
            data.client_id,
            request.language,
            request.version,
            clock.monotonic(),
            clock.now_ms(),
        )
        consumers = data.consumer_data_set
        beside = _is_long(consumers)
        if len(consumers) <= SLICE and not beside:
            changed = self._take(channel, data, client, consumers)
            self._register_producers(channel, client, data)
            return _heartbeat_answer(changed=changed)

        async def in_slices() -> Command:
            changed = False
            async for some in slices(consumers):
                if channel.closed:
                    break
                changed = self._take(channel, data, client, some, beside=beside) or changed
            else:
                self._register_producers(channel, client, data)
            for consumer in consumers if beside and not data.without_sub else ():
                await self._register_expressions(consumer)
            return _heartbeat_answer(changed=changed)

        return in_slices

    async def _register_expressions(self, data: ConsumerData) -> None:
        """Those of a group with members now; it may have none behind that."""
        group, expressions = data.group_name, self._filters.expressions
        if self._consumers.group(group) is not None:
            await expressions.register_beside(group, data.subscription_data_set)
            if self._consumers.group(group) is None:
                expressions.unregister(group)

    def _take(
        self,
        channel: Channel,
        data: HeartbeatData,
        client: ClientChannel,
        consumers: Sequence[ConsumerData],
        *,
        beside: bool = False,
    ) -> bool:
        """Register some of the consumers of a heartbeat; whether anything changed.

        With `beside` their expressions are left to the caller.
        """
        core = self._core
        with core.groups.together(), core.topics.together():
            if data.heartbeat_fingerprint:
                return self._take_v2(channel, data, client, consumers, beside=beside)
            for consumer in consumers:
                if channel.closed:  # it may be closed because of what is kept of it
                    break
                self._register_consumer(channel, client, consumer, beside=beside)
        return True

    def _take_v2(
        self,
        channel: Channel,
        data: HeartbeatData,
        client: ClientChannel,
        listed: Sequence[ConsumerData],
        *,
        beside: bool,
    ) -> bool:
        consumers = self._consumers
        changed = False
        for consumer in listed:
            if channel.closed:
                break
            name = consumer.group_name
            if self._fingerprints.get(name, data.heartbeat_fingerprint) != (
                data.heartbeat_fingerprint
            ):
                changed = True
            if not data.without_sub:
                self._register_consumer(channel, client, consumer, beside=beside)
            elif consumers.group(name) is None:
                changed = True
            else:
                consumers.refresh(channel, client, name)
            if consumers.group(name) is not None:
                self._fingerprints[name] = data.heartbeat_fingerprint
        return changed

    def _register_consumer(
        self, channel: Channel, client: ClientChannel, data: ConsumerData, *, beside: bool
    ) -> None:
        core = self._core
        config = core.groups.get(data.group_name)
        if config is None:
            return
        core.topics.create_retry(
            retry_topic(data.group_name),
            config.retry_queue_nums,
            sys_flag=UNIT_SUBSCRIPTION_FLAG if data.unit_mode else 0,
        )
        self._consumers.register(
            channel, client, data, notifies=config.notify_consumer_ids_changed_enable
        )
        if not beside:
            self._filters.expressions.register(data.group_name, data.subscription_data_set)

    def _register_producers(
        self, channel: Channel, client: ClientChannel, data: HeartbeatData
    ) -> None:
        if self._core.config.current.enable_register_producer:
            for group in data.producer_data_set:
                self._producers.register(group, channel, client)

    def unregister(
        self, channel: Channel, _request: Command, header: UnregisterClientRequestHeader
    ) -> Command:
        """A client leaves a producer group, a consumer group or both; never fails."""
        if header.producer_group:
            self._producers.unregister(header.producer_group, channel)
        if header.consumer_group:
            self._consumers.unregister(channel, header.consumer_group)
        return Command.response()

    def consumer_list(self, header: GetConsumerListByGroupRequestHeader) -> Command:
        """The client ids of a group's members."""
        group = header.consumer_group
        ids = self._consumers.client_ids(group)
        if not ids:
            return Command.response(
                ResponseCode.SYSTEM_ERROR, remark=f"no consumer for this group, {group}"
            )
        return Command.response(body=ConsumerList(tuple(ids)).encode())

    def check_config(self, body: CheckClientRequestBody) -> Command:
        """Check a subscription: tags are always fine, an expression must compile."""
        subscription = body.subscription_data
        if subscription is None or subscription.is_tag_type:
            return Command.response()
        self._filters.subscriptions.check_supported(subscription)
        try:
            self._filters.expressions.build(
                subscription.topic,
                body.group or "",
                subscription.sub_string,
                subscription.expression_type,
                0,
            )
        except FilterSyntaxError as error:
            return Command.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=str(error))
        return Command.response()


def _is_long(consumers: Sequence[ConsumerData]) -> bool:
    """Whether the expressions of a heartbeat take long to compile."""
    characters = 0
    for consumer in consumers:
        for subscription in consumer.subscription_data_set:
            if not subscription.is_tag_type:
                characters += len(subscription.sub_string)
    return characters > AT_ONCE


def _heartbeat_answer(*, changed: bool) -> Command:
    response = Command.response()
    response.ext_fields = {
        "IS_SUPPORT_HEART_BEAT_V2": "true",
        "IS_SUB_CHANGE": "true" if changed else "false",
    }
    return response
