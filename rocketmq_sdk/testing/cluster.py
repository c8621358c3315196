"""`TestCluster`: masters, slaves and a name server on a network in memory.

async with TestCluster(masters=2, slaves=1) as cluster:
    async with Producer("shop", namesrv=cluster.party("shop")) as producer:
        await producer.send(Message("orders", b"42 bananas"))
    await cluster.brokers["broker-a"].kill()
    with cluster.network.cut("broker-b", "broker-b-slave-1"):
        ...
"""

from __future__ import annotations

import string
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.broker_embedded.namesrv.server import NameServer
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.names import dead_letter_topic
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.testing.broker import TestBroker
from rocketmq_sdk.testing.network import Network, Party
from rocketmq_sdk.testing.seeds import Seed, plant_messages, plant_offsets
from rocketmq_sdk.testing.waits import WITHIN, wait_until

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    import trio

    from rocketmq_sdk.client.config import NamesrvSource
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Handler
    from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
    from rocketmq_sdk.testing.traffic.recording import Seen
    from rocketmq_sdk.testing.traffic.request_faults import (
        Codes,
        RequestFault,
        RequestFaults,
        Which,
    )

NAME_SERVER: Final = "10.0.1.1:9876"
NAME_SERVER_NAME: Final = "name-server"
MOST: Final = 26
"""Most masters of a cluster."""
_HA_PORT: Final = 10912


def check_size(masters: int, slaves: int) -> None:
    """Raise `ConfigurationError` for a cluster that is not possible."""
    if not 1 <= masters <= MOST or not 0 <= slaves <= MOST:
        raise ConfigurationError(
            f"a cluster of {masters} masters with {slaves} slaves each is not possible; "
            f"there may be 1 to {MOST} masters and up to {MOST} slaves of each"
        )


class ClusterBroker(TestBroker):
    """One broker of a `TestCluster`: everything that it does goes over its network."""

    __test__ = False

    def __init__(self, name: str, host: str, network: Network, **options: Any) -> None:
        self._outgoing = Party(network.memory, host, NAME_SERVER)
        super().__init__(network=network, broker_ip1=host, namesrv_addr=NAME_SERVER, **options)
        self._name = name
        self._own_address = f"{host}:10911"
        self._on_network = True

    @property
    def party_name(self) -> str:
        """Its name in the cluster, such as `broker-a` or `broker-a-slave-1`."""
        return self._name


class TestCluster(RunsOnce):
    """A cluster for one test; the settings are those of all its brokers.

    `files` makes the `FaultyFileSystem` of the broker of a name, for power cuts.
    Masters are called `broker-a`, `broker-b` and so on; each has so many `slaves`,
    called `broker-a-slave-1` and so on. Everything runs on a network in memory, so in
    virtual time too. Pass `cluster`, or `cluster.party(name)`, as `namesrv=`.
    """

    __test__ = False
    _second_time = "a test cluster is opened once; make another one"

    def __init__(
        self,
        masters: int = 2,
        slaves: int = 0,
        *,
        files: Callable[[str], FaultyFileSystem] | None = None,
        **settings: Any,
    ) -> None:
        check_size(masters, slaves)
        self.network = Network()
        """The network in memory; `cut` takes the names of brokers and parties."""
        self.clock = settings.pop("clock", None) or TrioClock()
        self._files = files
        self.brokers: dict[str, TestBroker] = {}
        """All brokers by name, masters before their slaves."""
        self.masters: list[TestBroker] = []
        """The masters."""
        for number in range(masters):
            self._add_master(number, slaves, settings)
        self.faults = ClusterFaults(self.brokers)
        """What goes wrong, at one broker or at any."""
        self.wait = ClusterWaits(self)
        """Waiting for what all masters hold together."""

    def _add_master(self, number: int, slaves: int, settings: Mapping[str, Any]) -> None:
        name = f"broker-{string.ascii_lowercase[number]}"
        common = {"clock": self.clock, "broker_name": name, **settings}
        ports = self._port_for_slaves(slaves) if slaves else {}
        master = self._add(name, f"10.0.0.{number + 1}", {**ports, **common})
        self.masters.append(master)
        for slave in range(1, slaves + 1):
            called = f"{name}-slave-{slave}"
            role = {"broker_role": "SLAVE", "broker_id": slave}
            host = f"10.0.{number + 2}.{slave}"
            self._add(called, host, {**common, **role})

    def _port_for_slaves(self, slaves: int) -> dict[str, int]:
        """The setting by which a master listens for its slaves."""
        del slaves
        return {"ha_listen_port": _HA_PORT}

    def _add(self, name: str, host: str, options: Mapping[str, Any]) -> TestBroker:
        files = None if self._files is None else self._files(name)
        broker = ClusterBroker(name, host, self.network, files=files, **options)
        self.brokers[name] = broker
        return broker

    def __repr__(self) -> str:
        return f"<TestCluster {', '.join(self.brokers)}>"

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        async with open_quiet_nursery() as nursery:
            namesrv = NameServer(self.clock)
            server = RemotingServer(namesrv.handler)
            await nursery.start(server.serve, await self._listeners())
            nursery.start_soon(namesrv.run)
            try:
                async with AsyncExitStack() as stack:
                    for broker in self.brokers.values():
                        await stack.enter_async_context(broker)
                    yield
            finally:
                nursery.cancel_scope.cancel()

    async def _listeners(self) -> Sequence[trio.abc.Listener[Any]]:
        """Where its name server listens."""
        self.network.name(split_address(NAME_SERVER)[0], NAME_SERVER_NAME)
        return [self.network.memory.listen(NAME_SERVER)]

    # The source of channels

    def _way(self) -> NamesrvSource:
        """How what is seeded reaches it."""
        return self.party("seed")

    def party(self, name: str) -> Party:
        """A way to the cluster for one client, of this name on the network."""
        return self.network.party(name, NAME_SERVER)

    def knows(self, address: str) -> bool:
        """Whether an address is on its network: all are."""
        del address
        return True

    async def open_channel(
        self, address: str | None, handler: Handler, nursery: trio.Nursery
    ) -> Channel:
        """A channel for the party `client`. Raises `ConnectError`."""
        return await self.party("client").open_channel(address, handler, nursery)

    # What it holds and saw

    def sent(self, topic: str) -> list[ReceivedMessage]:
        """All messages of a topic at the masters that run, in the order of storing."""
        found = [
            message for broker in self.masters if broker.running for message in broker.sent(topic)
        ]
        return sorted(found, key=lambda message: message.store_timestamp)

    def requests(
        self, code: Codes = None, *, topic: str | None = None, group: str | None = None
    ) -> list[Seen]:
        """The requests that all brokers got; arguments as for `faults.on`."""
        found = [
            seen
            for broker in self.brokers.values()
            for seen in broker.requests(code, topic=topic, group=group)
        ]
        return sorted(found, key=lambda seen: seen.time)

    def report(self) -> str:
        """What each broker holds and saw, for people to read."""
        return "\n".join(f"--- {name}\n{broker.report()}" for name, broker in self.brokers.items())

    async def seed(
        self,
        seed: Seed | str | os.PathLike[str] | None = None,
        *,
        topics: Mapping[str, int] | Sequence[str] = (),
        groups: Sequence[str] = (),
        messages: Mapping[str, Sequence[Any]] | None = None,
        offsets: Mapping[str, Mapping[str, int | Sequence[int]]] | None = None,
    ) -> None:
        """Make topics, groups, messages and offsets, as `TestBroker.seed`.

        Numbers of queues and offsets are for each master. None of it is recorded, and
        no fault meets it.
        """
        wanted = Seed.of(seed).with_more(topics, groups, messages or {}, offsets or {})
        with ExitStack() as stack:
            for broker in self.brokers.values():
                stack.enter_context(broker.unseen())
            await plant_messages(self._way(), wanted)
        for master in self.masters:
            plant_offsets(master.embedded, master.wait.seen, wanted)

    def check(self) -> None:
        """Raise what leaving the block would raise of faults and listeners.

        They are forgotten then.
        """
        for broker in self.brokers.values():
            broker.check()


class ClusterFaults:
    """Faults of the requests of a cluster."""

    def __init__(self, brokers: Mapping[str, TestBroker]) -> None:
        self._brokers = brokers

    def on(self, code: Codes = None, *, broker: str | None = None, **selection: Any) -> Which:
        """As `RequestFaults.on`; `broker` is a name in the cluster, None means any.

        With any, `times` and `after` count over all brokers. Raises
        `ConfigurationError` for a broker that does not exist.
        """
        if broker is None:
            targets = [one.faults for one in self._brokers.values()]
        elif broker in self._brokers:
            targets = [self._brokers[broker].faults]
        else:
            raise ConfigurationError(
                f"there is no broker {broker!r}; there are {', '.join(self._brokers)}"
            )
        which = targets[0].on(code, **selection)
        which.keeper = _Everywhere(targets)
        return which


class _Everywhere:
    """One fault at several brokers; the first one's test fails if it meets nothing."""

    def __init__(self, targets: list[RequestFaults]) -> None:
        self._targets = targets

    def add(self, fault: RequestFault) -> None:
        self._targets[0].add(fault)
        for other in self._targets[1:]:
            other.active.append(fault)

    def discard(self, fault: RequestFault) -> None:
        for target in self._targets:
            target.discard(fault)


class ClusterWaits:
    """`cluster.wait`: as `broker.wait`, over all masters that run."""

    def __init__(self, cluster: TestCluster) -> None:
        self._cluster = cluster

    def _sum(self, count: Callable[[TestBroker], int]) -> int:
        return sum(count(broker) for broker in self._cluster.masters if broker.running)

    async def until(
        self, condition: Callable[[], object], what: str, *, within: float = WITHIN
    ) -> None:
        """Wait until a function of the test's own gives something true."""
        await wait_until(condition, self._cluster.report, what, within)

    async def stored(
        self, topic: str, count: int = 1, *, within: float = WITHIN
    ) -> list[ReceivedMessage]:
        """Until the masters hold at least so many messages; returns all of them."""

        def held() -> int:
            return self._sum(lambda broker: broker.wait.seen.stored(topic))

        await wait_until(
            lambda: held() >= count,
            lambda: f"they hold {held()}",
            f"{count} messages in {topic!r}",
            within,
        )
        return self._cluster.sent(topic)

    async def dead_letter(
        self, group: str, count: int = 1, *, within: float = WITHIN
    ) -> list[ReceivedMessage]:
        """Until a group has given up at least so many messages; returns all of them."""
        return await self.stored(dead_letter_topic(group), count, within=within)

    async def lag(
        self, group: str, topic: str | None = None, *, most: int = 0, within: float = WITHIN
    ) -> None:
        """Until a group is at most so many messages behind at all masters.

        A group that nobody has joined yet is waited for, and so is a topic. All topics
        are those in which any master knows the group.
        """

        def topics() -> set[str]:
            looks = [broker.wait.seen for broker in self._cluster.masters if broker.running]
            return set[str]().union(*(seen.topics_of(group) for seen in looks))

        def behind() -> int:
            wanted = topics() if topic is None else {topic}
            return self._sum(
                lambda broker: sum(sum(broker.wait.seen.lag(group, one).values()) for one in wanted)
            )

        def known() -> bool:
            return bool(self._sum(lambda broker: broker.wait.seen.knows(group, topic)))

        where = "" if topic is None else f", or there is no topic {topic!r}"

        await wait_until(
            lambda: known() and behind() <= most,
            lambda: (
                f"it is {behind()} behind"
                if known()
                else f"it has no members and no offsets{where}"
            ),
            f"group {group!r} to be at most {most} behind",
            within,
        )

    async def copied(self, *, within: float = WITHIN) -> None:
        """Until each slave that runs has the whole log of its master."""
        brokers = self._cluster.brokers

        def behind() -> list[str]:
            return [
                name
                for name, broker in brokers.items()
                if broker.running
                and "-slave-" in name
                and (master := brokers[name.partition("-slave-")[0]]).running
                and broker.embedded.store.max_physical_offset
                < master.embedded.store.max_physical_offset
            ]

        await wait_until(
            lambda: not behind(),
            lambda: f"{', '.join(behind())} have not",
            "the slaves to copy their masters",
            within,
        )
