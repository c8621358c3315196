"""Who is connected and who consumes what: 203, 204, 328, 300, 343, 345."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.handlers import Serve, bind_all, refused
from rocketmq_sdk.codes import LanguageCode, RequestCode, ResponseCode
from rocketmq_sdk.protocol.bodies.connections import (
    ClientConnection,
    ConsumerConnection,
    GroupList,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
)
from rocketmq_sdk.protocol.bodies.topics import TopicList
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import connections as headers
from rocketmq_sdk.protocol.headers.connections import QueryTopicConsumeByWhoRequestHeader

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.broker_embedded.members.clients import ClientChannel
    from rocketmq_sdk.remoting.channel import Handler


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def _language(client: ClientChannel) -> LanguageCode:
    return LanguageCode.OTHER if client.language is None else client.language


def _connection(client: ClientChannel) -> ClientConnection:
    return ClientConnection(
        client.client_id, client.channel.remote_address, _language(client), client.version
    )


def consumer_connections(context: BrokerContext, command: Command) -> Command:
    """GET_CONSUMER_CONNECTION_LIST (203)."""
    name = headers.GetConsumerConnectionListRequestHeader.from_ext(
        command.ext_fields
    ).consumer_group
    group = context.consumers.group(name)
    if group is None:
        return refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
    body = ConsumerConnection(
        tuple(_connection(client) for client in group.channels.values()),
        dict(group.subscriptions),
        group.consume_type,
        group.message_model,
        group.consume_from,
    )
    return Command.response(body=body.encode())


def producer_connections(context: BrokerContext, command: Command) -> Command:
    """GET_PRODUCER_CONNECTION_LIST (204)."""
    name = headers.GetProducerConnectionListRequestHeader.from_ext(
        command.ext_fields
    ).producer_group
    members = context.producers.members(name)
    if not members:
        return refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
    return Command.response(
        body=ProducerConnection(tuple(_connection(client) for client in members)).encode()
    )


def all_producers(context: BrokerContext, _command: Command) -> Command:
    """GET_ALL_PRODUCER_INFO (328)."""
    data = {
        group: tuple(_producer(client) for client in clients)
        for group, clients in context.producers.all().items()
    }
    return Command.response(body=ProducerTableInfo(data).encode())


def _producer(client: ClientChannel) -> ProducerInfo:
    # Apache writes a Java socket address here, which begins with a slash.
    address = f"/{client.channel.remote_address}"
    return ProducerInfo(
        client.client_id, address, _language(client), client.version, client.last_update_ms
    )


def groups_of_topic(context: BrokerContext, command: Command) -> Command:
    """QUERY_TOPIC_CONSUME_BY_WHO (300): groups that are online or have offsets."""
    topic = QueryTopicConsumeByWhoRequestHeader.from_ext(command.ext_fields).topic
    # Offsets of broadcasting groups are kept under names that no group can have; Apache
    # leaves them out here too.
    stored = {group for group in context.offsets.groups_of(topic) if "@" not in group}
    groups = context.consumers.topic_consumers(topic) | stored
    return Command.response(body=GroupList(tuple(sorted(groups))).encode())


def topics_of_group(context: BrokerContext, command: Command) -> Command:
    """QUERY_TOPICS_BY_CONSUMER (343): topics in which a group has offsets."""
    group = headers.QueryTopicsByConsumerRequestHeader.from_ext(command.ext_fields).group
    return Command.response(
        body=TopicList(tuple(sorted(context.offsets.topics_of(group))), context.address()).encode()
    )


def subscription_of_group(context: BrokerContext, command: Command) -> Command:
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345): none when the group is offline."""
    header = headers.QuerySubscriptionByConsumerRequestHeader.from_ext(command.ext_fields)
    topic = header.topic or ""
    subscription = context.consumers.subscription(header.group, topic)
    return Command.response(
        body=QuerySubscriptionResponseBody(header.group, topic, subscription).encode()
    )


_SERVED: Final[dict[RequestCode, Serve]] = {
    RequestCode.GET_CONSUMER_CONNECTION_LIST: consumer_connections,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: producer_connections,
    RequestCode.GET_ALL_PRODUCER_INFO: all_producers,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: groups_of_topic,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: topics_of_group,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: subscription_of_group,
}
