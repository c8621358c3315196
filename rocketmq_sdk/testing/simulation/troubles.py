"""What may go wrong in a simulation, each at its time and for so long."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from rocketmq_sdk.testing.faults import Operation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.testing.faults import Fault
    from rocketmq_sdk.testing.faulty_clock import ClockFault

EVERYBODY: Final = "*"
"""The other side of a cut that takes a broker off the network."""


class Site(Protocol):
    """Where troubles happen: what they ask of a simulation."""

    async def take_down(self, broker: str, how: str, seed: int) -> None:
        """End the life of a broker, for as long as anything keeps it down."""

    async def let_up(self, broker: str) -> None:
        """Take that back; the last one starts the broker."""

    def sever(self, one: str, other: str, *, one_way: bool) -> None:
        """Let nothing arrive; counted, as several cuts may be about the same way."""

    def mend(self, one: str, other: str, *, one_way: bool) -> None:
        """Take that back."""

    def slow_down(self, broker: str, seconds: float) -> None:
        """Add to what bytes from and to a broker take; negative takes it back."""

    def disconnect(self, broker: str) -> None:
        """Break all connections to a broker."""

    def break_disk(self, broker: str, fault: DiskFault) -> Fault:
        """Let operations of a broker's disk fail or be slow, until the lift."""

    def set_clock(self, broker: str, seconds: float) -> ClockFault:
        """Let a broker's wall clock be wrong, until the lift."""

    async def check_up(self, broker: str) -> None:
        """Restart a broker that has suffered so that it takes no messages any more."""


@attrs.frozen
class DiskFault:
    """What is wrong with a disk."""

    operation: Operation
    path: str
    code: int = 0
    delay: float = 0.0
    times: int | None = None


@attrs.frozen(kw_only=True)
class Trouble:
    """Something that goes wrong `at` seconds after the begin and `lasts` so long."""

    at: float
    lasts: float = 0.0

    def happening(self, site: Site) -> AbstractAsyncContextManager[None]:
        """It begins with the block and is over at its end."""
        raise NotImplementedError

    @property
    def end(self) -> float:
        """When it is over: seconds after the begin."""
        return self.at + self.lasts


@attrs.frozen(kw_only=True)
class Down(Trouble):
    """A broker is away, and comes back on its data."""

    broker: str

    how = ""
    seed = 0

    @asynccontextmanager
    async def happening(self, site: Site) -> AsyncIterator[None]:
        """It is started again at the end."""
        await site.take_down(self.broker, self.how, self.seed)
        yield
        await site.let_up(self.broker)


@attrs.frozen(kw_only=True)
class Stop(Down):
    """A broker ends in order."""

    how = "stop"


@attrs.frozen(kw_only=True)
class Kill(Down):
    """A broker ends as by `kill -9`."""

    how = "kill"


@attrs.frozen(kw_only=True)
class PowerCut(Down):
    """A broker's machine loses its power, and what was not synced.

    The seed says which of the unsynced bytes are left.
    """

    seed: int = 0

    how = "power cut"


@attrs.frozen(kw_only=True)
class Disconnect(Trouble):
    """All connections to a broker break."""

    broker: str

    @asynccontextmanager
    async def happening(self, site: Site) -> AsyncIterator[None]:
        """Once, at the begin."""
        site.disconnect(self.broker)
        yield


@attrs.frozen(kw_only=True)
class Cut(Trouble):
    """Nothing arrives between two parties, or from one to the other.

    Connections live on, and what was under way arrives at the end. `other` is `*` for
    everybody else.
    """

    one: str
    other: str = EVERYBODY
    one_way: bool = False

    @asynccontextmanager
    async def happening(self, site: Site) -> AsyncIterator[None]:
        """It heals at the end."""
        site.sever(self.one, self.other, one_way=self.one_way)
        yield
        site.mend(self.one, self.other, one_way=self.one_way)


@attrs.frozen(kw_only=True)
class SlowNetwork(Trouble):
    """What goes to a broker and comes from it takes so many seconds longer."""

    broker: str
    seconds: float

    @asynccontextmanager
    async def happening(self, site: Site) -> AsyncIterator[None]:
        """For all connections, old and new."""
        site.slow_down(self.broker, self.seconds)
        yield
        site.slow_down(self.broker, -self.seconds)


@attrs.frozen(kw_only=True)
class WrongClock(Trouble):
    """A broker's wall clock jumps, forward or back, and back again at the end.

    No plan that is drawn has it.
    """

    broker: str
    seconds: float

    @asynccontextmanager
    async def happening(self, site: Site) -> AsyncIterator[None]:
        """In all lives of the broker meanwhile."""
        fault = site.set_clock(self.broker, self.seconds)
        yield
        fault.lift()


@attrs.frozen(kw_only=True)
class _Disk(Trouble):
    broker: str

    def fault(self) -> DiskFault:
        """What fails."""
        raise NotImplementedError

    @asynccontextmanager
    async def happening(self, site: Site) -> AsyncIterator[None]:
        """A broker that the disk has hurt is restarted at the end."""
        fault = site.break_disk(self.broker, self.fault())
        yield
        fault.lift()
        await site.check_up(self.broker)


@attrs.frozen(kw_only=True)
class FullDisk(_Disk):
    """A broker's disk takes no more messages."""

    def fault(self) -> DiskFault:
        """ENOSPC."""
        return DiskFault(Operation.WRITE, "commitlog/*", code=errno.ENOSPC)


@attrs.frozen(kw_only=True)
class SlowDisk(_Disk):
    """Each write of a broker's tables takes so many seconds."""

    seconds: float

    def fault(self) -> DiskFault:
        """A delay."""
        return DiskFault(Operation.SYNC, "*", delay=self.seconds)


@attrs.frozen(kw_only=True)
class BadDisk(_Disk):
    """Some operations of a broker's disk fail: `read`, `write` or `sync`."""

    operation: str = "write"
    times: int = 1

    def fault(self) -> DiskFault:
        """EIO."""
        operation = Operation(self.operation)
        return DiskFault(operation, "*", code=errno.EIO, times=self.times)


# What is drawn, at random or by hypothesis


@attrs.frozen
class Seconds:
    """From `10 ** low` to `10 ** high` seconds; short ones as often as long ones."""

    low: int
    high: int


@attrs.frozen
class OneOf:
    """One of these values."""

    values: tuple[object, ...]


@attrs.frozen
class Below:
    """A whole number below this one."""

    end: int


@attrs.frozen(kw_only=True)
class Kind:
    """What may be drawn for a plan, besides its time and its broker."""

    make: Callable[..., Trouble]
    fields: Mapping[str, Seconds | OneOf | Below] = attrs.field(factory=dict)
    lasts: bool = True
    often: int = 1
    """How often it comes, beside the others."""
    power_cuts: bool = False
    """Whether the plan has to allow power cuts."""


KINDS: Final = (
    Kind(make=Kill),
    Kind(make=Stop),
    Kind(make=Disconnect, lasts=False),
    Kind(make=SlowNetwork, fields={"seconds": Seconds(-2, 1)}),
    Kind(make=FullDisk),
    Kind(make=SlowDisk, fields={"seconds": Seconds(-3, 0)}),
    Kind(
        make=BadDisk,
        fields={"operation": OneOf(("read", "write", "sync")), "times": OneOf((1, 3, 20))},
    ),
    Kind(make=Cut, often=2),
    Kind(make=PowerCut, fields={"seed": Below(1 << 30)}, power_cuts=True),
)
"""All that goes wrong in a plan that is drawn. Of a `Cut` the two sides are drawn."""
