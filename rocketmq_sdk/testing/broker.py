"""`TestBroker`: a broker for tests, which stops, dies, fails and tells what it saw.

async with TestBroker() as broker:
    async with Producer("shop", namesrv=broker) as producer:
        fault = broker.faults.on("send", times=1).error("SYSTEM_BUSY", served=True)
        await producer.send(Message("orders", b"42 bananas"))
    await broker.wait.stored("orders", 2)
    await broker.kill()
    await broker.start()
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.errors import ClosedError, ConfigurationError, ConnectError, RocketMQError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery
from rocketmq_sdk.model.route import join_address, split_address
from rocketmq_sdk.remoting.source import MemoryChannelSource, TcpChannelSource
from rocketmq_sdk.testing.faulty_clock import FaultyClock
from rocketmq_sdk.testing.kept_files import KeptFiles
from rocketmq_sdk.testing.life import BrokerLife, without_collections
from rocketmq_sdk.testing.network import Network, Party
from rocketmq_sdk.testing.observation import Observation
from rocketmq_sdk.testing.seeds import Seed, plant_messages, plant_offsets
from rocketmq_sdk.testing.snapshots import Snapshot, checked_snapshot
from rocketmq_sdk.testing.strict import ListenerErrors
from rocketmq_sdk.testing.traffic.exchange import BROKER, Exchange
from rocketmq_sdk.testing.traffic.recording import Recording
from rocketmq_sdk.testing.traffic.releases import Release
from rocketmq_sdk.testing.traffic.request_faults import RequestFaults
from rocketmq_sdk.testing.waits import Waits

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
    from rocketmq_sdk.broker_embedded.supervision import BrokerHealth
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Handler
    from rocketmq_sdk.remoting.dispatch import Dispatcher
    from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
    from rocketmq_sdk.testing.traffic.recording import Seen
    from rocketmq_sdk.testing.traffic.request_faults import Codes
    from rocketmq_sdk.transport.memory import MemoryListener, MemoryStream

MEMORY: Final = ":memory:"
NAMESRV_PORT: Final = 9876


class TestBroker(RunsOnce):
    """A name server and a broker for one test.

    Pass it as `namesrv=` to producers and consumers in the same `trio.run`. It is open
    from the begin of the block on; `stop`, `kill` and `start` end and begin its lives,
    on the same data and at the same address.

    `path`, `listen`, `namesrv_listen` and the settings are those of `EmbeddedBroker`.
    `files` is a `FaultyFileSystem`, for power cuts and disks that forget. With `strict`
    an error of a listener in this process fails the test. A `patient` broker closes no
    connection because it is silent, however its clock jumps. With `emulate="4.9.7"` it
    is to its clients as Apache's broker of that release: it does not know later
    requests (`rocketmq_sdk.testing.traffic.releases`). Leaving the block raises
    `UnhitFaultError` for a fault that met nothing, and `ListenerRaisedError` when it is
    strict, unless the block ends with another error.
    """

    __test__ = False
    _second_time = "a test broker is opened once; use stop() and start(), or make another one"

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        listen: str | int | None = None,
        namesrv_listen: str | int | None = None,
        files: FaultyFileSystem | None = None,
        strict: bool = False,
        config: BrokerConfig | None = None,
        clock: Clock | None = None,
        network: Network | None = None,
        patient: bool = False,
        emulate: str | None = None,
        **settings: Any,
    ) -> None:
        on_disk = path is not None and str(path) != MEMORY
        if on_disk and files is not None:
            raise ConfigurationError("give a path or files, not both")
        self._path = Path(path) if on_disk and path is not None else None
        self._kept = KeptFiles() if self._path is None and files is None else None
        self._faulty = files
        self._listen, self._namesrv_listen = listen, namesrv_listen
        self._options: dict[str, Any] = {"config": config, **settings}
        self.clock = FaultyClock(clock)
        """The broker's clock, which follows virtual time."""
        self.seen = Recording()
        """The requests that it got, in all its lives."""
        disk = self._faulty or self._kept
        self.faults = RequestFaults(
            lambda: self.config.broker_name,
            None if disk is None else disk.faults,
            self.seen,
            self._rows,
            self.clock,
        )
        """What goes wrong, as the test declares it."""
        self.wait = Waits(Observation(lambda: self.embedded, self.seen, self.faults))
        """Waiting for what the code under test does."""
        self.network = network or Network()
        """The network in memory on which parties reach it."""
        release = None if emulate is None else Release(emulate)
        self._began_as = release
        self._exchange = Exchange(self.seen, self.faults, self.clock.now_ms, release)
        self._errors = ListenerErrors() if strict else None
        self._present: BrokerLife | None = None
        self._nursery: trio.Nursery | None = None
        self._serving: trio.Nursery | None = None
        self._on_network = False
        self._patient = patient
        self._next: BrokerLife | None = self._make_life()
        """For the next start; it has checked the options."""
        self._made_with = self._next.config
        self._listeners: list[MemoryListener] = []
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._last: BrokerLife | None = None
        self._changing = trio.Lock()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<TestBroker {self.config.broker_name} {state}>"

    # What it is

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self._made_with if self._present is None else self._present.config

    @property
    def running(self) -> bool:
        """Whether it serves now."""
        return self._present is not None

    @property
    def embedded(self) -> EmbeddedBroker:
        """The broker of the present life. Raises `ClosedError` when it is stopped."""
        if self._present is None:
            raise ClosedError(f"{self!r} is not running; start() it")
        return self._present

    @property
    def address(self) -> str | None:
        """`host:port` of the broker on TCP; None without `listen`."""
        return None if self._present is None and self._listen is None else self._tcp_address

    @property
    def namesrv_address(self) -> str | None:
        """`host:port` of the name server on TCP; None without `namesrv_listen`."""
        return self._tcp_namesrv

    _tcp_address: str | None = None
    _tcp_namesrv: str | None = None
    _outgoing: MemoryChannelSource | None = None

    @property
    def emulates(self) -> str | None:
        """The older release that it is to its clients; None where it is itself."""
        release = self._exchange.release
        return None if release is None else str(release)

    def health(self) -> BrokerHealth:
        """As `EmbeddedBroker.health`. Raises `ClosedError` when it is stopped."""
        return self.embedded.health()

    def sent(self, topic: str) -> list[ReceivedMessage]:
        """All messages that a topic holds, in the order in which they were stored.

        Retries and dead letters have topics of their own: `retry_topic(group)` and
        `dead_letter_topic(group)` of `rocketmq_sdk.names`.
        """
        return self.wait.seen.messages(topic)

    def requests(
        self,
        code: Codes = None,
        *,
        topic: str | None = None,
        group: str | None = None,
        client: str | None = None,
    ) -> list[Seen]:
        """The requests that it got, the last 10,000; arguments as for `faults.on`."""
        return self.seen.find(code, topic=topic, group=group, client=client)

    def report(self) -> str:
        """What it holds and what it saw, for people to read."""
        return self.wait.seen.report()

    # The source of channels

    def knows(self, address: str) -> bool:
        """Whether an address is this broker's own, also while it is stopped."""
        return address in (self.own_address, self._tcp_address, self._tcp_namesrv)

    @property
    def own_address(self) -> str:
        """The address that routes and records name."""
        return self._own_address

    async def open_channel(
        self, address: str | None, handler: Handler, nursery: trio.Nursery
    ) -> Channel:
        """A channel to the name server (None), to the broker, or over TCP elsewhere.

        Raises `ConnectError` while it is stopped.
        """
        if address is not None and not self.knows(address):
            return await TcpChannelSource().open_channel(address, handler, nursery)
        life = self._present
        if life is None:
            await trio.lowlevel.checkpoint()
            if self._nursery is None:
                raise ClosedError(f"{self!r} is not open")
            raise ConnectError(
                f"cannot connect to {address or 'the name server'}: connection refused",
                address=address,
            )
        return await life.open_channel(address, handler, nursery)

    def party(self, name: str) -> Party:
        """A way to this broker for one client, over the network in memory.

        Pass it as `namesrv=`. `network.cut("shop", broker.host)` then cuts this client
        off; faults know it as `client="shop"`.
        """
        self._serve_network()
        return self.network.party(name, self.network_namesrv)

    @property
    def party_name(self) -> str:
        """What cuts of the network may call it: its broker name."""
        return self.config.broker_name

    def _serve_network(self) -> None:
        """Accept connections of the network in this life, and in later ones."""
        self._on_network = True
        self.network.name(self.host, self.party_name)
        life, nursery = self._present, self._serving
        if life is None or nursery is None or self._listeners:
            return
        for server, address in (
            (life.server, self.own_address),
            (life.namesrv_server, self.network_namesrv),
        ):
            listener = self.network.memory.listen(address)
            self._listeners.append(listener)
            nursery.start_soon(server.serve, [listener])
        replication = life.parts.replication
        if self._outgoing is not None and replication.master is not None:
            listener = self.network.memory.listen(life.address_for_slaves)
            self._listeners.append(listener)
            nursery.start_soon(replication.serve, [listener])

    async def _connect_for_log(self, address: str) -> MemoryStream:
        return await self.network.memory.connect(address, source=f"{self.host}:0")

    async def _leave_network(self) -> None:
        listeners, self._listeners = self._listeners, []
        if not listeners:
            return
        with trio.CancelScope(shield=True):
            for listener in listeners:
                await listener.aclose()

    @property
    def host(self) -> str:
        """Its name on the network in memory."""
        return split_address(self.own_address)[0]

    @property
    def network_namesrv(self) -> str:
        """Its name server's address on the network in memory."""
        return join_address(self.host, NAMESRV_PORT)

    # Life

    def register_at(self, name_server: str) -> None:
        """Register at this name server; before it is opened."""
        self._options["namesrv_addr"] = name_server
        self._next = None

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        with self._watching_listeners():
            async with open_quiet_nursery() as nursery:
                self._nursery = nursery
                await self.start()
                try:
                    yield
                except BaseException:
                    await self._leave()
                    raise
                await self._leave()
            self.faults.check()
        if self._errors is not None:
            self._errors.check()

    def check(self) -> None:
        """Raise what leaving the block would raise of faults and listeners.

        They are forgotten: what comes later is another test's.
        """
        try:
            self.faults.check()
            if self._errors is not None:
                self._errors.check()
        finally:
            self._forget()

    def _forget(self) -> None:
        self.faults.clear()
        self.seen.clear()
        if self._errors is not None:
            self._errors.clear()

    async def _leave(self) -> None:
        with trio.CancelScope(shield=True):
            async with self._changing:
                try:
                    await self._stop()
                finally:
                    self._nursery = None

    @contextmanager
    def _watching_listeners(self) -> Iterator[None]:
        if self._errors is None:
            yield
            return
        with self._errors:
            yield

    async def start(self) -> None:
        """Begin a life, on what the one before has left; does nothing while it runs.

        Raises what entering an `EmbeddedBroker` raises. Whoever changes the life of a
        broker at the same time waits for its turn.
        """
        async with self._changing:
            await self._start()

    async def _start(self) -> None:
        """`start`, of whoever has its turn."""
        if self._present is None:
            await self._begin_life()

    async def stop(self) -> None:
        """End its life in order: clients are told, everything is written.

        Until `start` its address refuses connections. Does nothing while it is stopped.
        """
        async with self._changing:
            await self._stop()

    async def _stop(self) -> None:
        """`stop`, of whoever has its turn."""
        if self._present is not None:
            await self._end_life()

    async def restart(self) -> None:
        """`stop` and `start` in one step."""
        async with self._changing:
            await self._stop()
            await self._start()

    async def kill(self) -> None:
        """End its life as `kill -9` does; does nothing while it is stopped.

        Connections break. What was acknowledged is there at the next `start`. What is
        written only now and then, such as offsets of groups, may fall back.
        """
        async with self._changing:
            await self._kill()

    async def _kill(self) -> None:
        """`kill`, of whoever has its turn."""
        life = self._present
        if life is not None:
            with self._as_killed(life):
                await self._end_life()

    async def power_cut(self, seed: int) -> None:
        """Kill it and forget what was not synced; needs `files`.

        The seed says which of the unsynced bytes and names are there at the next start.
        """
        if self._faulty is None:
            raise ConfigurationError("a power cut needs TestBroker(files=FaultyFileSystem())")
        async with self._changing:
            await self._kill()
            self._faulty = self._faulty.power_cut(seed)
            self._next = None

    @contextmanager
    def _as_killed(self, life: BrokerLife) -> Iterator[None]:
        """What the life writes while it ends is not there for the next one."""
        if self._kept is not None:
            self._kept.kill()
        elif self._faulty is not None:
            self._faulty.halt()
        left = Snapshot.of(None, self._path)
        life.die()
        try:
            yield
        finally:
            if self._kept is not None:
                self._kept.revive()
            elif self._faulty is not None:
                self._faulty.kill()
            else:
                left.put_back(None, self._path)

    async def _begin_life(self) -> None:
        if self._nursery is None:
            raise ClosedError(f"{self!r} is not open")
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        life, self._next = self._next or self._make_life(), None
        with without_collections():
            await self._nursery.start(self._live, life, self._scope, self._ended)

    def _make_life(self) -> BrokerLife:
        return BrokerLife(
            self._path,
            self._kept or self._faulty,
            self._front,
            listen=self._tcp_address or self._listen,
            namesrv_listen=self._tcp_namesrv or self._namesrv_listen,
            clock=self.clock,
            outgoing=self._outgoing,
            patient=self._patient,
            connect=None if self._outgoing is None else self._connect_for_log,
            **self._options,
        )

    async def _live(
        self,
        life: BrokerLife,
        scope: trio.CancelScope,
        ended: trio.Event,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            async with open_quiet_nursery() as nursery:
                try:
                    async with life:
                        await self._serve(life, nursery, scope, task_status)
                finally:
                    nursery.cancel_scope.cancel()
        except RocketMQError:
            if not life.killed:
                raise
        except BaseExceptionGroup as group:
            _ours, others = group.split(RocketMQError)
            if not life.killed or others is not None:
                raise
        finally:
            self._present = None
            ended.set()

    async def _serve(
        self,
        life: BrokerLife,
        nursery: trio.Nursery,
        scope: trio.CancelScope,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Be there until the scope is cancelled."""
        self._last = life
        life.be_of(self._exchange.release)
        self._own_address = life.core.address()
        self._tcp_address, self._tcp_namesrv = life.address, life.namesrv_address
        self._present, self._serving = life, nursery
        if self._on_network:
            self._serve_network()
        task_status.started()
        try:
            with scope:
                await trio.sleep_forever()
        finally:
            self._present = None
            await self._leave_network()

    async def _end_life(self) -> None:
        self._scope.cancel()
        with trio.CancelScope(shield=True):
            await self._ended.wait()

    _own_address = "127.0.0.1:10911"

    def _rows(self) -> dict[int, Request]:
        """The requests that the present life serves, or the last one."""
        return {} if self._last is None else self._last.rows

    def _front(self, life: BrokerLife, handler: Dispatcher) -> Handler:
        namesrv = getattr(life, "namesrv", None)
        of_namesrv = namesrv is not None and handler is namesrv.handler
        return self._exchange.front(handler, self._rows, "name server" if of_namesrv else BROKER)

    # Whole states

    def unseen(self) -> AbstractContextManager[None]:
        """Let requests pass without a record and without faults, for the block."""
        return self._exchange.unseen()

    async def seed(
        self,
        seed: Seed | str | os.PathLike[str] | None = None,
        *,
        topics: Mapping[str, int] | Sequence[str] = (),
        groups: Sequence[str] = (),
        messages: Mapping[str, Sequence[Any]] | None = None,
        offsets: Mapping[str, Mapping[str, int | Sequence[int]]] | None = None,
    ) -> None:
        """Make topics, groups, messages and offsets by one call.

        `seed` is a JSON or TOML file with members of these names, or such a mapping.
        `topics` gives numbers of queues by name, or names of topics with 4 queues;
        `messages` bodies by topic, each as text, bytes, JSON, or a mapping with `body`
        and what `Message` takes; `offsets` a number for each queue, or one for all, by
        group and topic. None of it is recorded, and no fault meets it.

        Raises `ConfigurationError` for what cannot be made.
        """
        given = Seed.of(seed)
        with self.unseen():
            wanted = given.with_more(topics, groups, messages or {}, offsets or {})
            await plant_messages(self, wanted)
            plant_offsets(self.embedded, self.wait.seen, wanted)

    async def snapshot(self) -> Snapshot:
        """Its whole state. It is stopped for that in order and started again."""
        if self._path is None and self._kept is None:
            raise ConfigurationError("the state of a FaultyFileSystem cannot be kept")
        async with self._changing:
            was_running = self.running
            await self._stop()
            try:
                return Snapshot.of(self._kept, self._path)
            finally:
                if was_running:
                    await self._start()

    async def restore(self, snapshot: Snapshot) -> None:
        """Have the state of a snapshot; it runs afterwards, clients connect again."""
        async with self._changing:
            await self._replace(checked_snapshot(snapshot))

    async def reset(self) -> None:
        """Be a new broker: no topics, no messages, no faults, nothing recorded.

        Addresses stay, and connections break. It runs afterwards.
        """
        async with self._changing:
            self.faults.clear()
            self._exchange.release = self._began_as
            await self._replace(Snapshot())
            self._forget()

    async def emulate(self, release: str | None) -> None:
        """Be to clients as Apache's broker of another release, such as "4.9.7".

        None makes it again what it was made as. A running broker is restarted, so that
        clients meet the release on new connections. Raises `ConfigurationError` for a
        release that cannot be emulated, and changes nothing then.
        """
        wanted = self._began_as if release is None else Release(release)
        async with self._changing:
            running = self.running
            await self._stop()
            self._exchange.release = wanted
            if running:
                await self._start()

    async def _replace(self, snapshot: Snapshot) -> None:
        if self._path is None and self._kept is None:
            raise ConfigurationError("the state of a FaultyFileSystem cannot be replaced")
        with without_collections():
            await self._kill()
            snapshot.put_back(self._kept, self._path)
            await self._begin_life()
