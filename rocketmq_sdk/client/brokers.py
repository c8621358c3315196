"""The addresses and versions of the brokers that routes have named.

Follows `MQClientInstance.brokerAddrTable` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rocketmq_sdk.model.route import MASTER_ID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.model.route import TopicRoute


class FoundBroker(NamedTuple):
    """One address of a broker group, with its id (0 = master)."""

    address: str
    broker_id: int

    @property
    def is_slave(self) -> bool:
        """Whether the address is not the master's."""
        return self.broker_id != MASTER_ID


class BrokerAddresses:
    """Addresses by broker name and id, and the version of each broker."""

    __slots__ = ("_names", "_table", "_versions")

    def __init__(self) -> None:
        self._table: dict[str, dict[int, str]] = {}
        self._names: dict[str, str] = {}
        self._versions: dict[str, int] = {}

    def update(self, route: TopicRoute) -> None:
        """Take over the addresses of a route.

        The newest route that names a broker wins.
        """
        for data in route.broker_datas:
            if self._table.get(data.broker_name) != data.broker_addrs:
                self._table[data.broker_name] = dict(data.broker_addrs)
                self._index()

    def keep(self, broker_names: Iterable[str]) -> None:
        """Forget the brokers that are not named."""
        wanted = set(broker_names)
        for broker_name in [name for name in self._table if name not in wanted]:
            del self._table[broker_name]
        self._index()

    def _index(self) -> None:
        self._names = {
            address: name
            for name, addresses in self._table.items()
            for address in addresses.values()
        }
        self._versions = {
            address: version
            for address, version in self._versions.items()
            if address in self._names
        }

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """The address of exactly this broker, or None."""
        return self._table.get(broker_name, {}).get(broker_id)

    def name_of(self, address: str) -> str | None:
        """The broker name that an address belongs to, or None."""
        return self._names.get(address)

    def subscribe_address(
        self, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = False
    ) -> FoundBroker | None:
        """Where to read from.

        The wanted id; for a missing slave the next id; unless `only_this`, any
        (`findBrokerAddressInSubscribe`).
        """
        addresses = self._table.get(broker_name)
        if not addresses:
            return None
        for candidate in (broker_id, broker_id + 1) if broker_id != MASTER_ID else (broker_id,):
            if candidate in addresses:
                return FoundBroker(addresses[candidate], candidate)
        if only_this:
            return None
        found = min(addresses)
        return FoundBroker(addresses[found], found)

    def all(self, *, masters_only: bool = False) -> list[str]:
        """Every known address, each once."""
        return list(
            dict.fromkeys(
                address
                for addresses in self._table.values()
                for broker_id, address in addresses.items()
                if not masters_only or broker_id == MASTER_ID
            )
        )

    def remember_version(self, address: str, version: int) -> None:
        """Keep the version that a broker answered a heartbeat with."""
        self._versions[address] = version

    def version(self, address: str) -> int:
        """The version of a broker, 0 while unknown."""
        return self._versions.get(address, 0)
