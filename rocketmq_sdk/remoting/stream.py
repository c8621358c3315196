"""A channel over a byte stream: a task that reads, and one that writes if need be.

No request has a task, a scope or a queue of its own.

The reader handles every complete frame of a chunk before it waits again, and all frames
that are queued are joined into one write. Answers to one chunk therefore leave
together. This batching at the socket is what makes many requests in flight cheap in
Python. What a socket takes at once is written without a task: by the reader at the end
of a chunk, by the housekeeper at the end of a turn of the loop. Only the rest is left
to the writer, which ends when it has left; other streams have one that stays.

A reader waits for its own writer in one case only: a server stops reading a peer that
does not take its answers. If both sides did so they could wait for each other for ever,
hence `pause_reading`.
"""

from __future__ import annotations

import math
import ssl
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.errors import RemoteProtocolError, RocketMQError
from rocketmq_sdk.lifecycle import bounded_cleanup, raise_unwrapped
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, FLAG_RESPONSE
from rocketmq_sdk.remoting.budget import ALWAYS_FAIR
from rocketmq_sdk.remoting.channel import TURN, UNSENT_MAX, ChannelLimits, logger, turn_length
from rocketmq_sdk.remoting.command_channel import CommandChannel
from rocketmq_sdk.remoting.form_requests import begin_requests
from rocketmq_sdk.remoting.queued_frames import (
    DIRECT_SIZE,
    ENOUGH,
    queue_frame,
    queue_replies,
    refuse_answers,
    send_queued,
    take_frames,
)
from rocketmq_sdk.remoting.side_lane import ASIDE, ASIDE_SIZE, REFUSED
from rocketmq_sdk.transport.tcp import can_receive_now, can_send_now, receive_soon, send_some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.budget import MemoryBudget
    from rocketmq_sdk.remoting.channel import FormRequest, Handler, Overdue, PendingCall, Turn
    from rocketmq_sdk.remoting.queued_frames import Piece

READ_SIZE: Final = 64 * 1024
READ_SIZE_MAX: Final = 1024 * 1024
STEP: Final = 64 * 1024
"""Growth of unsent bytes after which the connection is weighed again."""
PAUSE: Final = 15
"""The most requests that are served alone before several are tried again."""
ALWAYS_KEPT: Final = 64 * 1024
"""Bytes that are kept of every client's heartbeats, and not counted."""
LOOPBACK_HOST: Final = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
_BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, ssl.SSLError)


class StreamChannel(CommandChannel):
    """Speaks commands over any trio stream.

    Lives while `run` runs.
    """

    # There may be thousands. More than 30 attributes are too many for a dictionary that
    # shares its keys: it took 1.3 KiB more of each.
    __slots__ = (
        "_arrived",
        "_aside",
        "_brake",
        "_budget",
        "_connection",
        "_crowd",
        "_direct",
        "_drained",
        "_frames",
        "_half_sent",
        "_handling",
        "_high_water",
        "_idle_writer",
        "_last_write",
        "_leaving",
        "_load",
        "_overdue",
        "_refused",
        "_stream",
        "_takes_turns",
        "_turn",
        "_turn_from",
        "_unsent",
        "_weigh_at",
        "_write_began",
        "heard",
    )

    def __init__(
        self,
        stream: trio.abc.Stream,
        handler: Handler,
        *,
        limits: ChannelLimits | None = None,
        remote_address: str = "unknown:0",
        local_address: str = "unknown:0",
        remote_host_packed: bytes = LOOPBACK_HOST,
        pause_reading: bool = False,
        turn: Turn | None = None,
        overdue: Overdue | None = None,
        budget: MemoryBudget | None = None,
        crowd: Callable[[], int] = lambda: 1,
    ) -> None:
        """`crowd` counts the streams that are served beside this one."""
        super().__init__(
            handler,
            limits or ChannelLimits(),
            remote_address=remote_address,
            local_address=local_address,
            remote_host_packed=remote_host_packed,
        )
        self._stream = stream
        self._connection = Connection(max_frame=self.limits.max_frame)
        self._high_water = self.limits.high_water if pause_reading else math.inf
        self._turn, self._turn_from = turn, 0
        self._overdue = overdue
        self._budget, self._crowd = budget, crowd
        self._load = self._unsent = 0
        self._aside, self._takes_turns = False, can_receive_now(stream)
        self._weigh_at = min(STEP, self._high_water)
        self._brake = self._handling = False
        self._refused = False  # whether a request of the last chunk was
        self.heard = False  # whether a whole frame has come
        self._frames: list[Piece] = []
        self._half_sent = 0  # of a piece that stays in memory until all of it has left
        self._direct = can_send_now(stream)
        self._arrived = 0
        self._leaving = True  # somebody will write what is queued: at first `run`
        self._idle_writer: trio.lowlevel.Task | None = None
        self._drained: trio.Event | None = None
        self._last_write = self.last_read
        self._write_began = math.inf

    # Sending

    @trio.lowlevel.enable_ki_protection
    def submit(
        self, command: Command, timeout: float, on_done: Callable[[PendingCall], None] | None = None
    ) -> PendingCall:
        if self.closed:
            raise self._refuse_closed()
        if self._unsent > self.limits.max_unsent_bytes:
            raise self._refuse_unsent()
        calls = self.calls
        calls.admit()
        command.opaque = opaque = calls.next_opaque()
        # Answers that came together wake tasks that send again one after the other:
        # then the first waits for the rest.
        self._transmit(command, alone=not calls.slots and self._arrived < 2)
        return calls.add(opaque, timeout, on_done)

    @trio.lowlevel.enable_ki_protection
    def submit_forms(
        self, requests: Iterable[FormRequest], on_done: Callable[[PendingCall], None]
    ) -> list[PendingCall]:
        if self.closed:
            return []
        self._connection.expect_alike()
        frames, found, unsent = begin_requests(
            self.calls, requests, on_done, self.limits, self._unsent
        )
        self._frames += frames
        self._unsent = unsent
        if unsent > self._weigh_at:
            self._weigh()
        if not self._handling:
            self._flush()
        return found

    @trio.lowlevel.enable_ki_protection
    def send_oneway(self, command: Command) -> None:
        if self.closed:
            raise self._refuse_closed()
        if self._unsent > self.limits.max_unsent_bytes:
            raise self._refuse_unsent()
        command.flag |= FLAG_ONEWAY
        command.opaque = self.calls.next_opaque()
        self._transmit(command)

    def _transmit(self, command: Command, *, alone: bool = False) -> None:
        size = queue_frame(self._frames, self._connection, command)
        self._unsent = unsent = self._unsent + size
        if unsent > self._weigh_at:
            self._weigh()
        if self._handling or self._leaving:
            # it leaves with the others: at the end of the chunk that is handled, or
            # when the writer is through
            return
        if alone:
            self._flush()
        else:
            self._leaving = True
            self._housekeeper.flush_soon(self)

    def flush_queued(self) -> None:
        self._leaving = False
        self._flush()

    def _flush(self) -> None:
        """Send what is queued: what the socket takes now, then the rest by a task."""
        frames = self._frames
        if self._leaving or not frames:
            return
        if self._direct and self._unsent <= DIRECT_SIZE:
            sent = send_queued(self._stream, frames, self._unsent)
            self._last_write = self._housekeeper.now()
            self._unsent -= sent
            if not frames:
                if self._drained is not None:
                    self._wake_drained()
                return
        self._leaving = True
        writer, self._idle_writer = self._idle_writer, None
        if writer is not None:
            trio.lowlevel.reschedule(writer)
        elif self._nursery is not None:
            self._nursery.start_soon(self._write)

    def _weigh(self) -> None:
        """Tell the budget what this connection holds, if that has changed."""
        unsent, budget, high_water = self._unsent, self._budget, self._high_water
        self._brake = unsent > high_water or (self._aside and unsent > STEP)
        self._weigh_at = unsent + STEP if self._brake else min(unsent + STEP, high_water)
        if budget is None:
            return
        load = 0
        if not self.closed:
            load = unsent + self._half_sent + self._connection.held_bytes + self._open_bytes
            load += max(0, self.kept_bytes - ALWAYS_KEPT)
        if load != self._load:
            self._load = load
            budget.weigh(self, load)
        if budget.tight and budget.is_greedy(self):
            self._brake = True

    def keep(self, more: int) -> None:
        super().keep(more)
        if self.kept_bytes > ALWAYS_KEPT or self._load:
            self._weigh()

    @property
    def last_progress(self) -> float:
        return max(self.last_read, self._last_write)

    @property
    def overloaded(self) -> bool:
        budget = self._budget
        return self._unsent > UNSENT_MAX or (
            budget is not None and budget.scarce and budget.is_greedy(self)
        )

    def unsent_bytes(self) -> int:
        return self._unsent

    async def drained(self) -> None:
        await trio.lowlevel.checkpoint()
        await self._wait_unsent(self.limits.low_water)

    async def _wait_unsent(self, mark: int) -> None:
        while self._unsent > mark and not self._finished.is_set():
            if self._drained is None:
                self._drained = trio.Event()
            await self._drained.wait()

    def _wake_drained(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    @trio.lowlevel.enable_ki_protection
    async def _write(self) -> None:
        try:
            while True:
                if not self._frames:
                    self._leaving = False
                    if self._direct:
                        return
                    self._idle_writer = trio.lowlevel.current_task()
                    await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)
                data = take_frames(self._frames, self._unsent)
                sent = await self._write_some(data)
                if sent < len(data):
                    with memoryview(data) as view:
                        while sent < len(data):
                            sent += await self._write_some(view[sent:])
                del data
        except _BROKEN as error:
            self._connection.send_failed()
            self.abort(f"writing failed: {error or type(error).__name__}")

    async def _write_some(self, data: bytes | memoryview) -> int:
        self._write_began = began = trio.current_time()
        self.calls.wake_at(began + self.limits.stall_timeout)
        sent = await send_some(self._stream, data)
        self._write_began = math.inf
        self._last_write = began
        self._unsent -= sent
        self._half_sent = self._half_sent + sent if sent < len(data) else 0
        if self._load or self._unsent + STEP < self._weigh_at:
            self._weigh()
        self._wake_drained()
        return sent

    def _stop_waiting(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._idle_writer = None
        return trio.lowlevel.Abort.SUCCEEDED

    # Receiving

    _receive = staticmethod(receive_soon)

    @trio.lowlevel.enable_ki_protection
    async def _read(self) -> str:
        """Read until the stream ends; gives the reason."""
        stream, connection = self._stream, self._connection
        size, budget, pause_at, now = READ_SIZE, self._budget, 0, self._housekeeper.now
        # By the side lane: what newcomers send first may take long, and many may come.
        self._look_aside(heavy=True)
        try:
            while True:
                if budget is not None and budget.tight and self._load >= pause_at:
                    await budget.wait_for_room(self)
                    pause_at = self._load + READ_SIZE_MAX
                data = await (self._receive_aside() if self._aside else self._receive(stream, size))
                self.last_read = now()
                commands = connection.receive_commands(data if type(data) is bytes else bytes(data))
                if self._load:
                    # A frame that is whole now is no reason to refuse what it says.
                    self._weigh()
                if len(commands) == 1 and not self._aside:
                    self._handle_one(commands[0])
                    if self._brake:
                        await self._brake_now()
                else:
                    await self._handle(commands)
                if budget is not None and (self._load or connection.held_bytes or self._open_bytes):
                    self._weigh()
                if connection.error is not None:
                    raise connection.error
                if not data:
                    return "the peer closed it"
                size = min(size * 2, READ_SIZE_MAX) if len(data) == size else READ_SIZE
                # An idle connection keeps nothing of what it sent last.
                del data, commands
        except RemoteProtocolError as error:
            # The connection keeps the error. Its traceback has the frame that has the
            # connection: a circle of all that belongs to it, which only a collection
            # would end.
            error.__traceback__ = None
            logger.warning("closing the connection of %s: %s", self.remote_address, error)
            return str(error)
        except _BROKEN as error:
            return f"reading failed: {error or type(error).__name__}"

    async def _receive_aside(self) -> bytes | bytearray:
        """What comes next, once its answers are taken and it has the lane."""
        await self._wait_unsent(0)
        most = READ_SIZE if self._connection.held_bytes else ASIDE_SIZE
        return await self._housekeeper.lane.receive(self, self._stream, most)

    async def _brake_now(self) -> None:
        """Let the peer take its answers before more are made."""
        self._housekeeper.lane.leave(self)
        if self._aside or self._unsent > self._high_water:
            await self._wait_unsent(0 if self._aside else self.limits.low_water)
        if self._budget is not None:
            await self._budget.wait_for_room(self)
        self._weigh()

    def _handle_one(self, command: Command) -> None:
        """Handle the only command of a chunk: what `_handle` does, with fewer looks."""
        self._arrived, self.heard, self._refused = 1, True, False
        self._begin_turn()
        try:
            if command.flag & FLAG_RESPONSE:
                self.calls.answer_from((command,), 0)
            elif not self.closed:
                self._housekeeper.alone = self._turn is not None
                self._serve_alone(command, 0.0, 0)
        finally:
            self._end_turn()
            if self._refused or self._load > ALWAYS_FAIR or self._unsent > 0:
                self._look_aside(heavy=True)

    def _look_aside(self, *, heavy: bool) -> None:
        """Whether others come before its next chunk: it is dear or takes no answers."""
        heavy = heavy or self._refused or self._load > ALWAYS_FAIR or self._unsent > 0
        self._aside = heavy and self._takes_turns and turn_length(self._crowd()) < TURN

    async def _handle(self, commands: list[Command]) -> None:
        """Handle what one read brought, requests of one code in a row together."""
        lane, length, busy, waited = self._housekeeper.lane, TURN, 0.0, 0.0
        number, try_at, pause, look_at = 0, 0, 0, 4
        self._arrived = count = len(commands)
        self.heard |= count > 0
        turn_ends = math.inf
        if count >= look_at:
            length = turn_length(self._crowd())
            turn_ends = trio.current_time() + length
        self._refused = False
        self._begin_turn()
        try:
            while number < count:
                command = commands[number]
                if command.flag & FLAG_RESPONSE:
                    number = self.calls.answer_from(commands, number)
                    continue
                if self.closed:
                    return
                behind = count - number - 1
                found = None
                if behind and number >= try_at:
                    found = self._serve_several(commands, number, waited)
                if found is not None:
                    # Where many are special, looking at each of them would be dear.
                    pause = 0 if found else min(2 * pause + 1, PAUSE)
                    try_at = number + 1 + pause
                if not found:
                    self._serve_alone(command, waited, behind)
                number += found or 1
                if self._brake:
                    self._end_turn()
                    await self._brake_now()
                    if self._aside:
                        await lane.take_turns(self)
                    self._begin_turn()
                elif found and count - number >= ENOUGH <= len(self._frames) - self._turn_from:
                    self._end_turn()  # the peer need not wait for the rest of the chunk
                    self._begin_turn()
                if number < look_at:
                    continue
                look_at = number + 4
                if trio.current_time() > turn_ends:
                    # A chunk can hold hundreds of dear requests; others have a turn.
                    self._end_turn()
                    if length < TURN:
                        await lane.take_turns(self)
                    else:
                        await trio.lowlevel.checkpoint()
                    self._begin_turn()
                    now, busy = trio.current_time(), busy + length
                    turn_ends = now + length
                    # One turn that took long may have been a pause of the machine.
                    waited = now - self.last_read if busy > TURN else 0.0
        finally:
            self._end_turn()
            lane.leave(self)
            self._look_aside(heavy=busy > 0.0 or not count)  # or it sends frames by parts

    def _serve_alone(self, command: Command, waited: float, behind: int) -> None:
        """Serve one request and answer it, or refuse it."""
        budget, overdue = self._budget, self._overdue
        response = overdue(command, waited, behind) if waited and overdue is not None else None
        if response is None and budget is not None and budget.tight:
            response = budget.refusal(self, self._load, command)
        if response is None:
            response = self._serve(command)
        elif command.flag & FLAG_ONEWAY:
            return
        if response is not None and not self.closed:
            if response.code in REFUSED:
                self._refused = True
            self._answer(command, response)

    def _serve_several(self, commands: list[Command], number: int, waited: float) -> int | None:
        """Serve the first of several requests of one code, from index `number` on.

        Returns how many were served and answered, None where that cannot be; the next
        one is to be served alone.
        """
        budget, overdue = self._budget, self._overdue
        if (budget is not None and budget.tight) or (
            waited and overdue is not None and overdue(commands[number], waited, None) is not None
        ):
            return None
        if self._aside:
            commands, number = commands[number : number + ASIDE], 0
        answers = self._serve_together(commands, number)
        if answers is None:
            return None
        requests = islice(commands, number, None)
        more = queue_replies(self._frames, requests, answers, self._answer)
        self._unsent += more
        if self._unsent > self._weigh_at:
            self._weigh()
        return len(answers)

    def _begin_turn(self) -> None:
        self._handling, self._turn_from = True, len(self._frames)
        self._housekeeper.begin_chunk()
        if self._turn is not None:
            self._turn.begin()

    def _end_turn(self) -> None:
        """Let the answers leave; when what they promise could not be done, others."""
        if self._turn is not None and self._handling:
            try:
                self._turn.end()
            except RocketMQError as error:
                logger.error(
                    "%s is told of an error, because what was done for it did not last: %s",
                    self.remote_address,
                    error,
                )
                frames, first = self._frames, self._turn_from
                self._unsent += refuse_answers(frames, first, error, self._connection)
        self._handling = False
        self._flush()
        self._housekeeper.end_chunk()

    # The connection as a whole

    def _watch(self, now: float) -> float:
        limits = self.limits
        if now - self._write_began >= limits.stall_timeout:
            self.abort(f"it took none of {self._unsent} bytes within {limits.stall_timeout:g} s")
            return math.inf
        idle_at = max(self.last_read, self._last_write) + limits.idle_timeout
        if now >= idle_at and self._write_began == math.inf:
            self.abort(f"nothing was sent or received within {limits.idle_timeout:g} s")
            return math.inf
        if self.last_read > self.calls.unanswered_since:
            self.calls.unanswered_since = math.inf
        silent_at = self.calls.unanswered_since + limits.silence_timeout
        if now >= silent_at and not self._unsent:
            self.abort(
                f"requests are overdue and nothing was received within {limits.silence_timeout:g} s"
            )
            return math.inf
        return self._watched_until()

    def _watched_until(self) -> float:
        limits, last_read = self.limits, self.last_read
        if self._write_began != math.inf:
            return self._write_began + limits.stall_timeout
        idle_at = max(last_read, self._last_write) + limits.idle_timeout
        since = self.calls.unanswered_since
        return idle_at if last_read > since else min(idle_at, since + limits.silence_timeout)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the stream until it ends; then close it.

        Does not raise for what the peer or the network does.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery, self._scope = nursery, nursery.cancel_scope
                if self.closed:  # before it began
                    self._scope.cancel()
                self._housekeeper.keep(self)
                self.flush_queued()
                task_status.started()
                try:
                    reason = await self._read()
                    # A peer may end its side and still wait for answers.
                    with trio.move_on_after(self.limits.drain_timeout):
                        await self._wait_unsent(0)
                    self.abort(reason)
                finally:
                    # Before the nursery takes no more tasks.
                    self._begin_close("the task that serves it was cancelled")
                    self._nursery = None
        except BaseExceptionGroup as group:
            raise_unwrapped(group)
        finally:
            self._housekeeper.lane.leave(self)
            self._begin_close("the task that serves it was cancelled")
            self._finish()
            self._frames.clear()
            self._weigh()
            self._wake_drained()
            # An error of closing only means that it was not graceful.
            with suppress(*_BROKEN):
                async with bounded_cleanup(self.limits.drain_timeout):
                    await self._stream.aclose()

    async def aclose(self) -> None:
        try:
            if self._begin_close("closed by this side"):
                with trio.move_on_after(self.limits.drain_timeout):
                    await self._wait_unsent(0)
        finally:
            self._begin_close("closed by this side")
            self._scope.cancel()
        await self.wait_closed()
