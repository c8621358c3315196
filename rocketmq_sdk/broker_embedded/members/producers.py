"""Which clients produce in which groups (`ProducerManager`).

They are asked about transactions, and replies are handed to them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketmq_sdk.broker_embedded.members.client_channel import ClientChannel
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.remoting.channel import Channel

_TRIES: Final = 3
KEPT_OF_A_GROUP: Final = 600
"""Bytes that are kept of each group of a client, as long as it is there."""


class ProducerManager:
    """All producer groups with at least one member."""

    __slots__ = ("_clients", "_clock", "_counter", "_groups", "_joined")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[Channel, ClientChannel]] = {}
        self._joined: dict[Channel, dict[str, None]] = {}
        self._clients: dict[str, Channel] = {}
        self._counter = 0

    def register(self, group: str, channel: Channel, client: ClientChannel) -> None:
        """Take one group of a heartbeat."""
        members = self._groups.setdefault(group, {})
        known = members.get(channel)
        if known is None:
            members[channel] = client
            self._joined.setdefault(channel, {})[group] = None
            channel.keep(KEPT_OF_A_GROUP + len(group))
            self._clients[client.client_id] = channel
        else:
            known.renew(client.last_update, client.last_update_ms)

    def unregister(self, group: str, channel: Channel) -> None:
        """A client leaves a group."""
        members = self._groups.get(group)
        if members is None:
            return
        client = members.pop(channel, None)
        if not members:
            del self._groups[group]
        if client is None:
            return
        joined = self._joined[channel]
        del joined[group]
        channel.keep(-KEPT_OF_A_GROUP - len(group))
        if not joined:
            del self._joined[channel]
            self._forget(client, channel)

    def channel_closed(self, channel: Channel) -> None:
        """A connection ended: it leaves all its groups."""
        for group in list(self._joined.get(channel, ())):
            self.unregister(group, channel)

    def _forget(self, client: ClientChannel, channel: Channel) -> None:
        if self._clients.get(client.client_id) is channel:
            del self._clients[client.client_id]

    def members(self, group: str) -> list[ClientChannel]:
        """The clients of a group; empty when there are none."""
        return list(self._groups.get(group, {}).values())

    def all(self) -> Mapping[str, Iterable[ClientChannel]]:
        """All clients by group."""
        return {group: list(members.values()) for group, members in self._groups.items()}

    def channel_of(self, client_id: str) -> Channel | None:
        """The connection of a client."""
        return self._clients.get(client_id)

    def available_channel(self, group: str) -> Channel | None:
        """An open connection of a group, each in turn; None when the group has none."""
        channels = list(self._groups.get(group, ()))
        if not channels:
            return None
        self._counter += 1
        for attempt in range(min(_TRIES, len(channels))):
            channel = channels[(self._counter + attempt) % len(channels)]
            if not channel.closed:
                return channel
        return next((channel for channel in channels if not channel.closed), None)

    def heard_of(self) -> float:
        """When the most silent client was heard of; infinite without any."""
        return min(
            (
                client.last_update
                for members in self._groups.values()
                for client in members.values()
            ),
            default=math.inf,
        )

    def expire(self, timeout: float) -> list[Channel]:
        """Remove clients silent for `timeout` seconds; returns their connections."""
        limit = self._clock.monotonic() - timeout
        silent = {
            channel: None
            for members in self._groups.values()
            for channel, client in members.items()
            if client.last_update < limit
        }
        for channel in silent:
            self.channel_closed(channel)
        return list(silent)
