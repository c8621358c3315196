"""The route table of a name server (`RouteInfoManager` of Apache RocketMQ 5.4.0).

Pure: no clock, no channels; every call that depends on time takes `now_ms`. Nothing of
it is kept over a restart, since brokers register again every 30 seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.broker_embedded.namesrv.registration import (
    BrokerKey,
    BrokerRegistration,
    LiveBroker,
    RegistrationResult,
)
from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.model.route import MASTER_ID, BrokerData, QueueData, TopicRoute
from rocketmq_sdk.protocol.bodies.registration import BrokerMemberGroup
from rocketmq_sdk.protocol.bodies.routes import ClusterInfo

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.bodies.topics import DataVersion, TopicConfig

AddressResolver = Callable[[str], str]
"""What an asking client is told for a registered address."""

_WRITE = int(Permission.WRITE)
_READ_WRITE = int(Permission.READ | Permission.WRITE)


def same_address(address: str) -> str:
    """The resolver that changes nothing."""
    return address


class RouteTable:
    """Which brokers are alive, where they listen, and which topics they hold."""

    __slots__ = ("_brokers", "_clusters", "_filter_servers", "_live", "_topics")

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[BrokerKey, LiveBroker] = {}
        self._filter_servers: dict[BrokerKey, tuple[str, ...]] = {}

    # Registration

    def register(
        self, registration: BrokerRegistration, now_ms: int, *, delete_topics: bool = False
    ) -> RegistrationResult | None:
        """Take in what a broker tells of itself; None when it is refused.

        With `delete_topics` a broker that names several topics loses all others.
        Refused is a broker id that was unknown so far and names a single topic: an
        increment that came before the whole.
        """
        name, address, broker_id = (
            registration.broker_name,
            registration.address,
            registration.broker_id,
        )
        self._clusters.setdefault(registration.cluster, {})[name] = None
        known = self._brokers.get(name)
        addresses = dict(known.broker_addrs) if known is not None else {}
        previous_version = self.data_version(registration.key)
        for other_id in [
            number
            for number, other in addresses.items()
            if other == address and number != broker_id
        ]:
            del addresses[other_id]
        owner = addresses.get(broker_id)
        if owner is not None and owner != address:
            owning = self._live.get(BrokerKey(registration.cluster, owner))
            if (
                owning is not None
                and owning.data_version.state_version > registration.data_version.state_version
            ):
                self._live.pop(registration.key, None)
                return RegistrationResult()
        if owner is None and len(registration.topics) == 1:
            self._keep_broker(registration, addresses)
            return None
        addresses[broker_id] = address
        self._keep_broker(registration, addresses)
        self._take_topics(
            registration,
            min(addresses),
            previous_version,
            first=owner is None,
            delete_topics=delete_topics,
        )
        self._live[registration.key] = LiveBroker(
            name,
            broker_id,
            now_ms,
            registration.heartbeat_timeout_ms,
            registration.data_version,
            registration.ha_server_address,
            registration.channel_id,
        )
        self._take_filter_servers(registration)
        return self._master_of(registration, addresses)

    def _keep_broker(self, registration: BrokerRegistration, addresses: dict[int, str]) -> None:
        self._brokers[registration.broker_name] = BrokerData(
            registration.cluster,
            registration.broker_name,
            dict(sorted(addresses.items())),
            registration.enable_acting_master,
            registration.zone_name,
        )

    def _take_topics(
        self,
        registration: BrokerRegistration,
        minimum_id: int,
        previous: DataVersion | None,
        *,
        first: bool,
        delete_topics: bool,
    ) -> None:
        """Topics count only from the master, or from the lowest replica of a group that
        can act as one; it offers them for reading only.
        """
        acting = (
            registration.enable_acting_master and registration.broker_id == minimum_id != MASTER_ID
        )
        if registration.broker_id != MASTER_ID and not acting:
            return
        name = registration.broker_name
        if delete_topics and len(registration.topics) > 1:
            for topic in [
                topic
                for topic, queues in self._topics.items()
                if name in queues and topic not in registration.topics
            ]:
                self._drop(topic, name)
        changed = first or previous != registration.data_version
        for topic, config in registration.topics.items():
            queues = self._topics.setdefault(topic, {})
            if changed or name not in queues:
                queues[name] = _queue_data(name, config, read_only=acting)

    def _take_filter_servers(self, registration: BrokerRegistration) -> None:
        if registration.filter_servers:
            self._filter_servers[registration.key] = registration.filter_servers
        elif registration.filter_servers is not None:
            self._filter_servers.pop(registration.key, None)

    def _master_of(
        self, registration: BrokerRegistration, addresses: dict[int, str]
    ) -> RegistrationResult:
        master = addresses.get(MASTER_ID)
        if registration.broker_id == MASTER_ID or master is None:
            return RegistrationResult()
        live = self._live.get(BrokerKey(registration.cluster, master))
        return (
            RegistrationResult()
            if live is None
            else RegistrationResult(master, live.ha_server_address)
        )

    def data_version(self, key: BrokerKey) -> DataVersion | None:
        """The version of the topics that a live broker has registered, or None."""
        live = self._live.get(key)
        return None if live is None else live.data_version

    def touch(self, key: BrokerKey, now_ms: int) -> None:
        """A live broker was heard of."""
        live = self._live.get(key)
        if live is not None:
            live.last_update_ms = now_ms

    # The end of brokers

    def unregister(self, cluster: str, address: str, broker_name: str, broker_id: int) -> None:
        """Forget an address of a broker; the last one takes the broker and its queues
        with it.
        """
        key = BrokerKey(cluster, address)
        self._live.pop(key, None)
        self._filter_servers.pop(key, None)
        known = self._brokers.get(broker_name)
        if known is None:
            return
        addresses = {
            number: other
            for number, other in known.broker_addrs.items()
            if number != broker_id or other != address
        }
        if addresses:
            self._brokers[broker_name] = attrs.evolve(known, broker_addrs=addresses)
            if known.enable_acting_master and MASTER_ID not in addresses:
                self._change_permissions(broker_name, lambda perm: perm & ~_WRITE)
            return
        del self._brokers[broker_name]
        names = self._clusters.get(cluster)
        if names is not None:
            names.pop(broker_name, None)
            if not names:
                del self._clusters[cluster]
        for topic in [topic for topic, queues in self._topics.items() if broker_name in queues]:
            self._drop(topic, broker_name)

    def unregister_channel(self, channel_id: int) -> list[BrokerKey]:
        """Forget the brokers that registered through a connection that has ended; tells
        which.
        """
        return self._unregister_where(lambda live: live.channel_id == channel_id)

    def expire(self, now_ms: int) -> list[tuple[BrokerKey, int | None]]:
        """Forget the brokers that were not heard of for their timeout; tells which,
        with the connection of each.
        """
        channels = {key: live.channel_id for key, live in self._live.items()}
        return [
            (key, channels[key])
            for key in self._unregister_where(lambda live: live.due_ms < now_ms)
        ]

    def next_due_ms(self) -> int | None:
        """When the next broker is due to be given up, or None when there is none."""
        return min((live.due_ms for live in self._live.values()), default=None)

    def _unregister_where(self, chosen: Callable[[LiveBroker], bool]) -> list[BrokerKey]:
        ended = [(key, live) for key, live in self._live.items() if chosen(live)]
        for key, live in ended:
            self.unregister(key.cluster, key.address, live.broker_name, live.broker_id)
        return [key for key, _ in ended]

    # Topics

    def route(self, topic: str, resolve: AddressResolver = same_address) -> TopicRoute | None:
        """All that is known of a topic, or None when no live broker holds it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        filters = {
            resolve(address): list(servers)
            for broker in brokers
            for address in broker.broker_addrs.values()
            if (servers := self._filter_servers.get(BrokerKey(broker.cluster, address)))
        }
        return TopicRoute(
            tuple(queues.values()),
            tuple(_resolved(broker, resolve) for broker in brokers),
            None,
            filters,
        )

    def put_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Set queues of a topic; nothing happens when one of the brokers is unknown."""
        queues = list(queue_datas)
        if queues and all(data.broker_name in self._brokers for data in queues):
            self._topics.setdefault(topic, {}).update({data.broker_name: data for data in queues})

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, or what the brokers of one cluster hold of it."""
        if cluster is None:
            self._topics.pop(topic, None)
            return
        for name in self._clusters.get(cluster, {}):
            self._drop(topic, name)

    def _drop(self, topic: str, broker_name: str) -> None:
        queues = self._topics.get(topic)
        if queues is not None:
            queues.pop(broker_name, None)
            if not queues:
                del self._topics[topic]

    def wipe_write_permission(self, broker_name: str) -> int:
        """Nobody sends to a broker any more, until it registers changed topics; tells
        how many topics it holds.
        """
        return self._change_permissions(broker_name, lambda perm: perm & ~_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Give a broker's topics the permissions to read and to write, and no other;
        tells how many topics it holds.
        """
        return self._change_permissions(broker_name, lambda _perm: _READ_WRITE)

    def _change_permissions(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            data = queues.get(broker_name)
            if data is not None:
                queues[broker_name] = attrs.evolve(data, perm=change(data.perm))
                count += 1
        return count

    # Lists

    def topics(self) -> list[str]:
        """All topics."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics of a cluster's brokers, those of each broker in turn."""
        return [
            topic
            for name in self._clusters.get(cluster, {})
            for topic, queues in self._topics.items()
            if name in queues
        ]

    def topics_by_flags(self, chosen: Callable[[int], bool]) -> list[str]:
        """The topics whose system flags, as one broker holds them, are chosen."""
        return [
            topic
            for topic, queues in self._topics.items()
            if queues and chosen(next(iter(queues.values())).topic_sys_flag)
        ]

    def cluster_info(self, resolve: AddressResolver = same_address) -> ClusterInfo:
        """All brokers and clusters."""
        brokers = {name: _resolved(broker, resolve) for name, broker in self._brokers.items()}
        return ClusterInfo(
            brokers, {cluster: list(names) for cluster, names in self._clusters.items()}
        )

    def system_names(self, resolve: AddressResolver = same_address) -> tuple[list[str], str | None]:
        """The names of clusters and brokers, which are topics too, and the address of
        one broker.
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
        """The addresses of the brokers that share a name, or None when there is
        none.
        """
        broker = self._brokers.get(broker_name)
        if broker is None or broker.cluster != cluster:
            return None
        return BrokerMemberGroup(cluster, broker_name, _resolved(broker, resolve).broker_addrs)


def _queue_data(broker_name: str, config: TopicConfig, *, read_only: bool) -> QueueData:
    perm = config.perm & ~_WRITE if read_only else config.perm
    return QueueData(
        broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag
    )


def _resolved(broker: BrokerData, resolve: AddressResolver) -> BrokerData:
    if resolve is same_address:
        return broker
    return attrs.evolve(
        broker,
        broker_addrs={number: resolve(address) for number, address in broker.broker_addrs.items()},
    )
