"""Translates registered addresses for the peers of a name server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.namesrv.registration import OWN_BROKER

if TYPE_CHECKING:
    from rocketmq_sdk.remoting.channel import Channel

AddressResolver = Callable[[str], str]
"""Maps a registered address to the one for the asking client."""


def same_address(address: str) -> str:
    """The resolver that changes nothing."""
    return address


class Addresses:
    """Gives each peer its resolver."""

    __slots__ = ("_own_address",)

    def __init__(self, own_address: Callable[[Channel], str] | None = None) -> None:
        """`own_address` gives a peer the address of the broker in this process.

        That broker registers as `OWN_BROKER`. None where there is no such broker.
        """
        self._own_address = own_address

    def resolver(self, channel: Channel) -> AddressResolver:
        """The resolver for the peer of a channel."""
        own_address = self._own_address
        if own_address is None:
            return same_address

        def resolve(address: str) -> str:
            return own_address(channel) if address == OWN_BROKER else address

        return resolve
