"""Requests about the key-value table: codes 100, 101, 102, 219.

`DefaultRequestProcessor` of Apache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes, refuse
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import kv as headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.namesrv.kv import KeyValueTable
    from rocketmq_sdk.remoting.channel import Continuation


class KeyValueRequests:
    """Reads and changes the key-value table. A change writes the whole of its file."""

    __slots__ = ("_kv",)

    def __init__(self, kv: KeyValueTable) -> None:
        self._kv = kv

    def requests(self) -> Iterable[Request]:
        """One text, or all of a namespace."""
        return (
            Request(
                RequestCode.PUT_KV_CONFIG,
                self.put,
                needs.cluster(Action.UPDATE),
                headers.PutKVConfigRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.SETTINGS,
            ),
            Request(
                RequestCode.GET_KV_CONFIG,
                self.get,
                needs.cluster(Action.GET),
                headers.GetKVConfigRequestHeader,
            ),
            Request(
                RequestCode.DELETE_KV_CONFIG,
                self.delete,
                needs.cluster(Action.UPDATE),
                headers.DeleteKVConfigRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.SETTINGS,
            ),
            Request(
                RequestCode.GET_KVLIST_BY_NAMESPACE,
                self.namespace,
                needs.cluster(Action.GET),
                headers.GetKVListByNamespaceRequestHeader,
                cost=Cost.TABLE,
            ),
        )

    def put(self, header: headers.PutKVConfigRequestHeader) -> Continuation:
        """PUT_KV_CONFIG (100)."""

        async def answer() -> Command:
            await self._kv.put(header.namespace, header.key, header.value)
            return Command.response()

        return answer

    def get(self, header: headers.GetKVConfigRequestHeader) -> Command:
        """GET_KV_CONFIG (101)."""
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            return refuse(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return Command.response(0, headers.GetKVConfigResponseHeader(value=value))

    def delete(self, header: headers.DeleteKVConfigRequestHeader) -> Continuation:
        """DELETE_KV_CONFIG (102)."""

        async def answer() -> Command:
            await self._kv.delete(header.namespace, header.key)
            return Command.response()

        return answer

    def namespace(self, header: headers.GetKVListByNamespaceRequestHeader) -> Command:
        """GET_KVLIST_BY_NAMESPACE (219)."""
        values = self._kv.namespace(header.namespace)
        if values is None:
            return refuse(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
            )
        return Command.response(body=KVTable(values).encode())
