"""The addresses of brokers by name, and the broker names of each cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.broker_embedded.namesrv.addresses import AddressResolver, same_address
from rocketmq_sdk.model.route import BrokerData
from rocketmq_sdk.protocol.bodies.registration import BrokerMemberGroup
from rocketmq_sdk.protocol.bodies.routes import ClusterInfo

if TYPE_CHECKING:
    from collections.abc import Collection

    from rocketmq_sdk.broker_embedded.namesrv.registration import BrokerRegistration


class BrokerTable:
    """Addresses of brokers by name, names by cluster."""

    __slots__ = ("_brokers", "_clusters")

    def __init__(self) -> None:
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._brokers

    def get(self, name: str) -> BrokerData | None:
        """The brokers of a name, or None when there is none."""
        return self._brokers.get(name)

    def addresses(self, name: str) -> dict[int, str]:
        """The addresses of a name by broker id, in a dictionary of its own."""
        known = self._brokers.get(name)
        return {} if known is None else dict(known.broker_addrs)

    def names_of(self, cluster: str) -> Collection[str]:
        """The names of a cluster."""
        return self._clusters.get(cluster, {})

    def join(self, cluster: str, name: str) -> None:
        """A name belongs to a cluster."""
        self._clusters.setdefault(cluster, {})[name] = None

    def put(self, registration: BrokerRegistration, addresses: dict[int, str]) -> None:
        """Set the addresses of a name, with what else was registered for it."""
        self._brokers[registration.broker_name] = BrokerData(
            registration.cluster,
            registration.broker_name,
            dict(sorted(addresses.items())),
            registration.enable_acting_master,
            registration.zone_name,
        )

    def set_addresses(self, name: str, addresses: dict[int, str]) -> None:
        """Set the addresses of a known name."""
        self._brokers[name] = attrs.evolve(self._brokers[name], broker_addrs=addresses)

    def remove(self, cluster: str, name: str) -> None:
        """Forget a name, and its cluster with the last one."""
        del self._brokers[name]
        names = self._clusters.get(cluster)
        if names is not None:
            names.pop(name, None)
            if not names:
                del self._clusters[cluster]

    # What peers are told

    def cluster_info(self, resolve: AddressResolver = same_address) -> ClusterInfo:
        """All brokers and clusters."""
        brokers = {name: resolved(broker, resolve) for name, broker in self._brokers.items()}
        return ClusterInfo(
            brokers, {cluster: list(names) for cluster, names in self._clusters.items()}
        )

    def system_names(self, resolve: AddressResolver = same_address) -> tuple[list[str], str | None]:
        """The names of clusters and brokers, and the address of one broker.

        The names are topics too.
        """
        names = [
            name for cluster, brokers in self._clusters.items() for name in (cluster, *brokers)
        ]
        addresses = (
            address for broker in self._brokers.values() for address in broker.broker_addrs.values()
        )
        first = next(addresses, None)
        return names, None if first is None else resolve(first)

    def member_group(
        self, cluster: str, broker_name: str, resolve: AddressResolver = same_address
    ) -> BrokerMemberGroup | None:
        """The addresses of the brokers that share a name; None when there is none."""
        broker = self._brokers.get(broker_name)
        if broker is None or broker.cluster != cluster:
            return None
        return BrokerMemberGroup(cluster, broker_name, resolved(broker, resolve).broker_addrs)


def resolved(broker: BrokerData, resolve: AddressResolver) -> BrokerData:
    """The brokers of a name with their addresses as a peer sees them."""
    if resolve is same_address:
        return broker
    return attrs.evolve(
        broker,
        broker_addrs={number: resolve(address) for number, address in broker.broker_addrs.items()},
    )
