"""A master's side of replication: one connection for each slave.

`DefaultHAConnection` and `AcceptSocketService` of Apache RocketMQ 5.4.0. Nothing is
sent until the slave has reported where its log ends. From there on it is sent the log
as it lies in the files, with their blank ends, up to the confirm offset: under
SYNC_FLUSH only what is synced, so that a power cut cannot leave a slave ahead of its
master.

Beyond Apache, the first report only says where to begin: a slave has acknowledged
nothing before it was sent something, which it compares with what it has, and never more
than it was sent. At Apache's master each report counts (`slaveAckOffset`), so that a
slave with the log of another master acknowledges messages that it does not have.
A slave that is ahead of the master is refused, and so is one whose position the log no
longer holds; the log says which and what to do. Apache's master sends such a slave
bytes from the middle of other records, or lets it wait for ever.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from rocketmq_sdk.broker_embedded.replication.wire import ReportReader, encode_head
from rocketmq_sdk.broker_embedded.store.append.replicas import Replica, Replicas
from rocketmq_sdk.errors import ConnectError, RemoteProtocolError, StoreError
from rocketmq_sdk.remoting.places import Accepting
from rocketmq_sdk.transport.addresses import stream_addresses

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.watermark import Watermark

_log = logging.getLogger(__name__)
MAX_CONNECTIONS: Final = 64
"""More slaves than this no master has."""
_FRAMES_AT_ONCE: Final = 8
_READ_SIZE: Final = 1024


class ReplicatedStore(Protocol):
    """What a master needs of its store: `MessageStore` is one."""

    config: StoreConfig
    dispatched: Watermark

    @property
    def min_physical_offset(self) -> int:
        """Where the oldest log file starts."""
        ...

    @property
    def max_physical_offset(self) -> int:
        """The end of the log."""
        ...

    async def log_bytes(self, position: int, limit: int) -> bytes | bytearray:
        """Bytes of the log from a position to the end of its file, at most `limit`."""
        ...


class _Refused(Exception):  # noqa: N818 - the end of a connection, not a failure
    """A slave that cannot be served, and why."""


class Master:
    """Serves slaves over streams of any kind.

    `replicas` holds the position of each slave.
    """

    def __init__(self, store: ReplicatedStore, replicas: Replicas, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._config = store.config
        self._heartbeat = store.config.ha_send_heartbeat_interval / 1000
        self._silence = store.config.ha_housekeeping_interval / 1000
        self._scopes: dict[Replica, trio.CancelScope] = {}
        self.replicas = replicas
        self.accept: Callable[[trio.abc.Stream, str], Awaitable[trio.abc.Stream]] | None = None
        """Gives the stream to speak on with a new connection; raises `ConnectError`."""

    async def serve(
        self, listeners: list[Any], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept and serve slaves until cancelled, then close the listeners.

        Errors of a connection are never raised.
        """
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener, nursery)
                task_status.started()
        finally:
            for listener in listeners:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                    await listener.aclose()

    async def _accept(self, listener: Any, nursery: trio.Nursery) -> None:
        accepting = Accepting(listener, "the connection of a slave", _log)
        while (stream := await accepting.next()) is not None:
            nursery.start_soon(self.serve_stream, stream)

    async def serve_stream(self, stream: trio.abc.Stream) -> None:
        """Serve one slave until its connection ends; the log says why."""
        replica = Replica(stream_addresses(stream).remote_address)
        if not self._make_place(replica):
            await trio.aclose_forcefully(stream)
            return
        try:
            with self._scopes[replica]:
                secured = await self._secured(stream, replica.address)
                if secured is not None:
                    async with secured:
                        await self._serve(replica, secured)
        finally:
            del self._scopes[replica]
            await trio.aclose_forcefully(stream)

    async def _serve(self, replica: Replica, stream: trio.abc.Stream) -> None:
        self.replicas.add(replica)
        try:
            await self._follow(replica, stream)
        except (_Refused, RemoteProtocolError) as error:
            _log.error("the slave %s is refused: %s", replica.address, error)
        except StoreError as error:
            _log.error("the connection of the slave %s is closed: %s", replica.address, error)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception:  # noqa: BLE001 - one connection's; it is told with its traceback
            _log.exception("serving the slave %s failed", replica.address)
        finally:
            self.replicas.remove(replica, self._clock.monotonic())
            _log.info(
                "the slave %s is gone; it has the log up to %d",
                replica.address,
                replica.acknowledged,
            )

    async def _secured(self, stream: trio.abc.Stream, address: str) -> trio.abc.Stream | None:
        """The stream after a TLS handshake, where there is one; None when it failed."""
        if self.accept is None:
            return stream
        try:
            with trio.move_on_after(self._silence):
                return await self.accept(stream, address)
        except ConnectError as error:
            _log.error("a connection to the port for slaves is refused: %s", error)
        return None

    def _make_place(self, replica: Replica) -> bool:
        """Make room for one more connection.

        When there is none, a connection that never reported anything is closed.
        """
        if len(self._scopes) >= MAX_CONNECTIONS:
            silent = next(
                (
                    other
                    for other, scope in self._scopes.items()
                    if other.requested < 0 and not scope.cancel_called
                ),
                None,
            )
            if silent is None:
                _log.warning(
                    "the slave %s is refused: %d others are connected",
                    replica.address,
                    len(self._scopes),
                )
                return False
            _log.warning(
                "the connection of %s, which never reported anything, gives its place to %s",
                silent.address,
                replica.address,
            )
            self._scopes[silent].cancel()
        self._scopes[replica] = trio.CancelScope()
        return True

    async def _follow(self, replica: Replica, stream: trio.abc.Stream) -> None:
        """Read and send until one of both ends, and raise what ended it."""
        problems: list[Exception] = []

        async def guarded(work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
            try:
                await work(replica, stream, *arguments)
            except (
                _Refused,
                RemoteProtocolError,
                StoreError,
                trio.BrokenResourceError,
                trio.ClosedResourceError,
            ) as error:
                problems.append(error)
            nursery.cancel_scope.cancel()

        def begin() -> None:
            nursery.start_soon(guarded, self._send)

        async with trio.open_nursery() as nursery:
            await guarded(self._read, begin)
        if problems:
            raise problems[0]

    async def _read(
        self, replica: Replica, stream: trio.abc.Stream, begin: Callable[[], None]
    ) -> None:
        """Read reports until the slave stops; the first one starts the sending."""
        reader = ReportReader()
        while True:
            with trio.move_on_after(self._silence) as scope:
                data = await stream.receive_some(_READ_SIZE)
            if scope.cancelled_caught:
                _log.warning(
                    "the slave %s reported nothing for %.0f s; its connection is closed",
                    replica.address,
                    self._silence,
                )
                return
            if not data:
                return
            position = reader.feed(data)
            if position is not None:
                self._check(position)
                if replica.requested >= 0:
                    self.replicas.acknowledge(replica, min(position, replica.sent))
                else:
                    replica.sent = self._first_position(position)
                    self.replicas.reported(replica, position)
                    _log.info(
                        "the slave %s has the log up to %d and is sent it from %d on",
                        replica.address,
                        position,
                        replica.sent,
                    )
                    begin()

    def _check(self, position: int) -> None:
        end = self._store.max_physical_offset
        if position > end:
            raise _Refused(
                f"it has the log up to {position}, {position - end} bytes more than this master, "
                f"whose log ends at {end}: what is behind was lost "
                "here or is another master's; make that slave the master, or empty its directory"
            )

    def _first_position(self, position: int) -> int:
        """Where sending begins.

        A slave with an empty log gets the last file only, as with Apache, and earlier
        ones that a sender waits for.
        """
        store = self._store
        if position == 0:
            end, size = store.max_physical_offset, store.config.mapped_file_size_commit_log
            needed = self.replicas.oldest_waiting(self._clock.monotonic(), end)
            return max(store.min_physical_offset, needed - needed % size)
        if position < store.min_physical_offset:
            raise _Refused(
                f"its log ends at {position}, this one begins at {store.min_physical_offset}, as "
                "older files are gone: empty its directory"
            )
        return position

    async def _send(self, replica: Replica, stream: trio.abc.Stream) -> None:
        """Send the log as it grows, and heartbeats while it does not."""
        store, batch = self._store, self._config.ha_transfer_batch_size
        while True:
            position = replica.sent
            if not await store.dispatched.wait_reached(position + 1, self._heartbeat):
                await stream.send_all(encode_head(position, 0))
                continue
            data = await store.log_bytes(position, batch * _FRAMES_AT_ONCE)
            if not data:
                raise _Refused(
                    f"the log has nothing to read at {position} any more; it begins at "
                    f"{store.min_physical_offset}"
                )
            parts: list[bytes | bytearray] = []
            for at in range(0, len(data), batch):
                piece = data[at : at + batch]
                parts += (encode_head(position + at, len(piece)), piece)
            replica.sent = position + len(data)
            await stream.send_all(b"".join(parts))
            replica.transferred += len(data)
