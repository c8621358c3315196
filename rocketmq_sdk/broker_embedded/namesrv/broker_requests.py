"""Brokers: registered, kept alive, listed (`DefaultRequestProcessor`)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.namesrv.registration import (
    DEFAULT_HEARTBEAT_TIMEOUT_MS,
    OWN_BROKER,
    BrokerKey,
    BrokerRegistration,
)
from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes, refuse
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.model.route import join_address, split_address
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.bodies.registration import (
    GetBrokerMemberGroupResponseBody,
    RegisterBrokerBody,
)
from rocketmq_sdk.protocol.bodies.topics import DataVersion, TopicConfigSerializeWrapper
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import registration as headers
from rocketmq_sdk.protocol.headers import routes as route_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.namesrv.registry import Registry
    from rocketmq_sdk.remoting.channel import Channel

_VERSION_REGISTER_BODY = 37
"""V3_0_11: from here on registrations carry filter servers beside the topics
(`MQVersion`).
"""
_ZONE_NAME = "__ZONE_NAME"
_ZONE_MODE = "__ZONE_MODE"


class BrokerRequests:
    """Brokers: registered, kept alive, listed (`DefaultRequestProcessor`)."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def requests(self) -> Iterable[Request]:
        """The rows."""
        return (
            Request(
                RequestCode.REGISTER_BROKER,
                self.register_broker,
                headers.RegisterBrokerRequestHeader,
                raw=True,
                cost=Cost.BODY,
                writes=Writes.ROUTES,
            ),
            Request(
                RequestCode.UNREGISTER_BROKER,
                self.unregister_broker,
                headers.UnRegisterBrokerRequestHeader,
                writes=Writes.ROUTES,
            ),
            Request(
                RequestCode.BROKER_HEARTBEAT,
                self.broker_heartbeat,
                headers.BrokerHeartbeatRequestHeader,
                writes=Writes.ROUTES,
            ),
            Request(
                RequestCode.QUERY_DATA_VERSION,
                self.query_data_version,
                headers.QueryDataVersionRequestHeader,
                body=DataVersion,
            ),
            Request(
                RequestCode.GET_BROKER_CLUSTER_INFO, self.cluster_info, raw=True, cost=Cost.TABLE
            ),
            Request(
                RequestCode.GET_BROKER_MEMBER_GROUP,
                self.member_group,
                headers.GetBrokerMemberGroupRequestHeader,
                raw=True,
            ),
            Request(
                RequestCode.WIPE_WRITE_PERM_OF_BROKER,
                self.wipe_write_permission,
                route_headers.WipeWritePermOfBrokerRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.ROUTES,
            ),
            Request(
                RequestCode.ADD_WRITE_PERM_OF_BROKER,
                self.add_write_permission,
                route_headers.AddWritePermOfBrokerRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.ROUTES,
            ),
        )

    def register_broker(self, channel: Channel, command: Command) -> Command:
        """REGISTER_BROKER (103)."""
        header = headers.RegisterBrokerRequestHeader.from_ext(command.ext_fields)
        if header.body_crc32 and zlib.crc32(command.body) & 0x7FFFFFFF != header.body_crc32:
            return refuse(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        wrapper, filter_servers = _registered(command, compressed=header.compressed)
        timeout = header.heartbeat_timeout_millis
        registration = BrokerRegistration(
            cluster=header.cluster_name,
            address=header.broker_addr,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            ha_server_address=header.ha_server_addr,
            heartbeat_timeout_ms=DEFAULT_HEARTBEAT_TIMEOUT_MS if timeout is None else timeout,
            enable_acting_master=bool(header.enable_acting_master),
            zone_name=command.ext_fields.get(_ZONE_NAME),
            topics=wrapper.topic_config_table,
            data_version=wrapper.data_version or DataVersion(),
            filter_servers=filter_servers,
            channel_id=channel.channel_id,
        )
        result = self._registry.register(registration, channel)
        if result is None:
            return refuse(ResponseCode.SYSTEM_ERROR, "register broker failed")
        order = self._registry.order_configuration()
        master, ha_server = result.master_address, result.ha_server_address
        if master is not None:
            master = self._registry.resolver(channel)(master)
            if ha_server is not None and ha_server.startswith(f"{OWN_BROKER}:"):
                ha_server = join_address(split_address(master)[0], split_address(ha_server)[1])
        answer = headers.RegisterBrokerResponseHeader(ha_server_addr=ha_server, master_addr=master)
        return Command.response(0, answer, body=KVTable(order).encode() if order else b"")

    def unregister_broker(self, header: headers.UnRegisterBrokerRequestHeader) -> Command:
        """UNREGISTER_BROKER (104)."""
        self._registry.unregister(
            header.cluster_name, header.broker_addr, header.broker_name, header.broker_id
        )
        return Command.response()

    def broker_heartbeat(self, header: headers.BrokerHeartbeatRequestHeader) -> Command:
        """BROKER_HEARTBEAT (904)."""
        self._registry.table.touch(
            BrokerKey(header.cluster_name, header.broker_addr), self._registry.clock.now_ms()
        )
        return Command.response()

    def query_data_version(
        self, header: headers.QueryDataVersionRequestHeader, body: DataVersion
    ) -> Command:
        """QUERY_DATA_VERSION (322)."""
        key = BrokerKey(header.cluster_name, header.broker_addr)
        asked = body
        known = self._registry.table.data_version(key)
        self._registry.table.touch(key, self._registry.clock.now_ms())
        answer = headers.QueryDataVersionResponseHeader(changed=known != asked)
        return Command.response(0, answer, body=b"" if known is None else known.encode())

    def cluster_info(self, channel: Channel, _command: Command) -> Command:
        """GET_BROKER_CLUSTER_INFO (106)."""
        return Command.response(
            body=self._registry.table.cluster_info(self._registry.resolver(channel)).encode()
        )

    def member_group(self, channel: Channel, command: Command) -> Command:
        """GET_BROKER_MEMBER_GROUP (901)."""
        header = headers.GetBrokerMemberGroupRequestHeader.from_ext(command.ext_fields)
        group = self._registry.table.member_group(
            header.cluster_name, header.broker_name, self._registry.resolver(channel)
        )
        return Command.response(body=GetBrokerMemberGroupResponseBody(group).encode())

    def wipe_write_permission(
        self, header: route_headers.WipeWritePermOfBrokerRequestHeader
    ) -> Command:
        """WIPE_WRITE_PERM_OF_BROKER (205)."""
        count = self._registry.table.wipe_write_permission(header.broker_name)
        return Command.response(
            0, route_headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        )

    def add_write_permission(
        self, header: route_headers.AddWritePermOfBrokerRequestHeader
    ) -> Command:
        """ADD_WRITE_PERM_OF_BROKER (327)."""
        count = self._registry.table.add_write_permission(header.broker_name)
        return Command.response(
            0, route_headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        )


def _registered(
    command: Command, *, compressed: bool
) -> tuple[TopicConfigSerializeWrapper, tuple[str, ...] | None]:
    if not command.body:
        return TopicConfigSerializeWrapper(), None
    if command.version < _VERSION_REGISTER_BODY:
        return TopicConfigSerializeWrapper.decode(command.body), None
    body = (
        RegisterBrokerBody.decode_compressed(command.body, command.version)
        if compressed
        else RegisterBrokerBody.decode(command.body)
    )
    return body.topic_config_serialize_wrapper, body.filter_server_list
