"""Operation of one broker: its configuration and its state."""

from __future__ import annotations

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.command import Command


async def broker_config(client: Caller, address: str, timeout: float | None = None) -> str:
    """The broker's settings as properties text (26)."""
    response = checked(
        await client.call_address(address, Command.request(RequestCode.GET_BROKER_CONFIG), timeout),
        address=address,
    )
    return response.body.decode("utf-8")


async def update_broker_config(
    client: Caller, address: str, properties: str, timeout: float | None = None
) -> None:
    """Change settings of a running broker by properties text (25).

    Raises the broker's error when it refuses a value.
    """
    command = Command.request(RequestCode.UPDATE_BROKER_CONFIG, body=properties.encode("utf-8"))
    checked(await client.call_address(address, command, timeout), address=address)


async def broker_runtime_info(
    client: Caller, address: str, timeout: float | None = None
) -> dict[str, str]:
    """The broker's counters and times (28), all values texts."""
    response = checked(
        await client.call_address(
            address, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO), timeout
        ),
        address=address,
    )
    return dict(KVTable.decode(response.body).table)
