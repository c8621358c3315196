"""Topics: their routes and lists (`ClientRequestProcessor`,
`DefaultRequestProcessor`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.broker_embedded.namesrv.zones import route_of_zone
from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes, refuse
from rocketmq_sdk.broker_embedded.tables.topics import UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG
from rocketmq_sdk.codes import VERSION_STANDARD_JSON, RequestCode, ResponseCode
from rocketmq_sdk.names import ORDER_TOPIC_NAMESPACE
from rocketmq_sdk.protocol.bodies.routes import TopicRouteData, encode_route
from rocketmq_sdk.protocol.bodies.topics import TopicList
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import routes as route_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_sdk.broker_embedded.namesrv.registry import Registry
    from rocketmq_sdk.remoting.channel import Channel

_VERSION_REGISTER_BODY = 37
"""V3_0_11: from here on registrations carry filter servers beside the topics
(`MQVersion`).
"""
_ZONE_NAME = "__ZONE_NAME"
_ZONE_MODE = "__ZONE_MODE"


class TopicRequests:
    """Topics: their routes and lists (`ClientRequestProcessor`,
    `DefaultRequestProcessor`).
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def requests(self) -> Iterable[Request]:
        """The rows."""
        return (
            Request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                self.route_info,
                route_headers.GetRouteInfoRequestHeader,
                raw=True,
            ),
            Request(
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.topic_list, cost=Cost.TABLE
            ),
            Request(
                RequestCode.GET_TOPICS_BY_CLUSTER,
                self.topics_by_cluster,
                route_headers.GetTopicsByClusterRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
                self.system_topic_list,
                raw=True,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.REGISTER_TOPIC_IN_NAMESRV,
                self.register_topic,
                route_headers.RegisterTopicRequestHeader,
                body=TopicRouteData,
                raw=True,
                cost=Cost.BODY,
                writes=Writes.ROUTES,
            ),
            Request(
                RequestCode.DELETE_TOPIC_IN_NAMESRV,
                self.delete_topic,
                route_headers.DeleteTopicFromNamesrvRequestHeader,
                writes=Writes.ROUTES,
            ),
            *(
                Request(code, partial(self._topics_by_flags, chosen), cost=Cost.TABLE)
                for code, chosen in _BY_FLAGS.items()
            ),
        )

    def route_info(self, channel: Channel, command: Command) -> Command:
        """GET_ROUTEINFO_BY_TOPIC (105), in strict JSON for peers that read it."""
        header = route_headers.GetRouteInfoRequestHeader.from_ext(command.ext_fields)
        config = self._registry.config
        if (
            config.need_wait_for_service
            and self._registry.clock.now_ms() - self._registry.started_ms
            < config.wait_seconds_for_service * 1000
        ):
            return refuse(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._registry.table.route(header.topic, self._registry.resolver(channel))
        if route is None:
            return refuse(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}",
            )
        if config.order_message_enable:
            route = attrs.evolve(
                route, order_topic_conf=self._registry.kv.get(ORDER_TOPIC_NAMESPACE, header.topic)
            )
        if command.ext_fields.get(_ZONE_MODE, "").lower() == "true" and (
            zone := command.ext_fields.get(_ZONE_NAME, "").strip()
        ):
            route = route_of_zone(route, zone)
        strict = header.accept_standard_json_only or command.version >= VERSION_STANDARD_JSON
        return Command.response(body=encode_route(route, strict=strict))

    def topic_list(self) -> Command:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""
        if not self._registry.config.enable_all_topic_list:
            return refuse(ResponseCode.SYSTEM_ERROR, "disable")
        return Command.response(body=TopicList(tuple(self._registry.table.topics())).encode())

    def topics_by_cluster(self, header: route_headers.GetTopicsByClusterRequestHeader) -> Command:
        """GET_TOPICS_BY_CLUSTER (224)."""
        if not self._registry.config.enable_topic_list:
            return refuse(ResponseCode.SYSTEM_ERROR, "disable")
        return Command.response(
            body=TopicList(tuple(self._registry.table.topics_of_cluster(header.cluster))).encode()
        )

    def system_topic_list(self, channel: Channel, _command: Command) -> Command:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS (304)."""
        names, address = self._registry.table.system_names(self._registry.resolver(channel))
        return Command.response(body=TopicList(tuple(names), address).encode())

    def register_topic(self, _channel: Channel, command: Command) -> Command:
        """REGISTER_TOPIC_IN_NAMESRV (217)."""
        header = route_headers.RegisterTopicRequestHeader.from_ext(command.ext_fields)
        if command.body:
            self._registry.table.put_topic(
                header.topic, TopicRouteData.decode(command.body).queue_datas
            )
        return Command.response()

    def delete_topic(self, header: route_headers.DeleteTopicFromNamesrvRequestHeader) -> Command:
        """DELETE_TOPIC_IN_NAMESRV (216)."""
        self._registry.table.delete_topic(header.topic, header.cluster_name or None)
        return Command.response()

    def _topics_by_flags(self, chosen: Callable[[int], bool]) -> Command:
        if not self._registry.config.enable_topic_list:
            return refuse(ResponseCode.SYSTEM_ERROR, "disable")
        return Command.response(
            body=TopicList(tuple(self._registry.table.topics_by_flags(chosen))).encode()
        )


def _is_unit(flags: int) -> bool:
    return bool(flags & UNIT_FLAG)


def _has_unit_subscription(flags: int) -> bool:
    return bool(flags & UNIT_SUBSCRIPTION_FLAG)


def _has_unit_subscription_only(flags: int) -> bool:
    return _has_unit_subscription(flags) and not _is_unit(flags)


_BY_FLAGS: Final = {
    RequestCode.GET_UNIT_TOPIC_LIST: _is_unit,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _has_unit_subscription,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _has_unit_subscription_only,
}
