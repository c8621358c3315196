"""A network in memory with parties that have names, and cuts between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.remoting.source import MemoryChannelSource
from rocketmq_sdk.transport.memory import MemoryNetwork

if TYPE_CHECKING:
    from types import TracebackType

    import trio

    from rocketmq_sdk.remoting.channel import Handler
    from rocketmq_sdk.remoting.stream import StreamChannel


class Party(MemoryChannelSource):
    """One client's way to a broker or cluster: pass it as `namesrv=`.

    Everything that the client asks for goes over the network in memory, also what is
    not there at the moment.
    """

    def __init__(self, network: MemoryNetwork, name: str, namesrv: str) -> None:
        super().__init__(network, name_server=namesrv, source=f"{name}:0")
        self.name = name
        """Its name on the network, for `cut` and for faults."""

    def knows(self, address: str) -> bool:
        """Whether an address is on the network in memory: all are."""
        del address
        return True

    async def open_channel(
        self, address: str | None, handler: Handler, nursery: trio.Nursery
    ) -> StreamChannel:
        """Connect. Raises `ConnectError`."""
        return await super().open_channel(address, handler, nursery)


class Cut:
    """A cut between two parties, until `heal` or the end of a `with`."""

    def __init__(self, network: Network, ways: tuple[tuple[str, str], ...]) -> None:
        self._network = network
        self._ways = ways
        for source, target in ways:
            network.memory.sever(source, target)

    def heal(self) -> None:
        """Let everything arrive again, first what was on its way."""
        ways, self._ways = self._ways, ()
        for source, target in ways:
            self._network.memory.mend(source, target)

    def __enter__(self) -> Cut:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.heal()


class Network:
    """The network of the brokers and parties of one test."""

    def __init__(self) -> None:
        self.memory = MemoryNetwork()
        """The addresses, connections and delays themselves."""
        self.parties: dict[str, str] = {}
        """All names that were given out, and their hosts."""

    def name(self, host: str, name: str | None = None) -> None:
        """Note a party: its host is a name, and it may have another one."""
        self.parties[host] = host
        if name is not None:
            self.parties[name] = host

    def party(self, name: str, namesrv: str) -> Party:
        """A client of this name, for a name server at that address.

        Raises `ConfigurationError` for a name that could be an address.
        """
        if not name or ":" in name:
            raise ConfigurationError(f"a party of a network cannot be called {name!r}")
        self.name(name)
        return Party(self.memory, name, namesrv)

    def cut(self, one: str, other: str, *, one_way: bool = False) -> Cut:
        """Let nothing arrive between two parties, or only not from `one` to `other`.

        As while a cable is out: connections live on, nobody is told, and what was
        written arrives after `heal`. New connections do not come about.

        Raises `ConfigurationError` for a name that nobody has.
        """
        for name in (one, other):
            if name not in self.parties:
                raise ConfigurationError(
                    f"nobody on the network is called {name!r}; there are "
                    f"{', '.join(sorted(self.parties)) or 'no parties'}"
                )
        one, other = self.parties[one], self.parties[other]
        ways = ((one, other),) if one_way else ((one, other), (other, one))
        return Cut(self, ways)

    def slow(self, address: str, seconds: float) -> None:
        """Let everything to and from an address take so many seconds; 0 ends it."""
        self.memory.delay(address, seconds)
