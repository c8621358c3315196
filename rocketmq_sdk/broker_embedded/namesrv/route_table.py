"""The route table of a name server (`RouteInfoManager` of Apache RocketMQ 5.4.0).

Pure: no clock, no channels; every call that depends on time takes `now_ms`. Nothing of
it is kept over a restart, since brokers register again every 30 seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.namesrv.addresses import AddressResolver, same_address
from rocketmq_sdk.broker_embedded.namesrv.broker_table import BrokerTable, resolved
from rocketmq_sdk.broker_embedded.namesrv.live_brokers import LiveBroker, LiveBrokers
from rocketmq_sdk.broker_embedded.namesrv.queue_table import QueueTable
from rocketmq_sdk.broker_embedded.namesrv.registration import (
    BrokerKey,
    BrokerRegistration,
    RegistrationResult,
)
from rocketmq_sdk.model.route import MASTER_ID, QueueData, TopicRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_sdk.protocol.bodies.topics import DataVersion


class RouteTable:
    """Live brokers, their addresses and their topics.

    It holds the operations that concern more than one of the three tables.
    """

    __slots__ = ("brokers", "live", "queues")

    def __init__(self) -> None:
        self.brokers = BrokerTable()
        """Where brokers listen, and their clusters."""
        self.live = LiveBrokers()
        """Which of them are alive."""
        self.queues = QueueTable()
        """Which topics they hold."""

    # Registration

    def register(
        self, registration: BrokerRegistration, now_ms: int, *, delete_topics: bool = False
    ) -> RegistrationResult | None:
        """Take in what a broker tells of itself; None when it is refused.

        With `delete_topics` a broker that names several topics loses all others.
        Refused is a broker id that was unknown so far and names a single topic: an
        increment that came before the whole.
        """
        address, broker_id = registration.address, registration.broker_id
        self.brokers.join(registration.cluster, registration.broker_name)
        previous_version = self.live.data_version(registration.key)
        addresses = {
            number: other
            for number, other in self.brokers.addresses(registration.broker_name).items()
            if other != address or number == broker_id
        }
        owner = addresses.get(broker_id)
        if owner is not None and owner != address and self._is_newer(owner, registration):
            self.live.give_up(registration.key)
            return RegistrationResult()
        if owner is None and len(registration.topics) == 1:
            self.brokers.put(registration, addresses)
            return None
        addresses[broker_id] = address
        self.brokers.put(registration, addresses)
        self._take_topics(
            registration,
            min(addresses),
            previous_version,
            first=owner is None,
            delete_topics=delete_topics,
        )
        self.live.put(registration, now_ms)
        return self._master_of(registration, addresses)

    def _is_newer(self, owner: str, registration: BrokerRegistration) -> bool:
        """Whether the broker that has the id already is of a later state."""
        version = self.live.data_version(BrokerKey(registration.cluster, owner))
        return (
            version is not None and version.state_version > registration.data_version.state_version
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
        """Take the topics of a registration where they count.

        They count only from the master, or from the lowest replica of a group that can
        act as one, which offers them for reading only.
        """
        acting = (
            registration.enable_acting_master and registration.broker_id == minimum_id != MASTER_ID
        )
        if registration.broker_id != MASTER_ID and not acting:
            return
        name, topics = registration.broker_name, registration.topics
        if delete_topics and len(topics) > 1:
            self.queues.drop_others(name, topics)
        changed = first or previous != registration.data_version
        self.queues.take(name, topics, changed=changed, read_only=acting)

    def _master_of(
        self, registration: BrokerRegistration, addresses: dict[int, str]
    ) -> RegistrationResult:
        master = addresses.get(MASTER_ID)
        if registration.broker_id == MASTER_ID or master is None:
            return RegistrationResult()
        live = self.live.get(BrokerKey(registration.cluster, master))
        return (
            RegistrationResult()
            if live is None
            else RegistrationResult(master, live.ha_server_address)
        )

    # The end of brokers

    def unregister(self, cluster: str, address: str, broker_name: str, broker_id: int) -> None:
        """Remove an address of a broker.

        The last one removes the broker and its queues.
        """
        self.live.remove(BrokerKey(cluster, address))
        known = self.brokers.get(broker_name)
        if known is None:
            return
        addresses = {
            number: other
            for number, other in known.broker_addrs.items()
            if number != broker_id or other != address
        }
        if addresses:
            self.brokers.set_addresses(broker_name, addresses)
            if known.enable_acting_master and MASTER_ID not in addresses:
                self.queues.wipe_write_permission(broker_name)
            return
        self.brokers.remove(cluster, broker_name)
        self.queues.drop_broker(broker_name)

    def unregister_channel(self, channel_id: int) -> list[BrokerKey]:
        """Remove the brokers of a connection that has ended; returns which."""
        return [key for key, _ in self._unregister(lambda live: live.channel_id == channel_id)]

    def expire(self, now_ms: int) -> list[tuple[BrokerKey, int | None]]:
        """Remove brokers that timed out; returns each with its connection."""
        ended = self._unregister(lambda live: live.due_ms < now_ms)
        return [(key, live.channel_id) for key, live in ended]

    def _unregister(
        self, chosen: Callable[[LiveBroker], bool]
    ) -> list[tuple[BrokerKey, LiveBroker]]:
        ended = [(key, live) for key, live in self.live.all().items() if chosen(live)]
        for key, live in ended:
            self.unregister(key.cluster, key.address, live.broker_name, live.broker_id)
        return ended

    # Topics

    def route(self, topic: str, resolve: AddressResolver = same_address) -> TopicRoute | None:
        """All that is known of a topic, or None when no live broker holds it."""
        queues = self.queues.of_topic(topic)
        brokers = [broker for name in queues if (broker := self.brokers.get(name)) is not None]
        if not brokers:
            return None
        filters = {
            resolve(address): list(servers)
            for broker in brokers
            for address in broker.broker_addrs.values()
            if (servers := self.live.filter_servers(BrokerKey(broker.cluster, address)))
        }
        return TopicRoute(
            tuple(queues.values()),
            tuple(resolved(broker, resolve) for broker in brokers),
            None,
            filters,
        )

    def put_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Set queues of a topic; nothing happens when one of the brokers is unknown."""
        queues = list(queue_datas)
        if queues and all(data.broker_name in self.brokers for data in queues):
            self.queues.put(topic, queues)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, or what the brokers of one cluster hold of it."""
        if cluster is None:
            self.queues.delete(topic)
            return
        for name in self.brokers.names_of(cluster):
            self.queues.drop(topic, name)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics of a cluster's brokers, those of each broker in turn."""
        return self.queues.topics_of_brokers(self.brokers.names_of(cluster))
