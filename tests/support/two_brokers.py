"""Two brokers on a memory network that hang, go silent, vanish, are killed and come
back on their files, with a name server that knows the routes of both; and an eye on
every offset that a consumer commits.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.route import BrokerData, TopicRoute, split_address
from rocketmq_sdk.protocol.bodies.routes import ClusterInfo, encode_route
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.remoting.source import MemoryChannelSource
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from rocketmq_sdk.testing.interception import Interception, intercept, unanswered
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.broker import BrokerOnFiles
from support.consuming import Sender, Switch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler

NAME_SERVER = "10.0.1.0:9876"
FOREVER = 1e6
COMMITS = (
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
)
ANSWERED_LATE = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
)
Place = tuple[str, str, int]
"""Group, topic and queue id at one broker."""


def silent(channel: Channel, request: Command, serve: Handler) -> Continuation:
    """Serve the request, and never answer it."""
    outcome = serve(channel, request)

    async def nothing() -> None:
        if outcome is not None and not isinstance(outcome, Command):
            await outcome()
        await trio.sleep_forever()

    return nothing


class BrokerLife:
    """One broker: its files, and the object that has them at the moment."""

    def __init__(self, cluster: TwoBrokers, number: int) -> None:
        self.number = number
        self.name = f"b{number}"
        self.address = f"10.0.0.{number}:10911"
        self.deaths = 0
        self.broker: EmbeddedBroker | None = None
        self._cluster = cluster
        self._files = FaultyFileSystem()
        self._killed = False
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._trouble: Interception | None = None
        self._routes: dict[str, TopicRoute] = {}

    # -- life and death

    async def start(self) -> None:
        opened = trio.Event()
        self._scope, self._ended = trio.CancelScope(), trio.Event()

        async def serve(scope: trio.CancelScope, ended: trio.Event) -> None:
            try:
                async with (
                    BrokerOnFiles(
                        self._files,
                        clock=self._cluster.clock,
                        broker_name=self.name,
                        broker_ip1=split_address(self.address)[0],
                    ) as broker,
                    trio.open_nursery() as nursery,
                ):
                    self._cluster.watch(self.number, broker)
                    listener = self._cluster.network.listen(self.address)
                    await nursery.start(broker.server.serve, [listener])
                    self.broker = broker
                    opened.set()
                    with scope:
                        await trio.sleep_forever()
                    nursery.cancel_scope.cancel()
            except RocketMQError:
                if not self._killed:
                    raise
            finally:
                ended.set()

        self._cluster.nursery.start_soon(serve, self._scope, self._ended)
        await opened.wait()

    async def stop(self, *, killed: bool) -> None:
        """The broker is killed, or leaves in order; its files stay."""
        if self.broker is None:
            return
        self.recover()
        self._routes = {
            topic: route
            for topic in self.broker.namesrv.table.queues.topics()
            if (route := self.broker.namesrv.table.route(topic)) is not None
        }
        self.broker = None
        self.deaths += 1
        self._killed = killed
        if killed:
            self._files.halt()
            self._cluster.network.cut(self.address)
        self._scope.cancel()
        await self._ended.wait()
        self._files.kill()
        self._killed = False

    # -- trouble

    def hang(self) -> None:
        """It takes requests, and neither serves nor answers them."""
        self._trouble_with(unanswered)

    def fall_silent(self) -> None:
        """It does what it is told, and does not say so."""
        self._trouble_with(silent, *ANSWERED_LATE)

    def _trouble_with(self, by: Callable[..., Continuation], *codes: int) -> None:
        if self.broker is not None:
            self.recover()
            self._trouble = intercept(self.broker, *codes, by=by)

    def vanish(self) -> None:
        """Nothing that is sent to it arrives, and nobody hears why."""
        self._cluster.network.delay(self.address, FOREVER)

    def recover(self) -> None:
        """It hangs no more, and is on the network again."""
        if self._trouble is not None:
            self._trouble.restore()
            self._trouble = None
        if self.address in self._cluster.network._delays:
            self._cluster.network.delay(self.address, 0.0)
            self._cluster.network.cut(self.address)

    async def come_back(self) -> None:
        self.recover()
        if self.broker is None:
            await self.start()

    # -- what it knows

    def route(self, topic: str) -> TopicRoute | None:
        if self.broker is None:
            return self._routes.get(topic)
        return self.broker.namesrv.table.route(topic)

    def offset(self, place: Place) -> int:
        assert self.broker is not None
        return self.broker.core.offsets.query(*place)

    def stored(self, topic: str, queue_id: int) -> list[ReceivedMessage]:
        """All that a queue holds."""
        assert self.broker is not None
        store = self.broker.core.store
        found = []
        for offset in range(store.max_offset(topic, queue_id)):
            unit = store.queue_unit(topic, queue_id, offset)
            assert unit is not None
            record = store.record_at(unit[0])
            assert record is not None
            found += decode_messages(bytes(record))
        return found


class TwoBrokers:
    """The cluster. `on_commit` is called with broker, place, host of the client, the
    offset before and the offset now, whenever a request has changed an offset;
    `on_read` when a client was told one.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.clock = TrioClock()  # the wall goes on while brokers come and go
        self.network = MemoryNetwork()
        self.brokers = [BrokerLife(self, number) for number in range(2)]
        self.on_commit: Callable[[int, Place, str, int, int], None] | None = None
        self.on_read: Callable[[int, Place, str, int], None] | None = None
        self._clients = 0

    async def start(self) -> None:
        handler = Dispatcher()
        handler.replace(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)
        handler.replace(RequestCode.GET_BROKER_CLUSTER_INFO, self._cluster_info)
        server = RemotingServer(handler)
        await self.nursery.start(server.serve, [self.network.listen(NAME_SERVER)])
        for life in self.brokers:
            await life.start()

    async def create_topic(self, topic: str, queues: int) -> None:
        switch, _host = self.way()
        async with Client(switch) as client:
            client.routes.use("TBW102")
            await client.route("TBW102")
            await Sender(client).create_topic(topic, queues)

    def way(self) -> tuple[Switch, str]:
        """A way to the cluster for one client, and the host that it comes from."""
        self._clients += 1
        host = f"10.1.{self._clients // 256}.{self._clients % 256}"
        return Switch(self.source(host)), host

    def source(self, host: str) -> MemoryChannelSource:
        return MemoryChannelSource(self.network, name_server=NAME_SERVER, source=f"{host}:0")

    def _route(self, _channel: Channel, request: Command) -> Command:
        topic = request.ext_fields["topic"]
        routes = [route for life in self.brokers if (route := life.route(topic)) is not None]
        if not routes:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, remark=f"no route of {topic}")
        both = TopicRoute(
            tuple(data for route in routes for data in route.queue_datas),
            tuple(data for route in routes for data in route.broker_datas),
        )
        return Command.response(body=encode_route(both, strict=True))

    def _cluster_info(self, _channel: Channel, _request: Command) -> Command:
        names = [life.name for life in self.brokers]
        info = ClusterInfo(
            {life.name: BrokerData("C", life.name, {0: life.address}) for life in self.brokers},
            {"C": names},
        )
        return Command.response(body=info.encode())

    def watch(self, number: int, broker: EmbeddedBroker) -> None:
        """See all offsets that clients ask for and change."""

        def place_and_host(channel: Channel, request: Command) -> tuple[Place, str]:
            fields = request.ext_fields
            place = fields["consumerGroup"], fields["topic"], int(fields["queueId"])
            return place, split_address(str(channel.remote_address))[0]

        def commits(
            channel: Channel, request: Command, serve: Handler
        ) -> Command | Continuation | None:
            place, host = place_and_host(channel, request)
            before = broker.core.offsets.query(*place)
            answer = serve(channel, request)
            now = broker.core.offsets.query(*place)
            if now != before and self.on_commit is not None:
                self.on_commit(number, place, host, before, now)
            return answer

        def reads(
            channel: Channel, request: Command, serve: Handler
        ) -> Command | Continuation | None:
            place, host = place_and_host(channel, request)
            if self.on_read is not None:
                self.on_read(number, place, host, broker.core.offsets.query(*place))
            return serve(channel, request)

        intercept(broker, *COMMITS, by=commits)
        intercept(broker, RequestCode.QUERY_CONSUMER_OFFSET, by=reads)


@asynccontextmanager
async def open_two_brokers(topic: str, queues: int) -> AsyncIterator[TwoBrokers]:
    """Both brokers, with a topic of so many queues at each."""
    async with trio.open_nursery() as nursery:
        cluster = TwoBrokers(nursery)
        await cluster.start()
        await cluster.create_topic(topic, queues)
        yield cluster
        nursery.cancel_scope.cancel()
