"""The broker's calls to name servers elsewhere (`BrokerOuterAPI`)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Protocol

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import broker_error
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.bodies.routes import decode_route
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import registration as headers
from rocketmq_sdk.protocol.headers import routes as route_headers

if TYPE_CHECKING:
    from rocketmq_sdk.model.route import TopicRoute
    from rocketmq_sdk.protocol.bodies.topics import DataVersion


class AddressCaller(Protocol):
    """What the calls go through: `remoting.client.RemotingClient` is one."""

    async def call(self, address: str | None, command: Command, timeout: float) -> Command:
        """Send a request to an address; returns its answer, whatever the code."""
        ...


class BrokerIdentity:
    """A broker's names, its address for clients and the one for replicas."""

    __slots__ = ("address", "broker_id", "broker_name", "cluster", "ha_server_address")

    def __init__(
        self, cluster: str, broker_name: str, broker_id: int, address: str, ha_server_address: str
    ) -> None:
        self.cluster = cluster
        self.broker_name = broker_name
        self.broker_id = broker_id
        self.address = address
        self.ha_server_address = ha_server_address


class Registered:
    """A name server's answer to a registration.

    The order configuration of topics, and for a slave its master's addresses.
    """

    __slots__ = ("ha_server_address", "master_address", "order")

    def __init__(
        self, order: dict[str, str], master_address: str | None, ha_server_address: str | None
    ) -> None:
        self.order = order
        self.master_address = master_address
        self.ha_server_address = ha_server_address


async def register_broker(
    caller: AddressCaller,
    namesrv: str,
    identity: BrokerIdentity,
    body: bytes,
    *,
    compressed: bool,
    timeout: float,
) -> Registered:
    """REGISTER_BROKER (103); `body` is an encoded `RegisterBrokerBody`.

    Raises `BrokerError` when it is refused, `ConnectError` or `RequestTimeoutError`
    when there is no answer.
    """
    header = headers.RegisterBrokerRequestHeader(
        broker_name=identity.broker_name,
        broker_addr=identity.address,
        cluster_name=identity.cluster,
        ha_server_addr=identity.ha_server_address,
        broker_id=identity.broker_id,
        enable_acting_master=False,
        compressed=compressed,
        body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
    )
    answer = await caller.call(
        namesrv, Command.request(RequestCode.REGISTER_BROKER, header, body=body), timeout
    )
    _check(answer, namesrv)
    master = headers.RegisterBrokerResponseHeader.from_ext(answer.ext_fields)
    return Registered(
        KVTable.decode(answer.body).table if answer.body else {},
        master.master_addr or None,
        master.ha_server_addr or None,
    )


async def unregister_broker(
    caller: AddressCaller, namesrv: str, identity: BrokerIdentity, *, timeout: float
) -> None:
    """UNREGISTER_BROKER (104). Raises as `register_broker` does."""
    header = headers.UnRegisterBrokerRequestHeader(
        broker_name=identity.broker_name,
        broker_addr=identity.address,
        cluster_name=identity.cluster,
        broker_id=identity.broker_id,
    )
    _check(
        await caller.call(namesrv, Command.request(RequestCode.UNREGISTER_BROKER, header), timeout),
        namesrv,
    )


async def topics_changed(
    caller: AddressCaller,
    namesrv: str,
    identity: BrokerIdentity,
    version: DataVersion,
    *,
    timeout: float,
) -> bool:
    """QUERY_DATA_VERSION (322): whether the name server has other topics.

    It compares versions. Raises as `register_broker` does.
    """
    header = headers.QueryDataVersionRequestHeader(
        broker_name=identity.broker_name,
        broker_addr=identity.address,
        cluster_name=identity.cluster,
        broker_id=identity.broker_id,
    )
    answer = await caller.call(
        namesrv,
        Command.request(RequestCode.QUERY_DATA_VERSION, header, body=version.encode()),
        timeout,
    )
    _check(answer, namesrv)
    return headers.QueryDataVersionResponseHeader.from_ext(answer.ext_fields).changed


async def topic_route(
    caller: AddressCaller, namesrv: str, topic: str, *, timeout: float
) -> TopicRoute | None:
    """GET_ROUTEINFO_BY_TOPIC (105): a topic's route; None when no broker has it.

    Raises as `register_broker` does.
    """
    header = route_headers.GetRouteInfoRequestHeader(topic=topic)
    answer = await caller.call(
        namesrv, Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), timeout
    )
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    _check(answer, namesrv)
    return decode_route(answer.body)


def _check(answer: Command, namesrv: str) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark, address=namesrv)
