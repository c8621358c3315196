"""`TcpCluster`: a cluster for one test, on ports of this machine, for code in any door,
process or language.

async with TcpCluster(masters=2, slaves=1) as cluster:
    async with Producer("shop", namesrv=cluster.namesrv_address) as producer:
        await producer.send(Message("orders", b"42 bananas"))
    await cluster.brokers["broker-a"].kill()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_sdk.errors import ClosedError, ConfigurationError
from rocketmq_sdk.model.route import join_address, split_address
from rocketmq_sdk.remoting.source import TcpChannelSource
from rocketmq_sdk.testing.broker import TestBroker
from rocketmq_sdk.testing.cluster import TestCluster
from rocketmq_sdk.transport.tcp import open_tcp_listeners

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import trio

    from rocketmq_sdk.client.config import NamesrvSource
    from rocketmq_sdk.remoting.channel import Channel, Handler
    from rocketmq_sdk.testing.network import Party


class _Member(TestBroker):
    """One broker of a `TcpCluster`."""

    __test__ = False

    def __init__(self, name: str, host: str, **options: Any) -> None:
        super().__init__(listen=join_address(host, 0), broker_ip1=host, **options)
        self._name = name

    async def _begin_life(self) -> None:
        await super()._begin_life()
        life = self._present
        if life is not None and self.config.store.total_replicas > 1:
            # Later lives have the same port for slaves.
            _host, port = split_address(life.address_for_slaves)
            self._options["ha_listen_port"] = port

    @property
    def party_name(self) -> str:
        """Its name in the cluster, such as `broker-a` or `broker-a-slave-1`."""
        return self._name


class TcpCluster(TestCluster):
    """A `TestCluster` whose brokers and name server listen on free ports of `host`.

    They need real time, and no network in memory is between them, so there is nothing
    to cut: kill a broker, or let requests fail by `faults`.
    """

    __test__ = False

    def __init__(
        self, masters: int = 2, slaves: int = 0, *, host: str = "127.0.0.1", **settings: Any
    ) -> None:
        self._host = host
        self._namesrv_address: str | None = None
        super().__init__(masters, slaves, **settings)

    def _add(self, name: str, host: str, options: Mapping[str, Any]) -> TestBroker:
        del host  # all have the same one, and ports of their own
        broker = self.brokers[name] = _Member(name, self._host, **options)
        return broker

    def _port_for_slaves(self, slaves: int) -> dict[str, int]:
        return {"total_replicas": slaves + 1}  # any free port

    async def _listeners(self) -> Sequence[trio.abc.Listener[Any]]:
        listeners, port = await open_tcp_listeners(self._host, 0)
        self._namesrv_address = join_address(self._host, port)
        for broker in self.brokers.values():
            broker.register_at(self._namesrv_address)
        return listeners

    @property
    def namesrv_address(self) -> str:
        """`host:port` of its name server: what clients need.

        Raises `ClosedError` before it is opened.
        """
        if self._namesrv_address is None:
            raise ClosedError("the cluster is not open; enter it with `async with`")
        return self._namesrv_address

    def _way(self) -> NamesrvSource:
        return self.namesrv_address

    def party(self, name: str) -> Party:
        """Not here. Raises `ConfigurationError`."""
        raise ConfigurationError(
            f"there is no party {name!r}: this cluster is on TCP, not on a network in memory; "
            "clients take its namesrv_address"
        )

    async def open_channel(
        self, address: str | None, handler: Handler, nursery: trio.Nursery
    ) -> Channel:
        """A channel over TCP. Raises `ConnectError`."""
        target = self.namesrv_address if address is None else address
        return await TcpChannelSource().open_channel(target, handler, nursery)
