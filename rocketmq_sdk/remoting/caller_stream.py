"""A stream channel of a client, at whose socket a lone caller may wait itself.

The reader of a channel hands an answer to whoever waits for it, who goes on one turn of
the loop later. A caller that is alone need not pay for that turn: it waits for the same
socket by a descriptor of its own, is woken in the turn in which the answer comes, and
does the reader's work for this chunk. The reader stands aside as long as a caller waits
so, and watches the socket again when it has left. Callers of the doors for asyncio and
threads, which are no tasks of trio's, look at the socket between the turns they give.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.remoting.channel import SocketWait, logger
from rocketmq_sdk.remoting.spinning import Spinning
from rocketmq_sdk.remoting.stream import READ_SIZE, StreamChannel
from rocketmq_sdk.transport.tcp import can_receive_now, receive_now, receive_soon

if TYPE_CHECKING:
    from contextvars import Context

    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import ChannelLimits, Handler

_DOOR: Final = "a caller outside of trio's tasks"


class _OwnWait(SocketWait):
    """Waits for one socket by a second descriptor; for one caller at a time."""

    __slots__ = (
        "_channel",
        "_descriptor",
        "_has_come",
        "_spinning",
        "holder",
        "size",
    )

    def __init__(self, channel: CallerStream, descriptor: int) -> None:
        self._channel = channel
        self._descriptor = os.dup(descriptor)
        self._spinning = Spinning(channel._housekeeper.now)
        self.size = 0
        """Bytes of the request whose answer is waited for."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        self._has_come = poll.poll
        self.holder: trio.lowlevel.Task | str | None = None
        """The task that waits, until it is woken or has its turn; or `_DOOR`."""

    @trio.lowlevel.enable_ki_protection
    async def turn(self) -> bool:
        task = self.holder = trio.lowlevel.current_task()
        try:
            if not (self._spinning.begin(self.size) and await self._spin(task)):
                await trio.lowlevel.wait_readable(self._descriptor)
        except trio.ClosedResourceError:
            return False  # woken
        finally:
            if self.holder is task:
                self.holder = None
        return self._channel.read_now()

    async def _spin(self, task: trio.lowlevel.Task) -> bool:
        """Let the loop turn until something has come, for a while; whether it has.

        Other tasks have their turns meanwhile. Also ends when the task is woken.
        """
        while True:
            await trio.lowlevel.checkpoint()
            if self.holder is not task:
                raise trio.ClosedResourceError
            found = bool(self._has_come(0))
            if not self._spinning.goes_on(found=found):
                return found

    def wake(self) -> None:
        if self.holder is not None and self.holder is not _DOOR:
            self.holder = None
            trio.lowlevel.notify_closing(self._descriptor)

    def hold(self) -> bool:
        if not self._spinning.begin(self.size):
            return False
        self.holder = _DOOR
        return True

    def look(self, turns: float) -> bool | None:
        if self.holder is not _DOOR:
            return False  # it was closed
        found = bool(self._has_come(0))
        if self._spinning.goes_on(found=found, turns=turns):
            return None
        return found and self._channel.read_now()

    def release(self) -> None:
        if self.holder is _DOOR:
            self.holder = None

    def leave(self) -> None:
        self._channel.take_over()

    def close(self) -> None:
        """Wake who waits, and give the descriptor up."""
        self.holder = None
        trio.lowlevel.notify_closing(self._descriptor)
        os.close(self._descriptor)


class CallerStream(StreamChannel):
    """The channel of a client to one server."""

    __slots__ = ("_busy", "_context", "_own_wait", "_parked")

    def __init__(
        self,
        stream: trio.abc.Stream,
        handler: Handler,
        *,
        limits: ChannelLimits,
        remote_address: str,
        local_address: str,
        remote_host_packed: bytes,
    ) -> None:
        super().__init__(
            stream,
            handler,
            limits=limits,
            remote_address=remote_address,
            local_address=local_address,
            remote_host_packed=remote_host_packed,
        )
        self._context: Context | None = None  # the reader's
        self._own_wait: _OwnWait | None = None
        self._busy = False  # whether the reader handles what it has read
        self._parked: trio.lowlevel.Task | None = None  # the reader, while a caller reads

    def socket_wait(self, size: int) -> SocketWait | None:
        wait = self._own_wait
        if wait is None:
            if self._context is None or self.closed or not can_receive_now(self._stream):
                return None
            assert isinstance(self._stream, trio.SocketStream)
            try:
                wait = self._own_wait = _OwnWait(self, self._stream.socket.fileno())
                self._connection.expect_alike()
            except OSError:
                return None  # there are too many open files
        if wait.holder is not None or self._busy:
            return None
        wait.size = size
        return wait

    async def _read(self) -> str:
        self._context = trio.lowlevel.current_task().context
        return await super()._read()

    async def _receive(self, stream: trio.abc.Stream, size: int) -> bytes | bytearray:
        if not isinstance(stream, trio.SocketStream) or not can_receive_now(stream):
            return await receive_soon(stream, size)
        sock = stream.socket
        while True:
            wait = self._own_wait
            if wait is not None and wait.holder is not None:
                self._parked = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._stop_parking)
                continue
            await trio.lowlevel.wait_readable(sock)
            wait = self._own_wait
            if wait is None or wait.holder is None:  # one that waits was woken too
                try:
                    return os.read(sock.fileno(), size)
                except BlockingIOError:
                    pass

    def _stop_parking(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._parked = None
        return trio.lowlevel.Abort.SUCCEEDED

    def take_over(self) -> None:
        """A caller has left the socket: the reader is to watch it."""
        task, self._parked = self._parked, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def _handle(self, commands: list[Command]) -> None:
        self._busy = True
        try:
            await super()._handle(commands)
        finally:
            self._busy = False

    @trio.lowlevel.enable_ki_protection
    def read_now(self) -> bool:
        """Read once and handle what has come; False when that is for the reader."""
        if self._busy or self.closed or self._context is None:
            return False
        try:
            data = receive_now(self._stream, READ_SIZE)
        except OSError:
            return False  # which the reader meets as the end
        if not data:
            return False
        # What is called, and the tasks that it starts, belong to the reader.
        self._context.run(self._take, data)
        return len(data) < READ_SIZE

    def _take(self, data: bytes) -> None:
        self.last_read = self._housekeeper.now()
        connection = self._connection
        try:
            commands = connection.receive_commands(data)
        except RemoteProtocolError:
            commands = []
        self._handle_at_once(commands)
        error = connection.error
        if error is not None:
            error.__traceback__ = None
            logger.warning("closing the connection of %s: %s", self.remote_address, error)
            self.abort(str(error))

    def _handle_at_once(self, commands: list[Command]) -> None:
        """Handle the few commands of one read without a turn in between."""
        self._arrived = len(commands)
        self.heard |= self._arrived > 0
        number = 0
        keeper, self._handling = self._housekeeper, True
        keeper.begin_chunk()
        try:
            while number < len(commands) and not self.closed:
                if commands[number].flag & FLAG_RESPONSE:
                    number = self.calls.answer_from(commands, number)
                else:
                    self._serve_alone(commands[number], 0.0, 0)
                    number += 1
        finally:
            self._handling = False
            if self._frames:
                self._flush()
            keeper.end_chunk()

    def _finish(self) -> None:
        super()._finish()
        wait, self._own_wait, self._context = self._own_wait, None, None
        if wait is not None:
            wait.close()
