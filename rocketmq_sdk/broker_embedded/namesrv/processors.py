"""The requests that a name server answers (`DefaultRequestProcessor`,
`ClientRequestProcessor`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.broker_embedded.namesrv.registration import (
    DEFAULT_HEARTBEAT_TIMEOUT_MS,
    OWN_BROKER,
    BrokerKey,
    BrokerRegistration,
)
from rocketmq_sdk.broker_embedded.namesrv.table import UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG
from rocketmq_sdk.broker_embedded.namesrv.zones import route_of_zone
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties, write_properties
from rocketmq_sdk.codes import VERSION_STANDARD_JSON, RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.route import join_address, split_address
from rocketmq_sdk.names import ORDER_TOPIC_NAMESPACE
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.bodies.registration import (
    GetBrokerMemberGroupResponseBody,
    RegisterBrokerBody,
)
from rocketmq_sdk.protocol.bodies.routes import TopicRouteData, encode_route
from rocketmq_sdk.protocol.bodies.topics import DataVersion, TopicConfigSerializeWrapper, TopicList
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import registration as headers
from rocketmq_sdk.protocol.headers import routes as route_headers

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.namesrv.server import NameServer
    from rocketmq_sdk.remoting.channel import Channel, Handler

_VERSION_REGISTER_BODY = 37
"""V3_0_11: from here on registrations carry filter servers beside the topics
(`MQVersion`).
"""
_ZONE_NAME = "__ZONE_NAME"
_ZONE_MODE = "__ZONE_MODE"

Serve = Callable[["NameServer", "Channel", Command], Command]


def make_handlers(namesrv: NameServer) -> dict[int, Handler]:
    """The handlers by request code."""

    def bind(serve: Serve) -> Handler:
        def handle(channel: Channel, command: Command) -> Command:
            return serve(namesrv, channel, command)

        return handle

    return {int(code): bind(serve) for code, serve in _SERVED.items()}


def _refused(code: ResponseCode, remark: str) -> Command:
    return Command.response(code, remark=remark)


# Brokers


def register_broker(namesrv: NameServer, channel: Channel, command: Command) -> Command:
    """REGISTER_BROKER (103)."""
    header = headers.RegisterBrokerRequestHeader.from_ext(command.ext_fields)
    if header.body_crc32 and zlib.crc32(command.body) & 0x7FFFFFFF != header.body_crc32:
        return _refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
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
    result = namesrv.register(registration, channel)
    if result is None:
        return _refused(ResponseCode.SYSTEM_ERROR, "register broker failed")
    order = namesrv.order_configuration()
    master, ha_server = result.master_address, result.ha_server_address
    if master is not None:
        master = namesrv.resolver(channel)(master)
        if ha_server is not None and ha_server.startswith(f"{OWN_BROKER}:"):
            ha_server = join_address(split_address(master)[0], split_address(ha_server)[1])
    answer = headers.RegisterBrokerResponseHeader(ha_server_addr=ha_server, master_addr=master)
    return Command.response(0, answer, body=KVTable(order).encode() if order else b"")


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


def unregister_broker(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """UNREGISTER_BROKER (104)."""
    header = headers.UnRegisterBrokerRequestHeader.from_ext(command.ext_fields)
    namesrv.unregister(
        header.cluster_name, header.broker_addr, header.broker_name, header.broker_id
    )
    return Command.response()


def broker_heartbeat(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """BROKER_HEARTBEAT (904)."""
    header = headers.BrokerHeartbeatRequestHeader.from_ext(command.ext_fields)
    namesrv.table.touch(BrokerKey(header.cluster_name, header.broker_addr), namesrv.clock.now_ms())
    return Command.response()


def query_data_version(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """QUERY_DATA_VERSION (322)."""
    header = headers.QueryDataVersionRequestHeader.from_ext(command.ext_fields)
    key = BrokerKey(header.cluster_name, header.broker_addr)
    asked = DataVersion.decode(command.body)
    known = namesrv.table.data_version(key)
    namesrv.table.touch(key, namesrv.clock.now_ms())
    answer = headers.QueryDataVersionResponseHeader(changed=known != asked)
    return Command.response(0, answer, body=b"" if known is None else known.encode())


def cluster_info(namesrv: NameServer, channel: Channel, _command: Command) -> Command:
    """GET_BROKER_CLUSTER_INFO (106)."""
    return Command.response(body=namesrv.table.cluster_info(namesrv.resolver(channel)).encode())


def member_group(namesrv: NameServer, channel: Channel, command: Command) -> Command:
    """GET_BROKER_MEMBER_GROUP (901)."""
    header = headers.GetBrokerMemberGroupRequestHeader.from_ext(command.ext_fields)
    group = namesrv.table.member_group(
        header.cluster_name, header.broker_name, namesrv.resolver(channel)
    )
    return Command.response(body=GetBrokerMemberGroupResponseBody(group).encode())


def wipe_write_permission(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """WIPE_WRITE_PERM_OF_BROKER (205)."""
    header = route_headers.WipeWritePermOfBrokerRequestHeader.from_ext(command.ext_fields)
    count = namesrv.table.wipe_write_permission(header.broker_name)
    return Command.response(
        0, route_headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
    )


def add_write_permission(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """ADD_WRITE_PERM_OF_BROKER (327)."""
    header = route_headers.AddWritePermOfBrokerRequestHeader.from_ext(command.ext_fields)
    count = namesrv.table.add_write_permission(header.broker_name)
    return Command.response(
        0, route_headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count)
    )


# Topics


def route_info(namesrv: NameServer, channel: Channel, command: Command) -> Command:
    """GET_ROUTEINFO_BY_TOPIC (105), in strict JSON for peers that read it."""
    header = route_headers.GetRouteInfoRequestHeader.from_ext(command.ext_fields)
    config = namesrv.config
    if (
        config.need_wait_for_service
        and namesrv.clock.now_ms() - namesrv.started_ms < config.wait_seconds_for_service * 1000
    ):
        return _refused(ResponseCode.SYSTEM_ERROR, "name server not ready")
    route = namesrv.table.route(header.topic, namesrv.resolver(channel))
    if route is None:
        return _refused(
            ResponseCode.TOPIC_NOT_EXIST,
            f"No topic route info in name server for the topic: {header.topic}",
        )
    if config.order_message_enable:
        route = attrs.evolve(
            route, order_topic_conf=namesrv.kv.get(ORDER_TOPIC_NAMESPACE, header.topic)
        )
    if command.ext_fields.get(_ZONE_MODE, "").lower() == "true" and (
        zone := command.ext_fields.get(_ZONE_NAME, "").strip()
    ):
        route = route_of_zone(route, zone)
    strict = header.accept_standard_json_only or command.version >= VERSION_STANDARD_JSON
    return Command.response(body=encode_route(route, strict=strict))


def topic_list(namesrv: NameServer, _channel: Channel, _command: Command) -> Command:
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""
    if not namesrv.config.enable_all_topic_list:
        return _refused(ResponseCode.SYSTEM_ERROR, "disable")
    return Command.response(body=TopicList(tuple(namesrv.table.topics())).encode())


def topics_by_cluster(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """GET_TOPICS_BY_CLUSTER (224)."""
    if not namesrv.config.enable_topic_list:
        return _refused(ResponseCode.SYSTEM_ERROR, "disable")
    header = route_headers.GetTopicsByClusterRequestHeader.from_ext(command.ext_fields)
    return Command.response(
        body=TopicList(tuple(namesrv.table.topics_of_cluster(header.cluster))).encode()
    )


def _topics_by_flags(chosen: Callable[[int], bool]) -> Serve:
    def serve(namesrv: NameServer, _channel: Channel, _command: Command) -> Command:
        if not namesrv.config.enable_topic_list:
            return _refused(ResponseCode.SYSTEM_ERROR, "disable")
        return Command.response(
            body=TopicList(tuple(namesrv.table.topics_by_flags(chosen))).encode()
        )

    return serve


def _is_unit(flags: int) -> bool:
    return bool(flags & UNIT_FLAG)


def _has_unit_subscription(flags: int) -> bool:
    return bool(flags & UNIT_SUBSCRIPTION_FLAG)


def _has_unit_subscription_only(flags: int) -> bool:
    return _has_unit_subscription(flags) and not _is_unit(flags)


def system_topic_list(namesrv: NameServer, channel: Channel, _command: Command) -> Command:
    """GET_SYSTEM_TOPIC_LIST_FROM_NS (304)."""
    names, address = namesrv.table.system_names(namesrv.resolver(channel))
    return Command.response(body=TopicList(tuple(names), address).encode())


def register_topic(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """REGISTER_TOPIC_IN_NAMESRV (217)."""
    header = route_headers.RegisterTopicRequestHeader.from_ext(command.ext_fields)
    if command.body:
        namesrv.table.put_topic(header.topic, TopicRouteData.decode(command.body).queue_datas)
    return Command.response()


def delete_topic(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """DELETE_TOPIC_IN_NAMESRV (216)."""
    header = route_headers.DeleteTopicFromNamesrvRequestHeader.from_ext(command.ext_fields)
    namesrv.table.delete_topic(header.topic, header.cluster_name or None)
    return Command.response()


# Key-value table and settings


def put_value(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """PUT_KV_CONFIG (100)."""
    header = route_headers.PutKVConfigRequestHeader.from_ext(command.ext_fields)
    namesrv.kv.put(header.namespace, header.key, header.value)
    return Command.response()


def get_value(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """GET_KV_CONFIG (101)."""
    header = route_headers.GetKVConfigRequestHeader.from_ext(command.ext_fields)
    value = namesrv.kv.get(header.namespace, header.key)
    if value is None:
        return _refused(
            ResponseCode.QUERY_NOT_FOUND,
            f"No config item, Namespace: {header.namespace} Key: {header.key}",
        )
    return Command.response(0, route_headers.GetKVConfigResponseHeader(value=value))


def delete_value(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """DELETE_KV_CONFIG (102)."""
    header = route_headers.DeleteKVConfigRequestHeader.from_ext(command.ext_fields)
    namesrv.kv.delete(header.namespace, header.key)
    return Command.response()


def namespace_values(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """GET_KVLIST_BY_NAMESPACE (219)."""
    header = route_headers.GetKVListByNamespaceRequestHeader.from_ext(command.ext_fields)
    values = namesrv.kv.namespace(header.namespace)
    if values is None:
        return _refused(
            ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
        )
    return Command.response(body=KVTable(values).encode())


def update_settings(namesrv: NameServer, _channel: Channel, command: Command) -> Command:
    """UPDATE_NAMESRV_CONFIG (318)."""
    try:
        texts = read_properties(command.body.decode())
        if not texts:
            return _refused(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        if listed := namesrv.config.black_list() & texts.keys():
            return _refused(
                ResponseCode.NO_PERMISSION,
                f"Can not update config in black list: {', '.join(sorted(listed))}",
            )
        namesrv.change_settings(texts)
    except (ConfigurationError, UnicodeDecodeError) as error:
        return _refused(ResponseCode.SYSTEM_ERROR, str(error))
    return Command.response()


def get_settings(namesrv: NameServer, _channel: Channel, _command: Command) -> Command:
    """GET_NAMESRV_CONFIG (319)."""
    return Command.response(body=write_properties(namesrv.config.export()).encode())


_SERVED: dict[RequestCode, Serve] = {
    RequestCode.PUT_KV_CONFIG: put_value,
    RequestCode.GET_KV_CONFIG: get_value,
    RequestCode.DELETE_KV_CONFIG: delete_value,
    RequestCode.GET_KVLIST_BY_NAMESPACE: namespace_values,
    RequestCode.QUERY_DATA_VERSION: query_data_version,
    RequestCode.REGISTER_BROKER: register_broker,
    RequestCode.UNREGISTER_BROKER: unregister_broker,
    RequestCode.BROKER_HEARTBEAT: broker_heartbeat,
    RequestCode.GET_BROKER_MEMBER_GROUP: member_group,
    RequestCode.GET_BROKER_CLUSTER_INFO: cluster_info,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: route_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: wipe_write_permission,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: add_write_permission,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topic_list,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: register_topic,
    RequestCode.GET_TOPICS_BY_CLUSTER: topics_by_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: system_topic_list,
    RequestCode.GET_UNIT_TOPIC_LIST: _topics_by_flags(_is_unit),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _topics_by_flags(_has_unit_subscription),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _topics_by_flags(_has_unit_subscription_only),
    RequestCode.UPDATE_NAMESRV_CONFIG: update_settings,
    RequestCode.GET_NAMESRV_CONFIG: get_settings,
}
