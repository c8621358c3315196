"""Live brokers: their timeouts, and what they registered besides topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.protocol.bodies.topics import DataVersion

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.namesrv.registration import BrokerKey, BrokerRegistration


@attrs.define(slots=True)
class LiveBroker:
    """What is known of a broker that is alive; times are monotonic milliseconds."""

    broker_name: str
    broker_id: int
    last_update_ms: int
    heartbeat_timeout_ms: int
    data_version: DataVersion
    ha_server_address: str
    channel_id: int | None

    @property
    def due_ms(self) -> int:
        """When it expires without a new sign of life; monotonic milliseconds."""
        return self.last_update_ms + self.heartbeat_timeout_ms


class LiveBrokers:
    """The brokers that are alive, by cluster and address."""

    __slots__ = ("_filter_servers", "_live")

    def __init__(self) -> None:
        self._live: dict[BrokerKey, LiveBroker] = {}
        self._filter_servers: dict[BrokerKey, tuple[str, ...]] = {}

    def get(self, key: BrokerKey) -> LiveBroker | None:
        """A broker, or None when it is not alive."""
        return self._live.get(key)

    def all(self) -> dict[BrokerKey, LiveBroker]:
        """All of them, in a dictionary of its own."""
        return dict(self._live)

    def put(self, registration: BrokerRegistration, now_ms: int) -> None:
        """A broker has registered. Its filter servers stay when it names none."""
        key = registration.key
        self._live[key] = LiveBroker(
            registration.broker_name,
            registration.broker_id,
            now_ms,
            registration.heartbeat_timeout_ms,
            registration.data_version,
            registration.ha_server_address,
            registration.channel_id,
        )
        if registration.filter_servers:
            self._filter_servers[key] = registration.filter_servers
        elif registration.filter_servers is not None:
            self._filter_servers.pop(key, None)

    def touch(self, key: BrokerKey, now_ms: int) -> None:
        """A live broker was heard of."""
        live = self._live.get(key)
        if live is not None:
            live.last_update_ms = now_ms

    def give_up(self, key: BrokerKey) -> None:
        """A broker counts as alive no more; its filter servers stay known."""
        self._live.pop(key, None)

    def remove(self, key: BrokerKey) -> None:
        """A broker is gone."""
        self._live.pop(key, None)
        self._filter_servers.pop(key, None)

    def data_version(self, key: BrokerKey) -> DataVersion | None:
        """The version of the topics that a live broker has registered, or None."""
        live = self._live.get(key)
        return None if live is None else live.data_version

    def filter_servers(self, key: BrokerKey) -> tuple[str, ...]:
        """The filter servers of a broker."""
        return self._filter_servers.get(key, ())

    def next_due_ms(self) -> int | None:
        """When the next broker is due to be given up, or None when there is none."""
        return min((live.due_ms for live in self._live.values()), default=None)
