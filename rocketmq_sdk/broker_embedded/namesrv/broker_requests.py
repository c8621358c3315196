"""Requests of and about brokers: codes 103, 104, 106, 205, 322, 327, 901, 904.

`DefaultRequestProcessor` of Apache.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.namesrv.registration import (
    DEFAULT_HEARTBEAT_TIMEOUT_MS,
    OWN_BROKER,
    ZONE_NAME,
    BrokerKey,
    BrokerRegistration,
)
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import (
    AT_ONCE,
    TABLE,
    Cost,
    Request,
    Writes,
    refuse,
)
from rocketmq_sdk.clock import monotonic_ms
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import BrokerError
from rocketmq_sdk.model.route import join_address, split_address
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.bodies.registration import (
    INFLATED_MAX,
    GetBrokerMemberGroupResponseBody,
    RegisterBrokerBody,
)
from rocketmq_sdk.protocol.bodies.topics import DataVersion, TopicConfigSerializeWrapper
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.header import parse_bool
from rocketmq_sdk.protocol.headers import registration as headers
from rocketmq_sdk.protocol.headers import routes as route_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.namesrv.addresses import Addresses
    from rocketmq_sdk.broker_embedded.namesrv.registrar import Registrar
    from rocketmq_sdk.broker_embedded.namesrv.route_table import RouteTable
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.remoting.channel import Channel

_VERSION_REGISTER_BODY: Final = 37
"""V3_0_11 (`MQVersion`): from here on registrations carry filter servers too."""


class BrokerRequests:
    """Answers requests of brokers and about them."""

    __slots__ = ("_addresses", "_clock", "_registrar", "_table")

    def __init__(
        self, clock: Clock, table: RouteTable, registrar: Registrar, addresses: Addresses
    ) -> None:
        self._clock = clock
        self._table = table
        self._registrar = registrar
        self._addresses = addresses

    def requests(self) -> Iterable[Request]:
        """Registration, brokers and clusters, write permission."""
        return (*self._of_registration(), *self._of_brokers(), *self._of_permissions())

    def _of_registration(self) -> Iterable[Request]:
        return (
            Request(
                RequestCode.REGISTER_BROKER,
                self.register,
                needs.cluster(Action.UPDATE, "clusterName"),
                headers.RegisterBrokerRequestHeader,
                RegisterBrokerBody,
                connection=True,
                read_body=_registered,
                unpacked=_inflated_size,
                repeated=True,
                body_limit=TABLE,
                cost=Cost.BODY,
                writes=Writes.ROUTES,
            ),
            Request(
                RequestCode.UNREGISTER_BROKER,
                self.unregister,
                needs.cluster(Action.UPDATE, "clusterName"),
                headers.UnRegisterBrokerRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.ROUTES,
            ),
            Request(
                RequestCode.BROKER_HEARTBEAT,
                self.heartbeat,
                needs.cluster(Action.UPDATE, "clusterName"),
                headers.BrokerHeartbeatRequestHeader,
                writes=Writes.ROUTES,
            ),
            Request(
                RequestCode.QUERY_DATA_VERSION,
                self.data_version,
                needs.cluster(Action.GET, "clusterName"),
                headers.QueryDataVersionRequestHeader,
                DataVersion,
                writes=Writes.ROUTES,
            ),
        )

    def _of_brokers(self) -> Iterable[Request]:
        return (
            Request(
                RequestCode.GET_BROKER_CLUSTER_INFO,
                self.cluster_info,
                needs.cluster(Action.GET),
                raw=True,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_BROKER_MEMBER_GROUP,
                self.member_group,
                needs.cluster(Action.GET, "clusterName"),
                headers.GetBrokerMemberGroupRequestHeader,
                connection=True,
            ),
        )

    def _of_permissions(self) -> Iterable[Request]:
        return (
            Request(
                RequestCode.WIPE_WRITE_PERM_OF_BROKER,
                self.wipe_write_permission,
                needs.cluster(Action.UPDATE),
                route_headers.WipeWritePermOfBrokerRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.ROUTES,
            ),
            Request(
                RequestCode.ADD_WRITE_PERM_OF_BROKER,
                self.add_write_permission,
                needs.cluster(Action.UPDATE),
                route_headers.AddWritePermOfBrokerRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.ROUTES,
            ),
        )

    def register(
        self,
        channel: Channel,
        command: Command,
        header: headers.RegisterBrokerRequestHeader,
        body: RegisterBrokerBody | TopicConfigSerializeWrapper,
    ) -> Command:
        """REGISTER_BROKER (103); old brokers send the bare table of topics."""
        if isinstance(body, RegisterBrokerBody):
            wrapper = body.topic_config_serialize_wrapper
            filter_servers: tuple[str, ...] | None = body.filter_server_list
        else:
            wrapper, filter_servers = body, None
        timeout = header.heartbeat_timeout_millis
        registration = BrokerRegistration(
            cluster=header.cluster_name,
            address=header.broker_addr,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            ha_server_address=header.ha_server_addr,
            heartbeat_timeout_ms=DEFAULT_HEARTBEAT_TIMEOUT_MS if timeout is None else timeout,
            enable_acting_master=bool(header.enable_acting_master),
            zone_name=command.ext_fields.get(ZONE_NAME),
            topics=wrapper.topic_config_table,
            data_version=wrapper.data_version or DataVersion(),
            filter_servers=filter_servers,
            channel_id=channel.channel_id,
        )
        result = self._registrar.register(registration, channel)
        if result is None:
            return refuse(ResponseCode.SYSTEM_ERROR, "register broker failed")
        order = self._registrar.order_configuration()
        master, ha_server = result.master_address, result.ha_server_address
        if master is not None:
            master = self._addresses.resolver(channel)(master)
            if ha_server is not None and ha_server.startswith(f"{OWN_BROKER}:"):
                ha_server = join_address(split_address(master)[0], split_address(ha_server)[1])
        answer = headers.RegisterBrokerResponseHeader(ha_server_addr=ha_server, master_addr=master)
        return Command.response(0, answer, body=KVTable(order).encode() if order else b"")

    def unregister(self, header: headers.UnRegisterBrokerRequestHeader) -> Command:
        """UNREGISTER_BROKER (104)."""
        self._table.unregister(
            header.cluster_name, header.broker_addr, header.broker_name, header.broker_id
        )
        return Command.response()

    def heartbeat(self, header: headers.BrokerHeartbeatRequestHeader) -> Command:
        """BROKER_HEARTBEAT (904)."""
        key = BrokerKey(header.cluster_name, header.broker_addr)
        self._table.live.touch(key, monotonic_ms(self._clock))
        return Command.response()

    def data_version(
        self, header: headers.QueryDataVersionRequestHeader, asked: DataVersion
    ) -> Command:
        """QUERY_DATA_VERSION (322): whether topics changed; also a sign of life."""
        key = BrokerKey(header.cluster_name, header.broker_addr)
        known = self._table.live.data_version(key)
        self._table.live.touch(key, monotonic_ms(self._clock))
        answer = headers.QueryDataVersionResponseHeader(changed=known != asked)
        return Command.response(0, answer, body=b"" if known is None else known.encode())

    def cluster_info(self, channel: Channel, _command: Command) -> Command:
        """GET_BROKER_CLUSTER_INFO (106)."""
        resolve = self._addresses.resolver(channel)
        return Command.response(body=self._table.brokers.cluster_info(resolve).encode())

    def member_group(
        self,
        channel: Channel,
        _command: Command,
        header: headers.GetBrokerMemberGroupRequestHeader,
    ) -> Command:
        """GET_BROKER_MEMBER_GROUP (901)."""
        group = self._table.brokers.member_group(
            header.cluster_name, header.broker_name, self._addresses.resolver(channel)
        )
        return Command.response(body=GetBrokerMemberGroupResponseBody(group).encode())

    def wipe_write_permission(
        self, header: route_headers.WipeWritePermOfBrokerRequestHeader
    ) -> Command:
        """WIPE_WRITE_PERM_OF_BROKER (205)."""
        count = self._table.queues.wipe_write_permission(header.broker_name)
        answer = route_headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return Command.response(0, answer)

    def add_write_permission(
        self, header: route_headers.AddWritePermOfBrokerRequestHeader
    ) -> Command:
        """ADD_WRITE_PERM_OF_BROKER (327)."""
        count = self._table.queues.add_write_permission(header.broker_name)
        answer = route_headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return Command.response(0, answer)


def _inflated_size(command: Command) -> int:
    """What a compressed registration may inflate to; 0 when it stays small, or is not
    compressed.
    """
    compressed = command.ext_fields.get("compressed")
    if compressed is None or not parse_bool(compressed):
        return 0
    try:
        small = len(zlib.decompressobj().decompress(command.body, AT_ONCE + 1)) <= AT_ONCE
    except zlib.error:
        return 0
    return 0 if small else INFLATED_MAX


def _registered(
    command: Command, header: headers.RegisterBrokerRequestHeader
) -> RegisterBrokerBody | TopicConfigSerializeWrapper:
    """The body of a registration. Raises `BrokerError` when its CRC is another one."""
    if header.body_crc32 and zlib.crc32(command.body) & 0x7FFFFFFF != header.body_crc32:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    if not command.body:
        return TopicConfigSerializeWrapper()
    if command.version < _VERSION_REGISTER_BODY:
        return TopicConfigSerializeWrapper.decode(command.body)
    if header.compressed:
        return RegisterBrokerBody.decode_compressed(command.body, command.version)
    return RegisterBrokerBody.decode(command.body)
