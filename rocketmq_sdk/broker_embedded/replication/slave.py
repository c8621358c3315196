"""A slave's side of replication: it follows its master's log (`DefaultHAClient`).

As in Apache RocketMQ 5.4.0, with these additions. The two logs are compared before
anything is appended: a slave whose log is not empty reports a position in front of its
end, and what the master sends for the overlap has to be what the slave has. A slave
that differs, or is ahead of its master, takes nothing and serves nobody until it is
mended by hand. Under SYNC_FLUSH this slave acknowledges only what is synced.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rocketmq_sdk.backoff import Backoff
from rocketmq_sdk.broker_embedded.replication.wire import FrameReader, encode_report
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.errors import RemoteProtocolError, RocketMQError, StoreCorruptError, StoreError
from rocketmq_sdk.watermark import Watermark

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
OVERLAP: Final = 64 * 1024
"""How many bytes of both logs are compared, at most."""
RETRY: Final = Backoff(first=0.2, limit=5.0)
MASTER_WAIT: Final = 10.0
"""Seconds that a starting slave waits for its master before it serves reads."""
_READ_SIZE: Final = 256 * 1024
Connect = Callable[[str], Awaitable[trio.abc.Stream]]


class SlaveState(Enum):
    """What a slave is doing, for people and for those who ask whether it may serve."""

    STARTING = "STARTING"
    """It has not tried its master yet, or is comparing the logs for the first time."""
    AWAY = "AWAY"
    """There is no connection to the master."""
    COMPARING = "COMPARING"
    """It is connected, and the end of both logs is being compared."""
    FOLLOWING = "FOLLOWING"
    """Its log is a prefix of the master's, and grows."""
    DIVERGED = "DIVERGED"
    """Its log is not that of its master. Nothing is taken and nobody served."""
    REFUSED = "REFUSED"
    """The master ends each connection without sending anything; nobody is served.

    The slave could not compare its log.
    """
    HELD_UP = "HELD_UP"
    """The store takes nothing now, mostly because its disk is full.

    It tries again. What is there is the master's and is served.
    """
    STOPPED = "STOPPED"
    """Nothing can be appended until a restart.

    What is there is the master's and is served.
    """


class FollowingStore(Protocol):
    """What a slave needs of its store: `MessageStore` is one."""

    config: StoreConfig

    @property
    def min_physical_offset(self) -> int:
        """Where the oldest log file starts."""
        ...

    @property
    def max_physical_offset(self) -> int:
        """The end of the log."""
        ...

    @property
    def flushed(self) -> Watermark:
        """Up to where the log is durable."""
        ...

    @property
    def needs_restart(self) -> bool:
        """Whether it takes nothing more until it is opened again."""
        ...

    def append_bytes(self, position: int, data: bytes) -> None:
        """Append bytes of the master's log."""
        ...

    async def log_bytes(self, position: int, limit: int) -> bytes | bytearray:
        """Bytes of the log from a position to the end of its file."""
        ...

    async def flush_log(self, position: int) -> None:
        """Make the log durable up to a position."""
        ...


class _Diverged(Exception):  # noqa: N818 - a state, not a failure
    """The logs do not fit together."""


class Slave:
    """Keeps a store the copy of its master's.

    `connect` opens a stream to `master_address`; `set_master` sets the address where it
    is None.
    """

    def __init__(
        self,
        store: FollowingStore,
        clock: Clock,
        connect: Connect,
        master_address: str | None = None,
    ) -> None:
        config = store.config
        self._store = store
        self._clock = clock
        self._connect = connect
        self._sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._heartbeat = config.ha_send_heartbeat_interval / 1000
        self._silence = config.ha_housekeeping_interval / 1000
        self._address = master_address
        self._configured = self._address is not None
        self._moved = trio.Event()
        self._received = Watermark()
        self._no_overlap = self._differs = False
        self._compared = trio.Event()
        self._next = self._compare_start = self._compare_until = 0
        self._stream: trio.abc.Stream | None = None
        self.may_serve = False
        """Whether consumers may read here.

        Not before the logs were compared, where there is a master to compare with, and
        not when they differ.
        """
        self.state = SlaveState.STARTING
        self.problem: str | None = None
        """What is wrong, for people; None while nothing is."""
        self.master_position = -1
        """Where the last frame of the master ended."""
        self.last_read_ms = self.last_write_ms = 0
        """When the master was heard of and told something last; epoch milliseconds."""
        self.transferred = 0
        """Bytes of the log that were received."""

    @property
    def is_connected(self) -> bool:
        """Whether the master's replication port is being read from."""
        return self.state in (SlaveState.COMPARING, SlaveState.FOLLOWING)

    @property
    def may_be_behind(self) -> bool:
        """Whether it takes nothing of the master's log, though that may be well."""
        return self.state in (
            SlaveState.DIVERGED,
            SlaveState.REFUSED,
            SlaveState.HELD_UP,
            SlaveState.STOPPED,
        )

    @property
    def master_address(self) -> str | None:
        """The replication port of the master; None while it is not known."""
        return self._address

    def set_master(self, address: str | None) -> None:
        """Set the master's replication port, as the name server knows it.

        An address in the settings wins.
        """
        if self._configured or address == self._address or not address:
            return
        _log.info("the master's replication port is %s", address)
        self._address = address
        self._moved.set()

    async def run(self) -> None:
        """Follow the master until cancelled; reconnects after a loss.

        Each connection begins with the comparison. Ends when nothing more can be
        appended.
        """
        failures = 0
        while self.state is not SlaveState.STOPPED:
            self._moved = trio.Event()
            if self._address is None:
                with trio.move_on_after(MASTER_WAIT):
                    await self._moved.wait()
                if self._address is None:
                    self._lost("no name server tells of a master")
                continue
            began = self._clock.monotonic()
            lasting = await self._once(self._address)
            failures = (
                0 if lasting and self._clock.monotonic() - began > RETRY.limit else failures + 1
            )
            with trio.move_on_after(RETRY.delay(failures - 1 if failures else 0, random.random())):
                await self._moved.wait()

    async def _once(self, address: str) -> bool:
        """One connection from its begin to its end; whether there was one."""
        try:
            await self._store.flush_log(self._store.max_physical_offset)
            stream = await self._connect(address)
        except StoreError as error:
            self._store_failed(error)
            return False
        except (RocketMQError, OSError) as error:
            self._lost(f"no connection to the master at {address}: {error}")
            return False
        problem = "the master closed the connection"
        async with stream:
            try:
                problem = await self._follow(stream) or problem
            except _Diverged as diverged:
                self._differs, self.may_serve = True, False
                self._note(SlaveState.DIVERGED, str(diverged))
                return True
            except StoreCorruptError as error:
                self._note(SlaveState.STOPPED, str(error))
                return True
            except StoreError as error:
                self._store_failed(error)
                return True
            except (
                RemoteProtocolError,
                trio.BrokenResourceError,
                trio.ClosedResourceError,
            ) as error:
                problem = str(error) or problem
        if (
            self.state in (SlaveState.STARTING, SlaveState.COMPARING)
            and self._next == self._compare_start < self._compare_until
        ):
            # Where our end is that of a file too, the master may have deleted the one
            # in front of it: then the next try does without comparing.
            self._no_overlap = True
            self.may_serve = False
            end = self._compare_until
            self._note(
                SlaveState.REFUSED,
                (
                    f"{problem} without having sent anything: "
                    "its log may end in front of the end of "
                    f"this one, {end}"
                ),
            )
            return True
        self._lost(problem)
        return True

    def _note(self, state: SlaveState, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            (_log.error if state in (SlaveState.DIVERGED, SlaveState.STOPPED) else _log.warning)(
                "slave: %s", problem
            )
        self.state, self.problem = state, problem

    def _store_failed(self, error: StoreError) -> None:
        """This slave's own store is the reason why nothing goes on."""
        if self._store.needs_restart:
            self._note(SlaveState.STOPPED, f"the store takes nothing any more: {error}")
        elif self._differs:
            self.state = SlaveState.DIVERGED
        else:
            self._note(SlaveState.HELD_UP, f"the store takes nothing now: {error}")

    def _lost(self, problem: str) -> None:
        """The connection ended or failed; a log that was found different stays so."""
        if self._differs:
            self.state = SlaveState.DIVERGED
        else:
            self.may_serve = True
            self._note(SlaveState.AWAY, problem)

    def _first_report(self) -> int:
        """Where the comparison begins.

        Some bytes in front of the end, in the last file that holds any, and never 0,
        which means an empty log.
        """
        end, size = self._store.max_physical_offset, self._store.config.mapped_file_size_commit_log
        self._compare_until = end
        if end == 0 or (self._no_overlap and end % size == 0):
            self._no_overlap = False
            return end
        start_of_file = (end - 1) - (end - 1) % size
        return max(1, start_of_file, self._store.min_physical_offset, end - OVERLAP)

    async def _follow(self, stream: trio.abc.Stream) -> str | None:
        """Report, compare and append until the connection ends.

        Returns the reason where it is known. Raises what the store or the frames raise.
        """
        self._next = self._compare_start = self._first_report()
        self._compared = trio.Event()
        self._stream = stream
        if self.state is not SlaveState.STARTING:
            self.state = SlaveState.COMPARING
        self._received.advance(self._compare_until)
        if self._next == self._compare_until:
            self._begin_following()
        await self._tell(stream, self._next)
        problems: list[Exception] = []
        ends: list[str | None] = []

        async def guarded(work: Callable[[trio.abc.Stream], Awaitable[str | None]]) -> None:
            try:
                ends.append(await work(stream))
            except (
                _Diverged,
                StoreError,
                RemoteProtocolError,
                trio.BrokenResourceError,
                trio.ClosedResourceError,
            ) as error:
                problems.append(error)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(guarded, self._report)
            await guarded(self._receive)
        if problems:
            raise problems[0]
        return next((end for end in ends if end), None)

    async def _report(self, stream: trio.abc.Stream) -> str | None:
        """Acknowledge at once when there is more of the log, and periodically."""
        await self._compared.wait()
        mark = self._store.flushed if self._sync_flush else self._received
        told = -1
        while True:
            if mark.value == told:
                await mark.wait_reached(told + 1, self._heartbeat)
            told = mark.value
            await self._tell(stream, told)

    async def _tell(self, stream: trio.abc.Stream, position: int) -> None:
        await stream.send_all(encode_report(position))
        self.last_write_ms = self._clock.now_ms()

    async def _receive(self, stream: trio.abc.Stream) -> str | None:
        frames = FrameReader()
        while True:
            with trio.move_on_after(self._silence) as scope:
                data = await stream.receive_some(_READ_SIZE)
            if scope.cancelled_caught:
                return f"the master sent nothing for {self._silence:.0f} s"
            if not data:
                return None
            self.last_read_ms = self._clock.now_ms()
            for position, body in frames.feed(data):
                await self._take(position, body)
            self._received.advance(self._store.max_physical_offset)

    async def _take(self, position: int, body: bytes) -> None:
        """One frame: compare what the slave has already, append what it has not."""
        self.master_position = position + len(body)
        empty = self._compare_until == 0 and self._store.max_physical_offset == 0
        if position != self._next and not (empty and body):
            if not body:
                return
            raise RemoteProtocolError(
                f"the master sends the position {position} where {self._next} comes next"
            )
        if not body:
            if position < self._compare_until:
                await self._incomplete(position)
            return
        self.transferred += len(body)
        known = min(len(body), self._compare_until - position)
        if known > 0:
            await self._compare(position, body[:known])
        if known < len(body):
            self._store.append_bytes(position + max(0, known), body[max(0, known) :])
        self._next = position + len(body)
        if not self._compared.is_set() and self._next >= self._compare_until:
            self._begin_following()

    async def _compare(self, position: int, theirs: bytes) -> None:
        ours = await self._own(position, len(theirs))
        if ours != theirs:
            at = position + next(
                (
                    index
                    for index, (one, other) in enumerate(zip(ours, theirs, strict=False))
                    if one != other
                ),
                len(ours),
            )
            raise _Diverged(
                f"this log is not the master's: they differ at {at}, in front of the end of this "
                f"one at {self._compare_until}. Keep the master's and "
                "empty this directory, or make this broker the master"
            )

    async def _own(self, position: int, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = await self._store.log_bytes(position + len(parts), size - len(parts))
            if not part:
                break
            parts += part
        return parts

    async def _incomplete(self, position: int) -> None:
        """A heartbeat in front of our end: the master has no more, or nothing there."""
        end = self._compare_until
        if self._stream is not None:
            await self._tell(self._stream, end)  # so that the master's log says it too
        if position == self._compare_start:
            if end % self._store.config.mapped_file_size_commit_log == 0:
                raise RemoteProtocolError(
                    f"the connection was ended as the master has nothing at {position},"
                )
            raise _Diverged(
                f"the master has nothing at {position}, {end - position} bytes in front of the "
                "end of this log: it is behind this slave, or has "
                "deleted what comes next here. Empty this directory, or make this broker the master"
            )
        raise _Diverged(
            f"this log ends at {end}, the master's at {position}: this slave is ahead of it by "
            f"{end - position} bytes that the master lost. Make "
            "this broker the master, or empty this directory"
        )

    def _begin_following(self) -> None:
        self._compared.set()
        self._differs, self.may_serve = False, True
        self._note(SlaveState.FOLLOWING, None)
        _log.info(
            "this slave follows its master at %s from %d on", self._address, self._compare_until
        )
