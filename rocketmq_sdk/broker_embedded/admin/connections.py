"""Who is connected and who consumes what: 203, 204, 328, 300, 343, 345."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Cost, Request, refuse
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
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.client_channel import ClientChannel
    from rocketmq_sdk.broker_embedded.members.part import MemberPart


class ConnectionRequests:
    """Who is connected, and who consumes what."""

    __slots__ = ("_core", "_members")

    def __init__(self, core: Core, members: MemberPart) -> None:
        self._core = core
        self._members = members

    def requests(self) -> Iterable[Request]:
        """Connections of groups, then who consumes what."""
        return (
            Request(
                RequestCode.GET_CONSUMER_CONNECTION_LIST,
                self.consumer_connections,
                needs.group(Action.GET),
                headers.GetConsumerConnectionListRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                self.producer_connections,
                needs.cluster(Action.GET),
                headers.GetProducerConnectionListRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_ALL_PRODUCER_INFO,
                self.all_producers,
                needs.cluster(Action.GET),
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
                self.groups_of_topic,
                needs.topic(Action.GET),
                QueryTopicConsumeByWhoRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.QUERY_TOPICS_BY_CONSUMER,
                self.topics_of_group,
                needs.group(Action.GET, "group"),
                headers.QueryTopicsByConsumerRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
                self.subscription_of_group,
                needs.topic_and_group(Action.GET, "group"),
                headers.QuerySubscriptionByConsumerRequestHeader,
            ),
        )

    def consumer_connections(
        self, header: headers.GetConsumerConnectionListRequestHeader
    ) -> Command:
        """GET_CONSUMER_CONNECTION_LIST (203)."""
        name = header.consumer_group
        group = self._members.consumers.group(name)
        if group is None:
            return refuse(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        body = ConsumerConnection(
            tuple(_connection(client) for client in group.channels.values()),
            dict(group.subscriptions),
            group.consume_type,
            group.message_model,
            group.consume_from,
        )
        return Command.response(body=body.encode())

    def producer_connections(
        self, header: headers.GetProducerConnectionListRequestHeader
    ) -> Command:
        """GET_PRODUCER_CONNECTION_LIST (204)."""
        name = header.producer_group
        members = self._members.producers.members(name)
        if not members:
            return refuse(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return Command.response(
            body=ProducerConnection(tuple(_connection(client) for client in members)).encode()
        )

    def all_producers(self) -> Command:
        """GET_ALL_PRODUCER_INFO (328)."""
        data = {
            group: tuple(_producer(client) for client in clients)
            for group, clients in self._members.producers.all().items()
        }
        return Command.response(body=ProducerTableInfo(data).encode())

    def groups_of_topic(self, header: QueryTopicConsumeByWhoRequestHeader) -> Command:
        """QUERY_TOPIC_CONSUME_BY_WHO (300): groups that are online or have offsets."""
        topic = header.topic
        # Offsets of broadcasting groups are kept under names that no group can have;
        # Apache leaves them out here too.
        stored = {group for group in self._core.offsets.groups_of(topic) if "@" not in group}
        groups = self._members.consumers.topic_consumers(topic) | stored
        return Command.response(body=GroupList(tuple(sorted(groups))).encode())

    def topics_of_group(self, header: headers.QueryTopicsByConsumerRequestHeader) -> Command:
        """QUERY_TOPICS_BY_CONSUMER (343): topics in which a group has offsets."""
        group = header.group
        return Command.response(
            body=TopicList(
                tuple(sorted(self._core.offsets.topics_of(group))), self._core.address()
            ).encode()
        )

    def subscription_of_group(
        self, header: headers.QuerySubscriptionByConsumerRequestHeader
    ) -> Command:
        """QUERY_SUBSCRIPTION_BY_CONSUMER (345): none when the group is offline."""
        topic = header.topic or ""
        subscription = self._members.consumers.subscription(header.group, topic)
        return Command.response(
            body=QuerySubscriptionResponseBody(header.group, topic, subscription).encode()
        )


def _language(client: ClientChannel) -> LanguageCode:
    return LanguageCode.OTHER if client.language is None else client.language


def _connection(client: ClientChannel) -> ClientConnection:
    return ClientConnection(
        client.client_id, client.channel.remote_address, _language(client), client.version
    )


def _producer(client: ClientChannel) -> ProducerInfo:
    # Apache writes a Java socket address here, which begins with a slash.
    address = f"/{client.channel.remote_address}"
    return ProducerInfo(
        client.client_id, address, _language(client), client.version, client.last_update_ms
    )
