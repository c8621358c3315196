"""A cluster of scripted peers on a memory network: name servers with routes, brokers
that answer as the test tells them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConnectError
from rocketmq_sdk.model.route import BrokerData, QueueData, TopicRoute
from rocketmq_sdk.protocol.bodies.routes import encode_route
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rocketmq_sdk.remoting.channel import Channel, Handler
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.remoting.source import MemoryChannelSource
from rocketmq_sdk.transport.memory import MemoryNetwork
from rocketmq_sdk.transport.tcp import CONNECT_TIMEOUT

if TYPE_CHECKING:
    from rocketmq_sdk.remoting.stream import StreamChannel

SILENT = -1
"""A step of a script: give no answer."""
Step = int | Callable[[Channel, Command], Any]


class Peer:
    """Something that listens on an address and can be stopped and started."""

    def __init__(self, network: MemoryNetwork, nursery: trio.Nursery, address: str) -> None:
        self.network = network
        self.nursery = nursery
        self.address = address
        self.dispatcher = Dispatcher()
        self.server = RemotingServer(self.dispatcher)
        self._scope: trio.CancelScope | None = None

    async def start(self, address: str | None = None) -> None:
        self.address = address or self.address
        listener = self.network.listen(self.address)

        async def run(task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope() as self._scope:
                await self.server.serve([listener], task_status=task_status)

        await self.nursery.start(run)

    async def stop(self) -> None:
        assert self._scope is not None
        self.network.cut(self.address)
        self._scope.cancel()
        while self.network.serves(self.address):
            await trio.sleep(0.001)


class ScriptedBroker(Peer):
    """Answers sends by a script, one step for each, then with success. A step is a
    response code, SILENT, or a function.
    """

    def __init__(
        self, network: MemoryNetwork, nursery: trio.Nursery, name: str, address: str
    ) -> None:
        super().__init__(network, nursery, address)
        self.name = name
        self.script: list[Step] = []
        self.sends: list[tuple[float, Command, SendMessageRequestHeaderV2]] = []
        self.heartbeats: list[bytes] = []
        self.unregistered: list[dict[str, str]] = []
        self.offset = 0
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            self.dispatcher.replace(code, self._send)
        self.dispatcher.replace(RequestCode.HEART_BEAT, self._heartbeat)
        self.dispatcher.replace(RequestCode.UNREGISTER_CLIENT, self._unregister)

    def _send(self, channel: Channel, request: Command) -> Any:
        header = SendMessageRequestHeaderV2.from_ext(request.ext_fields)
        self.sends.append((trio.current_time(), request, header))
        step = self.script.pop(0) if self.script else 0
        if callable(step):
            return step(channel, request)
        if step == SILENT:
            return None
        return self.answer(header, step)

    def answer(self, header: SendMessageRequestHeaderV2, code: int = 0, **extra: str) -> Command:
        if code not in (0, 10, 11, 12):
            return Command.response(code, remark=f"as the script of {self.name} wants it")
        answer = SendMessageResponseHeader(
            msg_id=f"{self.offset:032X}", queue_id=header.queue_id, queue_offset=self.offset
        )
        self.offset += 1
        response = Command.response(code, answer)
        response.ext_fields.update(extra)
        return response

    def _heartbeat(self, _channel: Channel, request: Command) -> Command:
        self.heartbeats.append(request.body)
        return Command.response()

    def _unregister(self, _channel: Channel, request: Command) -> Command:
        self.unregistered.append(request.ext_fields)
        return Command.response()

    @property
    def queues(self) -> list[int]:
        return [header.queue_id for _, _, header in self.sends]


class ScriptedNameServer(Peer):
    """Knows the routes that the test puts into `routes`."""

    def __init__(
        self,
        network: MemoryNetwork,
        nursery: trio.Nursery,
        address: str,
        routes: dict[str, TopicRoute],
    ) -> None:
        super().__init__(network, nursery, address)
        self.routes = routes
        self.asked: list[tuple[float, str]] = []
        self.silent = False
        self.dispatcher.replace(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)

    def _route(self, _channel: Channel, request: Command) -> Command | None:
        topic = request.ext_fields["topic"]
        self.asked.append((trio.current_time(), topic))
        if self.silent:
            return None
        route = self.routes.get(topic)
        if route is None:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, remark=f"no route of {topic}")
        return Command.response(body=encode_route(route, strict=True))


class _AlwaysMemory(MemoryChannelSource):
    """Never falls back on TCP, also for an address that nobody listens on.

    Connecting to one of `holes` neither succeeds nor fails: a machine without power.
    """

    def __init__(self, network: MemoryNetwork, holes: set[str]) -> None:
        super().__init__(network)
        self.holes = holes

    async def open_channel(
        self, address: str | None, handler: Handler, nursery: trio.Nursery
    ) -> StreamChannel:
        if address in self.holes:
            with trio.move_on_after(CONNECT_TIMEOUT):
                await trio.sleep_forever()
            raise ConnectError(f"no connection to {address}", address=address)
        return await super().open_channel(address, handler, nursery)

    def knows(self, address: str) -> bool:
        del address
        return True


class Cluster:
    """Name servers `ns0`, ... and brokers `b0`, ... with a client to them."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.network = MemoryNetwork()
        self.holes: set[str] = set()
        """Addresses that do not answer when somebody connects."""
        self.nursery = nursery
        self.routes: dict[str, TopicRoute] = {}
        self.name_servers: list[ScriptedNameServer] = []
        self.brokers: list[ScriptedBroker] = []

    async def add_name_server(self) -> ScriptedNameServer:
        server = ScriptedNameServer(
            self.network, self.nursery, f"10.0.1.{len(self.name_servers)}:9876", self.routes
        )
        await server.start()
        self.name_servers.append(server)
        return server

    async def add_broker(self) -> ScriptedBroker:
        number = len(self.brokers)
        broker = ScriptedBroker(self.network, self.nursery, f"b{number}", f"10.0.0.{number}:10911")
        await broker.start()
        self.brokers.append(broker)
        return broker

    def route(
        self,
        topic: str,
        *,
        queues: int = 2,
        brokers: list[ScriptedBroker] | None = None,
        perm: int = 6,
    ) -> None:
        chosen = self.brokers if brokers is None else brokers
        self.routes[topic] = TopicRoute(
            tuple(QueueData(broker.name, queues, queues, perm) for broker in chosen),
            tuple(
                BrokerData("DefaultCluster", broker.name, {0: broker.address}) for broker in chosen
            ),
        )

    def client(self, **options: Any) -> Client:
        addresses = [server.address for server in self.name_servers]
        return Client(
            addresses,
            channels=_AlwaysMemory(self.network, self.holes),
            client_ip="10.0.9.9",
            **options,
        )


@asynccontextmanager
async def open_cluster(
    *, brokers: int = 2, name_servers: int = 1, topics: tuple[str, ...] = ("t",), queues: int = 2
) -> AsyncIterator[Cluster]:
    """A cluster whose brokers hold each topic."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery)
        for _ in range(name_servers):
            await cluster.add_name_server()
        for _ in range(brokers):
            await cluster.add_broker()
        for topic in topics:
            cluster.route(topic, queues=queues)
        yield cluster
        nursery.cancel_scope.cancel()
