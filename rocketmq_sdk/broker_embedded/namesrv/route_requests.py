"""Requests about routes: codes 105, 206, 216, 217, 224, 304, 311, 312, 313.

`ClientRequestProcessor` and `DefaultRequestProcessor` of Apache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.namesrv.registration import ZONE_NAME
from rocketmq_sdk.broker_embedded.namesrv.zones import route_of_zone
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes, refuse
from rocketmq_sdk.broker_embedded.slices import answer_of
from rocketmq_sdk.broker_embedded.tables.topics import UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG
from rocketmq_sdk.codes import VERSION_STANDARD_JSON, RequestCode, ResponseCode
from rocketmq_sdk.names import ORDER_TOPIC_NAMESPACE
from rocketmq_sdk.protocol.bodies.routes import TopicRouteData, encode_route
from rocketmq_sdk.protocol.bodies.topics import TopicList
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import routes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_sdk.broker_embedded.namesrv.addresses import Addresses
    from rocketmq_sdk.broker_embedded.namesrv.config import LiveNamesrvConfig
    from rocketmq_sdk.broker_embedded.namesrv.kv import KeyValueTable
    from rocketmq_sdk.broker_embedded.namesrv.route_table import RouteTable
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.route import TopicRoute
    from rocketmq_sdk.protocol.header import Header
    from rocketmq_sdk.remoting.channel import Channel, Continuation

_ZONE_MODE: Final = "__ZONE_MODE"
WRITTEN_ROUTES: Final = 1024
"""Routes that are kept with their bytes: clients ask for the same ones for days."""
WRITTEN_ROUTE: Final = 4096
"""Most bytes of a route that is kept."""


class RouteRequests:
    """Answers questions about topics, and changes routes by hand."""

    __slots__ = ("_addresses", "_clock", "_config", "_kv", "_started_ms", "_table", "_written")

    def __init__(
        self,
        clock: Clock,
        config: LiveNamesrvConfig,
        table: RouteTable,
        kv: KeyValueTable,
        addresses: Addresses,
    ) -> None:
        self._clock = clock
        self._config = config
        self._table = table
        self._kv = kv
        self._addresses = addresses
        self._started_ms = clock.now_ms()
        self._written: dict[tuple[str, bool], tuple[TopicRoute, bytes]] = {}

    def requests(self) -> Iterable[Request]:
        """Routes, lists of topics, changes by hand."""
        return (
            Request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                self.route,
                needs.route(),
                routes.GetRouteInfoRequestHeader,
                connection=True,
            ),
            *self._of_lists(),
            Request(
                RequestCode.REGISTER_TOPIC_IN_NAMESRV,
                self.register,
                needs.cluster(Action.UPDATE),
                routes.RegisterTopicRequestHeader,
                TopicRouteData,
                read_body=_route_data,
                cost=Cost.BODY,
                writes=Writes.ROUTES,
            ),
            Request(
                RequestCode.DELETE_TOPIC_IN_NAMESRV,
                self.delete,
                needs.cluster(Action.UPDATE, "clusterName"),
                routes.DeleteTopicFromNamesrvRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.ROUTES,
            ),
        )

    def _of_lists(self) -> Iterable[Request]:
        return (
            Request(
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
                self.all_topics,
                needs.cluster(Action.LIST | Action.GET),
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_TOPICS_BY_CLUSTER,
                self.of_cluster,
                needs.cluster(Action.LIST | Action.GET, "cluster"),
                routes.GetTopicsByClusterRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
                self.system_topics,
                needs.cluster(Action.LIST | Action.GET),
                raw=True,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_UNIT_TOPIC_LIST,
                self.of_units,
                needs.cluster(Action.LIST | Action.GET),
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
                self.with_unit_subscription,
                needs.cluster(Action.LIST | Action.GET),
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
                self.with_unit_subscription_only,
                needs.cluster(Action.LIST | Action.GET),
                cost=Cost.TABLE,
            ),
        )

    def route(
        self, channel: Channel, command: Command, header: routes.GetRouteInfoRequestHeader
    ) -> Command:
        """GET_ROUTEINFO_BY_TOPIC (105), in strict JSON for peers that read it."""
        config = self._config.current
        if (
            config.need_wait_for_service
            and self._clock.now_ms() - self._started_ms < config.wait_seconds_for_service * 1000
        ):
            return refuse(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._table.route(header.topic, self._addresses.resolver(channel))
        if route is None:
            return refuse(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}",
            )
        if config.order_message_enable:
            route = attrs.evolve(
                route, order_topic_conf=self._kv.get(ORDER_TOPIC_NAMESPACE, header.topic)
            )
        if command.ext_fields.get(_ZONE_MODE, "").lower() == "true" and (
            zone := command.ext_fields.get(ZONE_NAME, "").strip()
        ):
            route = route_of_zone(route, zone)
        strict = header.accept_standard_json_only or command.version >= VERSION_STANDARD_JSON
        return Command.response(body=self._encoded(header.topic, route, strict))

    def _encoded(self, topic: str, route: TopicRoute, strict: bool) -> bytes:
        """A route in bytes; those of the last time where it is the same."""
        known = self._written.get((topic, strict))
        if known is not None and known[0] == route:
            return known[1]
        written = encode_route(route, strict=strict)
        if len(written) <= WRITTEN_ROUTE:
            if len(self._written) >= WRITTEN_ROUTES:
                self._written.clear()
            self._written[topic, strict] = (route, written)
        return written

    def all_topics(self) -> Command | Continuation:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""
        if not self._config.current.enable_all_topic_list:
            return _disabled()
        return _listed(self._table.queues.topics())

    def of_cluster(self, header: routes.GetTopicsByClusterRequestHeader) -> Command | Continuation:
        """GET_TOPICS_BY_CLUSTER (224)."""
        if not self._config.current.enable_topic_list:
            return _disabled()
        return _listed(self._table.topics_of_cluster(header.cluster))

    def of_units(self) -> Command | Continuation:
        """GET_UNIT_TOPIC_LIST (311)."""
        return self._by_flags(_is_unit)

    def with_unit_subscription(self) -> Command | Continuation:
        """GET_HAS_UNIT_SUB_TOPIC_LIST (312)."""
        return self._by_flags(_has_unit_subscription)

    def with_unit_subscription_only(self) -> Command | Continuation:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313)."""
        return self._by_flags(lambda flags: _has_unit_subscription(flags) and not _is_unit(flags))

    def _by_flags(self, chosen: Callable[[int], bool]) -> Command | Continuation:
        if not self._config.current.enable_topic_list:
            return _disabled()
        return _listed(self._table.queues.topics_by_flags(chosen))

    def system_topics(self, channel: Channel, _command: Command) -> Command:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS (304)."""
        names, address = self._table.brokers.system_names(self._addresses.resolver(channel))
        return Command.response(body=TopicList(tuple(names), address).encode())

    def register(
        self, header: routes.RegisterTopicRequestHeader, route: TopicRouteData | None
    ) -> Command:
        """REGISTER_TOPIC_IN_NAMESRV (217); without a body nothing happens."""
        if route is not None:
            self._table.put_topic(header.topic, route.queue_datas)
        return Command.response()

    def delete(self, header: routes.DeleteTopicFromNamesrvRequestHeader) -> Command:
        """DELETE_TOPIC_IN_NAMESRV (216)."""
        self._table.delete_topic(header.topic, header.cluster_name or None)
        return Command.response()


def _route_data(command: Command, _header: Header) -> TopicRouteData | None:
    return TopicRouteData.decode(command.body) if command.body else None


def _disabled() -> Command:
    return refuse(ResponseCode.SYSTEM_ERROR, "disable")


def _listed(topics: list[str]) -> Command | Continuation:
    return answer_of(TopicList(tuple(topics)), len(topics))


def _is_unit(flags: int) -> bool:
    return bool(flags & UNIT_FLAG)


def _has_unit_subscription(flags: int) -> bool:
    return bool(flags & UNIT_SUBSCRIPTION_FLAG)
