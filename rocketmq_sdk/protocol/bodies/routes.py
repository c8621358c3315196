"""Routes and the cluster as a whole."""

from __future__ import annotations

import attrs

from rocketmq_sdk.model.route import BrokerData, QueueData, TopicRoute
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.json.dialect import encode_json


@attrs.frozen
class TopicRouteData(Body):
    """The wire form of a route.

    `topic_queue_mapping_by_broker` (static topics) is handed on as it came.
    """

    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: dict[str, list[str]] = attrs.field(factory=dict)
    order_topic_conf: str | None = None
    queue_datas: tuple[QueueData, ...] = ()
    topic_queue_mapping_by_broker: object | None = None


def encode_route(route: TopicRoute, *, strict: bool) -> bytes:
    """Encode a route as the answer to GET_ROUTEINFO_BY_TOPIC.

    Strict JSON for peers that ask for it, else Apache's dialect with unquoted broker
    ids.
    """
    wire = TopicRouteData(
        route.broker_datas, route.filter_server_table, route.order_topic_conf, route.queue_datas
    )
    return encode_json(wire.to_json(), object_keys=not strict)


def decode_route(data: bytes) -> TopicRoute:
    """The route out of either form.

    Raises `RemoteProtocolError` when the bytes are no JSON, `FieldError` when a member
    has the wrong type or is missing inside a list.
    """
    wire = TopicRouteData.decode(data)
    if wire.order_topic_conf == "":
        return TopicRoute(wire.queue_datas, wire.broker_datas, None, wire.filter_server_table)
    return TopicRoute(
        wire.queue_datas, wire.broker_datas, wire.order_topic_conf, wire.filter_server_table
    )


@attrs.frozen
class ClusterInfo(Body):
    """Answer to GET_BROKER_CLUSTER_INFO (106).

    Addresses by broker name, broker names by cluster.
    """

    broker_addr_table: dict[str, BrokerData] = attrs.field(factory=dict)
    cluster_addr_table: dict[str, list[str]] = attrs.field(factory=dict)
