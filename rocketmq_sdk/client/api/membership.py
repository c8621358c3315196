"""Being known to brokers: heartbeats and leaving."""

from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.call import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.client import HeartbeatRequestHeader, UnregisterClientRequestHeader

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.bodies.heartbeat import HeartbeatData


async def send_heartbeat(client: Caller, address: str, data: "HeartbeatData", timeout: float | None = None) -> int:
    """Tell a broker who is here (34); returns the broker's version."""
    command = Command.request(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), body=data.encode())
    return checked(await client.call_address(address, command, timeout), address=address).version


async def unregister(
    client: Caller, address: str, *, producer_group: str | None = None, consumer_group: str | None = None, timeout: float | None = None
) -> None:
    """Tell a broker that a group's member leaves (35)."""
    header = UnregisterClientRequestHeader(client_id=client.client_id, producer_group=producer_group, consumer_group=consumer_group)
    checked(await client.call_address(address, Command.request(RequestCode.UNREGISTER_CLIENT, header), timeout), address=address)
