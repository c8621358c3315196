"""Routes and the cluster, as name servers know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.call import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import RouteError
from rocketmq_sdk.protocol.bodies.route import ClusterInfo, decode_route
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.namesrv import GetRouteInfoRequestHeader

if TYPE_CHECKING:
    from rocketmq_sdk.model.route import TopicRoute


async def topic_route(client: Caller, topic: str, timeout: float | None = None) -> TopicRoute:
    """The route of a topic (105).

    Raises `TopicNotFoundError` when no name server knows it.
    """
    header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
    response = checked(
        await client.call_name_server(
            Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), timeout
        ),
        topic=topic,
    )
    if not response.body:
        raise RouteError(f"a name server answered the route of topic {topic!r} without content")
    return decode_route(response.body)


async def cluster_info(client: Caller, timeout: float | None = None) -> ClusterInfo:
    """All clusters, broker names and addresses (106)."""
    response = checked(
        await client.call_name_server(Command.request(RequestCode.GET_BROKER_CLUSTER_INFO), timeout)
    )
    return ClusterInfo.decode(response.body)
