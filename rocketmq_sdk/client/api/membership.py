"""Being known to brokers: heartbeats and leaving."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rocketmq_sdk.client.api.call import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.client import (
    HeartbeatRequestHeader,
    UnregisterClientRequestHeader,
)

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.bodies.heartbeat import HeartbeatData


class HeartbeatAnswer(NamedTuple):
    """What a broker says to a heartbeat: its version, whether it understands short
    heartbeats, and whether it wants a full one.
    """

    version: int
    knows_v2: bool
    subscriptions_changed: bool


async def send_heartbeat(
    client: Caller, address: str, data: HeartbeatData, timeout: float | None = None
) -> HeartbeatAnswer:
    """Tell a broker who is here (34)."""
    command = Command.request(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), body=data.encode())
    response = checked(await client.call_address(address, command, timeout), address=address)
    fields = response.ext_fields
    return HeartbeatAnswer(
        response.version,
        fields.get("IS_SUPPORT_HEART_BEAT_V2") == "true",
        fields.get("IS_SUB_CHANGE") == "true",
    )


async def unregister(
    client: Caller,
    address: str,
    *,
    producer_group: str | None = None,
    consumer_group: str | None = None,
    timeout: float | None = None,
) -> None:
    """Tell a broker that a group's member leaves (35)."""
    header = UnregisterClientRequestHeader(
        client_id=client.client_id, producer_group=producer_group, consumer_group=consumer_group
    )
    checked(
        await client.call_address(
            address, Command.request(RequestCode.UNREGISTER_CLIENT, header), timeout
        ),
        address=address,
    )
