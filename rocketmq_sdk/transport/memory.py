"""A network in memory: named addresses, bounded pipes, and faults on demand.

Under a virtual clock a whole cluster runs on it in no time. Its streams keep trio's
contract, so whatever speaks over TCP speaks over them.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.clock import AlarmClock
from rocketmq_sdk.errors import ConfigurationError, ConnectError

if TYPE_CHECKING:
    from collections.abc import Callable

CAPACITY: Final = 256 * 1024
READ_SIZE: Final = 64 * 1024


class _Pipe:
    """One direction: pieces of bytes, each with the moment at which it may be read.

    At most one task reads. It sleeps in a cancel scope whose deadline a write may bring
    nearer, or where the clock has alarms, until it is rescheduled by one.
    """

    def __init__(self, capacity: int, alarms: AlarmClock | None) -> None:
        self.delay = 0.0
        self.latency: Callable[[], float] | None = None
        self.ended = False
        self.failure: str | None = None
        self.reader_closed = False
        self.stalled = False
        self._capacity = capacity
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._held = 0
        self._alarms = alarms
        self._now = trio.current_time if alarms is None else alarms.current_time
        self._room: trio.Event | None = None
        """What writers wait for, if any do."""
        self._reader: trio.lowlevel.Task | None = None
        """Who waits for something to read."""
        self._patience: trio.CancelScope | None = None
        """Around the wait of the reader, if it waits for a moment."""

    def notify(self) -> None:
        """Something has changed: who waits looks again."""
        self._wake_reader()
        if self._room is not None:
            self._room.set()
            self._room = None

    def _wake_reader(self) -> bool:
        reader = self._reader
        if reader is None:
            return False
        self._reader = None
        trio.lowlevel.reschedule(reader)
        return True

    async def _wait_for_room(self) -> None:
        if self._room is None:
            self._room = trio.Event()
        await self._room.wait()

    def _stop_reading(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._reader = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def _wait_woken(self) -> None:
        self._reader = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._stop_reading)

    def fail(self, reason: str) -> None:
        self.failure = reason
        self._pieces.clear()
        self.notify()

    def check_writable(self) -> None:
        if self.failure is not None:
            raise trio.BrokenResourceError(self.failure)
        if self.ended:
            raise trio.ClosedResourceError("this side of the stream is closed")
        if self.reader_closed:
            raise trio.BrokenResourceError("the peer closed the stream")

    @property
    def is_writable(self) -> bool:
        return self.failure is None and not self.ended and not self.reader_closed

    def write_now(self, data: bytes) -> int:
        """Put as many bytes into the pipe as there is room for; tells their number."""
        room = self._capacity - self._held
        if room <= 0 or not data:
            return 0
        if len(data) > room:
            data = data[:room]
        self._held += len(data)
        due = now = self._now()
        due += self.delay
        if self.latency is not None:
            due += self.latency()
        self._pieces.append((due, data))
        if self._reader is None or self.stalled or len(self._pieces) > 1:
            return len(data)  # nobody waits for this piece
        patience = self._patience
        if due <= now or (patience is None and self._alarms is None):
            self._wake_reader()
        elif self._alarms is not None:
            self._alarms.call_at(due, self._wake_reader)
        elif patience is not None and due < patience.deadline:
            patience.deadline = due  # the reader need not wake before
        return len(data)

    async def write(self, data: bytes) -> None:
        """Put all bytes into the pipe, waiting for room."""
        while True:
            self.check_writable()
            written = self.write_now(data)
            if written == len(data):
                return
            data = data[written:]
            await self._wait_for_room()

    async def wait_room(self) -> None:
        self.check_writable()
        while self._held >= self._capacity:
            await self._wait_for_room()
            self.check_writable()

    @property
    def is_readable(self) -> bool:
        """Whether `read` returns or raises at once."""
        if self.reader_closed or self.failure is not None:
            return True
        if self.stalled:
            return False
        return self._pieces[0][0] <= self._now() if self._pieces else self.ended

    async def read(self, max_bytes: int) -> bytes:
        """Some bytes; none at the end."""
        while True:
            if self.reader_closed:
                raise trio.ClosedResourceError("this side of the stream is closed")
            if self.failure is not None:
                raise trio.BrokenResourceError(self.failure)
            if self.stalled:
                await self._wait_woken()
            elif self._pieces:
                due = self._pieces[0][0]
                if due <= self._now():
                    return self._take(max_bytes)
                await self._wait_until(due)
            elif self.ended:
                return b""
            elif self._alarms is not None or (self.latency is None and not self.delay):
                await self._wait_woken()
            else:
                await self._wait_until(math.inf)

    async def _wait_until(self, due: float) -> None:
        """Wait for a change or a moment, which a write may bring nearer."""
        if self._alarms is not None:
            self._alarms.call_at(due, self._wake_reader)
            await self._wait_woken()
            return
        try:
            with trio.CancelScope(deadline=due) as self._patience:
                await self._wait_woken()
        finally:
            self._patience = None

    def _take(self, max_bytes: int) -> bytes:
        """All bytes that are due, up to `max_bytes`, as a socket gives them."""
        now, taken, room = self._now(), [], max_bytes
        while room and self._pieces and self._pieces[0][0] <= now:
            due, piece = self._pieces.popleft()
            if len(piece) > room:
                self._pieces.appendleft((due, piece[room:]))
                piece = piece[:room]
            taken.append(piece)
            room -= len(piece)
        self._held -= max_bytes - room
        if self._room is not None:
            self.notify()
        return taken[0] if len(taken) == 1 else b"".join(taken)


class MemoryStream(trio.abc.HalfCloseableStream):
    """One end of a connection of a `MemoryNetwork`."""

    sends_now = True

    def __init__(
        self, outgoing: _Pipe, incoming: _Pipe, local_address: str, remote_address: str
    ) -> None:
        self.local_address = local_address
        self.remote_address = remote_address
        self._outgoing = outgoing
        self._incoming = incoming
        self._sending = False
        self._receiving = False

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called on this end."""
        return self._incoming.reader_closed

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._begin_sending()
        try:
            await trio.lowlevel.checkpoint()
            self._outgoing.check_writable()
            await self._outgoing.write(bytes(data))
        finally:
            self._sending = False

    def send_now(self, data: bytes) -> int:
        """Send what there is room for at once; tells the number of bytes.

        0 also when the stream is broken or closed. Only while no task sends.
        """
        return self._outgoing.write_now(data) if self._outgoing.is_writable else 0

    async def wait_send_all_might_not_block(self) -> None:
        self._begin_sending()
        try:
            await trio.lowlevel.checkpoint()
            await self._outgoing.wait_room()
        finally:
            self._sending = False

    def _begin_sending(self) -> None:
        if self._sending:
            raise trio.BusyResourceError("another task is sending on this stream")
        self._sending = True

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        size = READ_SIZE if max_bytes is None else index(max_bytes)
        if size < 1:
            raise ValueError("max_bytes must be at least 1")
        if self._receiving:
            raise trio.BusyResourceError("another task is receiving from this stream")
        self._receiving = True
        try:
            if self._incoming.is_readable:
                await trio.lowlevel.checkpoint()
            return await self._incoming.read(size)
        finally:
            self._receiving = False

    async def send_eof(self) -> None:
        self._begin_sending()
        try:
            await trio.lowlevel.checkpoint()
            if self.closed:
                raise trio.ClosedResourceError("this side of the stream is closed")
            self._outgoing.ended = True
            self._outgoing.notify()
        finally:
            self._sending = False

    async def aclose(self) -> None:
        self._outgoing.ended = True
        self._incoming.reader_closed = True
        self._outgoing.notify()
        self._incoming.notify()
        await trio.lowlevel.checkpoint()

    def cut(self, reason: str = "the connection was cut") -> None:
        """Break both directions for both ends; what was not read yet is lost."""
        self._outgoing.fail(reason)
        self._incoming.fail(reason)

    def set_delay(self, seconds: float) -> None:
        """Have bytes in either direction take so long from now on."""
        self._outgoing.delay = self._incoming.delay = seconds

    def stall(self, *, outgoing: bool | None = None, incoming: bool | None = None) -> None:
        """Hold up the bytes of a direction, or let them go on; None leaves it.

        What was written stays on its way. The other end does not see the end of a
        direction that is held up either.
        """
        for pipe, stalled in ((self._outgoing, outgoing), (self._incoming, incoming)):
            if stalled is not None and pipe.stalled != stalled:
                pipe.stalled = stalled
                pipe.notify()


class MemoryListener(trio.abc.Listener[MemoryStream]):
    """Accepts the connections that are made to one address."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self.address = address
        self._network = network
        self._waiting_send, self._waiting = trio.open_memory_channel[MemoryStream](1024)

    async def accept(self) -> MemoryStream:
        try:
            return await self._waiting.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise trio.ClosedResourceError("the listener is closed") from None

    def offer(self, stream: MemoryStream) -> bool:
        """Queue a new connection; False when too many wait already."""
        try:
            self._waiting_send.send_nowait(stream)
        except trio.WouldBlock:
            return False
        return True

    async def aclose(self) -> None:
        self._network.forget(self)
        while True:
            try:
                self._waiting.receive_nowait().cut("nobody accepted the connection")
            except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                break
        self._waiting_send.close()
        self._waiting.close()
        await trio.lowlevel.checkpoint()


class MemoryNetwork:
    """Addresses of the form `host:port` that exist only here.

    Must be used inside one `trio.run`.

    `capacity` is how many bytes each direction of a connection holds before its sender
    waits.
    """

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._listeners: dict[str, MemoryListener] = {}
        self._streams: list[MemoryStream] = []
        self._delays: dict[str, float] = {}
        self.latency: Callable[[str, str], float] | None = None
        """If set: draws how many seconds bytes from one host take to another."""
        self._refused: set[str] = set()
        self._severed: set[tuple[str, str]] = set()
        self._mended = trio.Event()
        self._last_port = 40_000

    def _address(self, address: str) -> str:
        host, _, port = address.rpartition(":")
        if port != "0":
            return address
        self._last_port += 1
        return f"{host}:{self._last_port}"

    def listen(self, address: str) -> MemoryListener:
        """Serve an address; port 0 takes a free one.

        Follows `MemoryListener.address` tells it.

        Raises `ConfigurationError` when it is served already.
        """
        address = self._address(address)
        if address in self._listeners:
            raise ConfigurationError(f"{address} is served already")
        listener = self._listeners[address] = MemoryListener(self, address)
        return listener

    def forget(self, listener: MemoryListener) -> None:
        """Serve the listener's address no longer. Called by its `aclose`."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def serves(self, address: str) -> bool:
        """Whether somebody listens on the address."""
        return address in self._listeners

    async def connect(self, address: str, *, source: str = "127.0.0.1:0") -> MemoryStream:
        """Connect to whoever serves the address.

        `source` is what that side sees, port 0 takes a free one. Waits while bytes of
        one host do not arrive at the other (`sever`).

        Raises `ConnectError` when nobody listens or the address is told to refuse.
        """
        delay = self._delays.get(address, 0.0)
        here, target = hosts = _host(source), _host(address)
        latency = self.latency
        await trio.sleep(delay + (latency(here, target) if latency else 0.0))
        while self._severed and (hosts in self._severed or hosts[::-1] in self._severed):
            await self._mended.wait()
        listener = self._listeners.get(address)
        if listener is None or address in self._refused:
            raise ConnectError(f"cannot connect to {address}: connection refused", address=address)
        source = self._address(source)
        clock = trio.lowlevel.current_clock()
        alarms = clock if isinstance(clock, AlarmClock) else None
        there, back = _Pipe(self._capacity, alarms), _Pipe(self._capacity, alarms)
        client = MemoryStream(there, back, source, address)
        if not listener.offer(MemoryStream(back, there, address, source)):
            raise ConnectError(
                f"cannot connect to {address}: too many connections wait to be accepted",
                address=address,
            )
        client.set_delay(delay)
        if latency is not None:
            there.latency = partial(latency, here, target)
            back.latency = partial(latency, target, here)
        self._streams = [stream for stream in self._streams if not stream.closed]
        self._streams.append(client)
        return client

    def delay(self, address: str, seconds: float) -> None:
        """Delay connecting to the address, and its connections, by `seconds`.

        Each direction of a connection is delayed. 0 ends it.
        """
        self._delays[address] = seconds
        for stream in self._to(address):
            stream.set_delay(seconds)

    def refuse(self, address: str, refused: bool = True) -> None:
        """Refuse new connections to the address; open ones live on.

        `refused=False` ends it.
        """
        if refused:
            self._refused.add(address)
        else:
            self._refused.discard(address)

    def cut(self, address: str) -> int:
        """Break all open connections to the address; gives their number."""
        streams = self._to(address)
        for stream in streams:
            stream.cut()
        self._streams = [stream for stream in self._streams if stream not in streams]
        return len(streams)

    def sever(self, source: str, target: str) -> None:
        """Hold up all bytes from one host to another, until `mend`.

        Open connections live on, as while a cable is out: what was written arrives
        after the mending. New ones wait for it.
        """
        self._severed.add((source, target))
        self._stall_again()

    def mend(self, source: str, target: str) -> None:
        """Let bytes from one host to another arrive again."""
        self._severed.discard((source, target))
        self._stall_again()
        self._mended.set()
        self._mended = trio.Event()

    def _stall_again(self) -> None:
        for stream in self._streams:
            here, there = _host(stream.local_address), _host(stream.remote_address)
            stream.stall(
                outgoing=(here, there) in self._severed, incoming=(there, here) in self._severed
            )

    def _to(self, address: str) -> list[MemoryStream]:
        return [
            stream
            for stream in self._streams
            if stream.remote_address == address and not stream.closed
        ]


def _host(address: str) -> str:
    return address.rpartition(":")[0]
