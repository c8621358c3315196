"""The key-value table and the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes, refuse
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties, write_properties
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import routes as route_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.namesrv.registry import Registry
    from rocketmq_sdk.remoting.channel import Channel


class SettingRequests:
    """The key-value table and the settings."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def requests(self) -> Iterable[Request]:
        """The rows."""
        return (
            Request(
                RequestCode.PUT_KV_CONFIG,
                self.put_value,
                route_headers.PutKVConfigRequestHeader,
                writes=Writes.SETTINGS,
            ),
            Request(
                RequestCode.GET_KV_CONFIG, self.get_value, route_headers.GetKVConfigRequestHeader
            ),
            Request(
                RequestCode.DELETE_KV_CONFIG,
                self.delete_value,
                route_headers.DeleteKVConfigRequestHeader,
                writes=Writes.SETTINGS,
            ),
            Request(
                RequestCode.GET_KVLIST_BY_NAMESPACE,
                self.namespace_values,
                route_headers.GetKVListByNamespaceRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.UPDATE_NAMESRV_CONFIG,
                self.update_settings,
                raw=True,
                cost=Cost.BODY,
                writes=Writes.SETTINGS,
            ),
            Request(RequestCode.GET_NAMESRV_CONFIG, self.get_settings, cost=Cost.TABLE),
        )

    def put_value(self, header: route_headers.PutKVConfigRequestHeader) -> Command:
        """PUT_KV_CONFIG (100)."""
        self._registry.kv.put(header.namespace, header.key, header.value)
        return Command.response()

    def get_value(self, header: route_headers.GetKVConfigRequestHeader) -> Command:
        """GET_KV_CONFIG (101)."""
        value = self._registry.kv.get(header.namespace, header.key)
        if value is None:
            return refuse(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return Command.response(0, route_headers.GetKVConfigResponseHeader(value=value))

    def delete_value(self, header: route_headers.DeleteKVConfigRequestHeader) -> Command:
        """DELETE_KV_CONFIG (102)."""
        self._registry.kv.delete(header.namespace, header.key)
        return Command.response()

    def namespace_values(self, header: route_headers.GetKVListByNamespaceRequestHeader) -> Command:
        """GET_KVLIST_BY_NAMESPACE (219)."""
        values = self._registry.kv.namespace(header.namespace)
        if values is None:
            return refuse(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
            )
        return Command.response(body=KVTable(values).encode())

    def update_settings(self, _channel: Channel, command: Command) -> Command:
        """UPDATE_NAMESRV_CONFIG (318)."""
        try:
            texts = read_properties(command.body.decode())
            if not texts:
                return refuse(ResponseCode.SYSTEM_ERROR, "string2Properties error")
            if listed := self._registry.config.black_list() & texts.keys():
                return refuse(
                    ResponseCode.NO_PERMISSION,
                    f"Can not update config in black list: {', '.join(sorted(listed))}",
                )
            self._registry.change_settings(texts)
        except (ConfigurationError, UnicodeDecodeError) as error:
            return refuse(ResponseCode.SYSTEM_ERROR, str(error))
        return Command.response()

    def get_settings(self) -> Command:
        """GET_NAMESRV_CONFIG (319)."""
        return Command.response(body=write_properties(self._registry.config.export()).encode())
