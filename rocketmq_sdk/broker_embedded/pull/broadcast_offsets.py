"""How far the clients of broadcasting groups have pulled.

`BroadcastOffsetManager` of Apache RocketMQ 5.4.0. A broadcasting client keeps its
offsets in a file of its own, which a proxy in front of the broker does not have.
Therefore the broker notes where each client pulls. A client that comes through a proxy
for the first time, or changes between a proxy and the broker, gets its start from these
notes. The lowest offset of a group's clients is committed periodically for
`<group>@broadcast`. It is kept in `consumerOffset.json` like all others, and is what
remains of the clients after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.services import OnCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.members.consumers import ConsumerManager
    from rocketmq_sdk.broker_embedded.tables.offsets import ConsumerOffsetManager
    from rocketmq_sdk.clock import Clock

SCAN_INTERVAL: Final = 5.0
"""Seconds between two scans."""
GROUP_SUFFIX: Final = "@broadcast"


class _Client:
    """One client in a topic: by queue, its last offset and whether through a proxy.

    Apache remembers the proxy by client only.
    """

    __slots__ = ("from_proxy", "offsets", "pulled_at")

    def __init__(self) -> None:
        self.from_proxy: dict[int, bool] = {}
        self.offsets: dict[int, int] = {}
        self.pulled_at = 0.0


class BroadcastOffsetManager:
    """Clients of broadcasting groups by topic and group.

    `first_of(topic, queue_id)` is where an unknown client begins.
    """

    __slots__ = ("_clients", "_clock", "_consumers", "_first_of", "_offsets", "on_call")

    def __init__(
        self,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        clock: Clock,
        first_of: Callable[[str, int], int],
    ) -> None:
        self._consumers = consumers
        self._offsets = offsets
        self._clock = clock
        self._first_of = first_of
        self._clients: dict[tuple[str, str], dict[str, _Client]] = {}
        self.on_call = OnCall()
        """Called once any client is known: most brokers never have one."""

    def note_pull(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        client_id: str,
        *,
        from_proxy: bool,
    ) -> None:
        """A client was answered for a pull at an offset; offsets only rise."""
        self.on_call.call()
        clients = self._clients.setdefault((topic, group), {})
        client = clients.get(client_id)
        if client is None:
            client = clients[client_id] = _Client()
        client.pulled_at = self._clock.monotonic()
        client.from_proxy[queue_id] = from_proxy
        client.offsets[queue_id] = max(offset, client.offsets.get(queue_id, offset))

    def start(
        self, topic: str, group: str, queue_id: int, asked: int, client_id: str, *, from_proxy: bool
    ) -> int | None:
        """Where a client has to begin; None when the offset that it asks for is right.

        A proxy asks with a negative offset when it knows none. A client that always
        came directly keeps its own offset.
        """
        client = self._clients.get((topic, group), {}).get(client_id)
        needs_one = from_proxy and asked < 0
        moved = client is not None and client.from_proxy.get(queue_id, from_proxy) is not from_proxy
        if not (needs_one or moved):
            return None
        offset = -1 if client is None else client.offsets.get(queue_id, -1)
        if offset < 0:
            offset = self._offsets.query(group + GROUP_SUFFIX, topic, queue_id)
        return offset if offset >= 0 else self._first_of(topic, queue_id)

    def scan(self, offline: float, online: float) -> None:
        """Commit the lowest offset of each group in each queue, and forget clients.

        One whose connection is gone is forgotten `offline` seconds after its last pull,
        one that is connected after `online` seconds.
        """
        now = self._clock.monotonic()
        for (topic, group), clients in list(self._clients.items()):
            connected = set(self._consumers.client_ids(group))
            lowest: dict[int, int] = {}
            for client_id, client in list(clients.items()):
                idle, is_online = now - client.pulled_at, client_id in connected
                if is_online or idle < offline:
                    for queue_id, offset in client.offsets.items():
                        lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
                if idle >= (online if is_online else offline):
                    del clients[client_id]
            if not clients:
                del self._clients[topic, group]
            for queue_id, offset in lowest.items():
                self._offsets.commit(group + GROUP_SUFFIX, topic, queue_id, offset)

    def known(self, topic: str, group: str) -> set[str]:
        """The ids of the clients that are remembered in a topic."""
        return set(self._clients.get((topic, group), ()))

    def remove_topic(self, topic: str) -> None:
        """Forget a topic."""
        for key in [key for key in self._clients if key[0] == topic]:
            del self._clients[key]

    def remove_group(self, group: str) -> None:
        """Forget a group."""
        for key in [key for key in self._clients if key[1] == group]:
            del self._clients[key]
