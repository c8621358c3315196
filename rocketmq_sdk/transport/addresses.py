"""The two addresses of a byte stream, as text and packed."""

from __future__ import annotations

import attrs
import trio

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.route import join_address, pack_host, split_address
from rocketmq_sdk.transport.memory import MemoryStream

LOOPBACK = "127.0.0.1"


@attrs.frozen
class StreamAddresses:
    """Both ends of a connection."""

    local_address: str
    remote_address: str
    remote_host_packed: bytes


def stream_addresses(stream: trio.abc.Stream) -> StreamAddresses:
    """The ends of a TCP or memory stream.

    `unknown:0` for others and for a socket whose peer is gone.
    """
    if isinstance(stream, MemoryStream):
        local, remote = split_address(stream.local_address), split_address(stream.remote_address)
    elif isinstance(stream, trio.SocketStream):
        try:
            local, remote = stream.socket.getsockname()[:2], stream.socket.getpeername()[:2]
        except OSError:
            local = remote = ("unknown", 0)
    else:
        local = remote = ("unknown", 0)
    try:
        packed = pack_host(*remote)
    except ConfigurationError:
        packed = pack_host(LOOPBACK, remote[1])  # a name: only memory networks have them
    return StreamAddresses(join_address(*local), join_address(*remote), packed)
