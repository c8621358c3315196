"""Names and texts that name servers keep."""

from __future__ import annotations

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.kv import (
    DeleteKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)


async def _ask(
    client: Caller, address: str | None, command: Command, timeout: float | None
) -> None:
    if address is None:
        checked(await client.call_name_server(command, timeout))
    else:
        checked(await client.call_address(address, command, timeout), address=address)


async def put_kv(
    client: Caller,
    address: str | None,
    namespace: str,
    key: str,
    value: str,
    timeout: float | None = None,
) -> None:
    """Keep a text at the name server of an address, or at any (100).

    Name servers do not tell each other.
    """
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    await _ask(client, address, Command.request(RequestCode.PUT_KV_CONFIG, header), timeout)


async def delete_kv(
    client: Caller,
    address: str | None,
    namespace: str,
    key: str,
    timeout: float | None = None,
) -> None:
    """Take a text away from the name server of an address, or from any (102)."""
    header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
    await _ask(client, address, Command.request(RequestCode.DELETE_KV_CONFIG, header), timeout)


async def kv_of(client: Caller, namespace: str, timeout: float | None = None) -> dict[str, str]:
    """All texts of a namespace at one name server (219).

    Raises `NotFoundError` when it has none.
    """
    header = GetKVListByNamespaceRequestHeader(namespace=namespace)
    command = Command.request(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
    return dict(KVTable.decode(checked(await client.call_name_server(command, timeout)).body).table)
