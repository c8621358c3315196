"""Where channels come from: the seam between a client and TCP, a memory network, or a broker in the same process."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import trio

    from rocketmq_sdk.remoting.channel import Channel, Handler


class ChannelSource(Protocol):
    """Opens channels to addresses."""

    async def open_channel(self, address: str | None, handler: "Handler", nursery: "trio.Nursery") -> "Channel":
        """Open a channel to `host:port`; None means the name server of the source, where it has one.

        The tasks of the channel live in `nursery`; `handler` serves what the peer asks. Raises `ConnectError`.
        """
        ...

    def knows(self, address: str) -> bool:
        """Whether the source serves this address itself; others are opened over TCP."""
        ...
