"""Requests to name servers: routes, the cluster, topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import RouteError
from rocketmq_sdk.protocol.bodies.routes import ClusterInfo, decode_route
from rocketmq_sdk.protocol.bodies.topics import TopicList
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.routes import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
)

if TYPE_CHECKING:
    from rocketmq_sdk.model.route import TopicRoute


async def topic_route(client: Caller, topic: str, timeout: float | None = None) -> TopicRoute:
    """The route of a topic (105).

    Raises `TopicNotFoundError` when no name server knows it.
    """
    return decode_route(await written_route(client, topic, timeout))


async def written_route(client: Caller, topic: str, timeout: float | None = None) -> bytes:
    """The route of a topic (105) as it came, for `decode_route`.

    Raises as `topic_route`.
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
    return response.body


async def cluster_info(client: Caller, timeout: float | None = None) -> ClusterInfo:
    """All clusters, broker names and addresses (106)."""
    response = checked(
        await client.call_name_server(Command.request(RequestCode.GET_BROKER_CLUSTER_INFO), timeout)
    )
    return ClusterInfo.decode(response.body)


async def delete_topic_at_name_server(
    client: Caller, topic: str, cluster: str | None = None, timeout: float | None = None
) -> None:
    """Take a topic out of a name server's routes (216)."""
    header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
    checked(
        await client.call_name_server(
            Command.request(RequestCode.DELETE_TOPIC_IN_NAMESRV, header), timeout
        ),
        topic=topic,
    )


async def topic_names(client: Caller, timeout: float | None = None) -> list[str]:
    """All topics that a name server knows (206)."""
    response = checked(
        await client.call_name_server(
            Command.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), timeout
        )
    )
    return list(TopicList.decode(response.body).topic_list)
