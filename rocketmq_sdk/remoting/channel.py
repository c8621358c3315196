"""The interface of a connection that speaks commands.

Bytes over a stream may carry them, or hand-over inside a process.

Both sides of a connection are channels, and both may ask and answer
(`NettyRemotingAbstract` of Apache RocketMQ 5.4.0). A request waits in a slot keyed by
its opaque; the caller that waits for it owns nothing of the connection, so cancelling a
caller only forgets the slot.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeAlias

import attrs
import trio

from rocketmq_sdk.errors import ClosedError
from rocketmq_sdk.protocol.frame_template import Form

if TYPE_CHECKING:
    from rocketmq_sdk.errors import RocketMQError
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.protocol.frame_template import CommandTemplate

logger = logging.getLogger("rocketmq_sdk.remoting")

Continuation = Callable[[], "Awaitable[Command | None]"]
"""An async function that answers a request, run as a task of the channel.

It returns the answer, or None when it comes later by `Channel.respond`.
"""

Handler = Callable[["Channel", "Command"], "Command | Continuation | None"]
"""What serves requests.

Synchronous: returns the answer, or a `Continuation`, or None (no answer now;
`Channel.respond` gives it later).

Each two-way request must be answered in the end: until then it counts against
`ChannelLimits.max_requests_in_flight`. A handler that raises is logged and answered
with an error; it never ends the connection.
"""

Reply: TypeAlias = "bytes | tuple[bytes, memoryview] | Command | None"
"""An answer to a request that was served with others.

The bytes of the frame, or what comes before its body and the body; a command; or None
for a one-way request, and for one that `Channel.respond` answers later (not
`in_process`).
"""

Together = Callable[["Channel", "Sequence[Command]"], "Sequence[Reply]"]
"""What serves several requests of one code that arrived together, for one connection.

Synchronous. It gets what arrived from the first of them on. It serves as many as it
can, as if one by one, up to a response or a request of another code. It returns an
answer for each of them. The next one is served by its `Handler`, which also serves
requests that come alone. To serve none of them must cost little.
"""

TOGETHER: Final = 64
"""The most requests that are served together, without a look at the time."""

FormRequest = tuple[Form, tuple[str, ...], bytes, float, float, object]
"""A request of `Channel.submit_forms`.

Form, values, body, the moment from which on its timeout counts, the timeout, and the
tag of its call. The form gives the JSON header by `form % (*values, opaque)`
(`FrameTemplate`).
"""

TemplateRequest = tuple["CommandTemplate", dict[str, str], bytes]
"""A request of `Channel.exchange`: template, values and body."""

TURN: Final = 0.01
"""Seconds to handle commands of one chunk before other tasks have a turn."""
_LEAST_TURN: Final = 0.0005
_ALL_TURNS: Final = 0.5
UNSENT_MAX: Final = 8 * 1024 * 1024
"""Unsent answer bytes above which a peer is overloaded."""
_channel_ids: Final = count(1)


def turn_length(streams: int) -> float:
    """`TURN` for few streams, less beside hundreds.

    A chunk of dear requests would hold up all of them.
    """
    return min(TURN, max(_LEAST_TURN, _ALL_TURNS / streams))


class Turn(Protocol):
    """Brackets around the serving of requests that arrived together.

    Between `begin` and `end` nothing else runs and no answer leaves.
    """

    def begin(self) -> None:
        """Requests are about to be served."""
        ...

    def end(self) -> None:
        """They are served; their answers leave when this returns.

        Raises `RocketMQError` to have all of them replaced by this error.
        """
        ...


class Overdue(Protocol):
    """Rejects requests that waited too long behind others of their chunk.

    They wait while other connections have their turns.
    """

    def __call__(self, request: Command, waited: float, behind: int | None, /) -> Command | None:
        """The answer to a request that waited for too many seconds, None to serve it.

        `behind` requests wait behind it; None asks what would be, and refuses nothing.
        """
        ...


@attrs.frozen(kw_only=True)
class ChannelLimits:
    """How much a channel takes before it refuses.

    Sizes in bytes, times in seconds; `math.inf` switches a time limit off.
    """

    max_frame: int = 16 * 1024 * 1024
    """Longest frame in either direction, length word included."""
    max_in_flight: int = 65535
    """Own requests without an answer; one more raises `TooManyRequestsError`."""
    max_requests_in_flight: int = 10000
    """Requests of the peer that are held or run as continuations.

    One more is answered with SYSTEM_BUSY and `[OVERLOAD]`.
    """
    max_unsent_bytes: int = 64 * 1024 * 1024
    """Bytes not written yet above which own requests raise `TooManyRequestsError`.

    Answers are not refused.
    """
    high_water: int = 8 * 1024 * 1024
    """Unsent bytes above which a server stops reading the connection."""
    low_water: int = 1024 * 1024
    """Unsent bytes below which it reads on and `Channel.drained` returns."""
    stall_timeout: float = 60.0
    """A peer that takes no byte for so many seconds while some wait is cut off."""
    idle_timeout: float = 120.0
    """A connection without any byte in either direction for so long is closed."""
    silence_timeout: float = 30.0
    """Seconds without any byte after which an overdue request closes the connection."""
    drain_timeout: float = 1.0
    """How long closing waits for unsent bytes to leave."""


class PendingCall:
    """One own request under way. Made by `Channel.submit`.

    `done` tells that `response` or `error` is set. `tag` is free for the caller. The
    object is for one waiter.
    """

    __slots__ = (
        "_on_done",
        "_slots",
        "_task",
        "deadline",
        "done",
        "error",
        "opaque",
        "response",
        "tag",
        "timeout",
    )

    def __init__(
        self,
        slots: dict[int, PendingCall],
        opaque: int,
        deadline: float,
        timeout: float,
        on_done: Callable[[PendingCall], None] | None,
    ) -> None:
        self._slots = slots
        self._on_done = on_done
        self._task: trio.lowlevel.Task | None = None
        self.opaque = opaque
        self.deadline = deadline
        self.timeout = timeout
        self.done = False
        self.response: Command | None = None
        self.error: RocketMQError | None = None
        self.tag: object = None

    async def wait(self) -> Command:
        """Wait for the answer, whatever its code.

        Raises `ConnectError` when the connection ended, `RequestTimeoutError` after the
        deadline, `ClosedError` when `forget` was called. Cancelling the waiter forgets
        the slot: the answer is dropped when it comes, the connection is not disturbed,
        and the request may have taken effect.
        """
        if self.done:
            await trio.lowlevel.checkpoint()
        else:
            if self._task is not None:
                raise trio.BusyResourceError("another task waits for this call already")
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort_wait)
        if self.response is None:
            assert self.error is not None
            raise self.error
        return self.response

    def forget(self) -> None:
        """Give the call up. Does nothing when it is done.

        Its answer is dropped when it comes, `on_done` is not run, a waiter gets
        `ClosedError`.
        """
        if not self.done:
            self._on_done = None
            self._slots.pop(self.opaque, None)
            self.fail(ClosedError("the call was given up by its caller"))

    def complete(self, response: Command) -> None:
        """Set the answer. For channels only."""
        self.response = response
        self._finish()

    def fail(self, error: RocketMQError) -> None:
        """End without an answer. For channels only."""
        self.error = error
        self._finish()

    def _finish(self) -> None:
        self.done = True
        task = self._task
        if task is not None:
            self._task = None
            trio.lowlevel.reschedule(task)
        on_done = self._on_done
        if on_done is not None:
            # it often leads back to this object; without the circle neither waits for
            # the garbage collector
            self._on_done = None
            try:
                on_done(self)
            except Exception:
                logger.exception("a callback of a finished call failed; the connection goes on")

    def _abort_wait(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        self.forget()
        return trio.lowlevel.Abort.SUCCEEDED


class Sweep(ABC):
    """An `on_done` for many calls: those whose answers come together end in one go."""

    @abstractmethod
    def __call__(self, call: PendingCall, /) -> None:
        """One call is over."""

    @abstractmethod
    def together(self, calls: Sequence[PendingCall], /) -> None:
        """Several calls have their answers."""


class SweptCall(PendingCall):
    """A call whose end is told to a `Sweep`."""

    __slots__ = ("sweep",)

    def __init__(
        self,
        slots: dict[int, PendingCall],
        opaque: int,
        deadline: float,
        timeout: float,
        sweep: Sweep,
    ) -> None:
        # Its base's fields without another call.
        self._slots = slots
        self._on_done = self.sweep = sweep
        self._task = self.response = self.error = None
        self.opaque = opaque
        self.deadline = deadline
        self.timeout = timeout
        self.done = False
        self.tag = None

    def answered(self, response: Command) -> None:
        """Set the answer; who calls this tells the sweep. For channels only."""
        self.response = response
        self._on_done = None
        self._finish()


@attrs.frozen(kw_only=True)
class ChannelStatistics:
    """A channel's numbers at one moment."""

    in_flight: int
    """Own requests without an answer."""
    requests_in_flight: int
    """Requests of the peer that are held or run as continuations."""
    unsent_bytes: int
    late_answers: int
    """Answers that no slot waited for any more."""


class SocketWait(ABC):
    """How one caller waits at the socket itself; see `Channel.socket_wait`.

    A task of trio awaits `turn`, maybe several times, and leaves then. Who gives trio
    its turns, and is no task of it, may `hold` the socket; then he has a `look` at it
    after each turn, until that tells something, releases it and leaves.
    """

    __slots__ = ()

    @abstractmethod
    async def turn(self) -> bool:
        """Wait until something comes, and handle it. For one task.

        False when it was woken, or when what came is not for a caller: then it is to
        wait in another way.
        """

    @abstractmethod
    def wake(self) -> None:
        """Wake the task that waits, if there is one that was not woken."""

    @abstractmethod
    def hold(self) -> bool:
        """Begin to look for something, if that is worth it; whether it is.

        The reader stands aside from now on. `release` has to follow.
        """

    @abstractmethod
    def look(self, turns: float) -> bool | None:
        """Handle what has come.

        None when nothing has come yet, and another look is worth it; False when the
        caller is to wait in another way. `turns` is what has gone by since the last
        look, as the number of turns of trio's loop that cost as much.
        """

    @abstractmethod
    def release(self) -> None:
        """The caller does not look any more; another one may.

        The reader stands aside until somebody leaves.
        """

    @abstractmethod
    def leave(self) -> None:
        """No caller waits any more: the reader goes on. Call it in the run."""


class Channel(ABC):
    """One connection that speaks commands. Not for use from several threads.

    A command that is handed to a channel belongs to the channel: its opaque (for
    answers also flag and encoding) is overwritten; it may be handed over again, for a
    resend, once the first call is over. Received commands belong to the receiver and
    are shared with nobody.
    """

    __slots__ = (
        "__weakref__",
        "answered_late",
        "attributes",
        "channel_id",
        "close_reason",
        "closed",
        "kept_bytes",
        "local_address",
        "on_close",
        "remote_address",
        "remote_host_packed",
    )

    remote_address: str
    """`host:port` of the peer."""
    local_address: str
    """`host:port` of this side."""
    remote_host_packed: bytes
    """IP and port of the peer as records hold them: 4 or 16 bytes, then the port in 4.

    127.0.0.1 where the peer has no IP.
    """
    closed: bool
    """Whether closing has begun; nothing can be sent any more."""
    close_reason: str | None
    """Why the channel is closed, once it is."""
    in_process: ClassVar[bool] = False
    """Whether commands are handed over as they are, so that no frame is of use."""
    kept_bytes: int
    """What the owner keeps of its requests as long as it is open; see `keep`."""
    on_close: list[Callable[[Channel], None]]
    """Callbacks for when the channel is closed and all its calls have failed.

    Each is called once, synchronously.
    """

    def __init__(
        self, *, remote_address: str, local_address: str, remote_host_packed: bytes
    ) -> None:
        self.channel_id: int = next(_channel_ids)
        self.attributes: dict[str, object] = {}
        self.remote_address = remote_address
        self.local_address = local_address
        self.remote_host_packed = remote_host_packed
        self.closed = False
        self.close_reason = None
        self.kept_bytes = 0
        self.on_close = []
        self.answered_late: Callable[[Channel, Command, Command], None] | None = None
        """Told of each answer that `respond` gives, with its request; for one owner."""

    async def call(self, command: Command, timeout: float) -> Command:
        """Send a request and wait for its answer, whatever its code.

        Raises `ConnectError` when the connection ends first, `RequestTimeoutError`
        after `timeout` seconds (both with `outcome_unknown`), `TooManyRequestsError`
        over a limit, `LocalProtocolError` when the command cannot be written (nothing
        was sent). Cancellation forgets the slot.
        """
        return await self.submit(command, timeout).wait()

    def keep(self, more: int) -> None:
        """The owner keeps so many more bytes (or fewer) of what the peer said.

        Where memory has a budget, much of it counts as what a connection holds, so that
        the connection may be closed.
        """
        self.kept_bytes += more

    @abstractmethod
    def submit(
        self, command: Command, timeout: float, on_done: Callable[[PendingCall], None] | None = None
    ) -> PendingCall:
        """Send a request without waiting: no task, never blocks.

        `on_done` runs synchronously when the answer is there, the deadline has passed
        or the connection has ended; in a process-local channel that may be before
        `submit` returns. What it raises is logged. Raises as `call` does when nothing
        was sent.
        """

    def submit_forms(
        self,
        requests: Iterable[FormRequest],  # noqa: ARG002 - for channels that write bytes
        on_done: Callable[[PendingCall], None],  # noqa: ARG002
    ) -> Sequence[PendingCall]:
        """`submit` for several requests whose frames are written from forms.

        With a `Sweep` those whose answers come together end in one go.

        They leave with one write. Returns their calls: as many as could be sent, from
        the first on. The next one is for `submit`, which says what keeps it back.
        """
        return ()

    def exchange(
        self,
        requests: Sequence[TemplateRequest],  # noqa: ARG002 - for channels in the process
        start: int = 0,  # noqa: ARG002
    ) -> Sequence[Command]:
        """Requests of one code that are answered before this returns.

        That can be `in_process` only. Returns the answers to the first of the requests,
        from index `start` on, as many as the peer serves together. The next one is for
        `submit`.
        """
        return ()

    def submit_template(
        self,
        request: TemplateRequest,
        timeout: float,
        on_done: Callable[[PendingCall], None],
    ) -> PendingCall | Command:
        """`submit` for a request that is made here, so that nobody else has it.

        For callers in the run of the channel. Returns the answer itself where that is
        there at once; `on_done` does not run then, and the answer is to be read, not
        kept or changed.
        """
        template, values, body = request
        return self.submit(template.command(values, body), timeout, on_done)

    def socket_wait(self, size: int) -> SocketWait | None:  # noqa: ARG002 - for streams
        """A way to wait for the answer to a request of `size` bytes, a turn shorter.

        For a caller that is alone. None where there is none, or somebody else has it.
        """
        return None

    @abstractmethod
    def send_oneway(self, command: Command) -> None:
        """Queue a request that nobody answers.

        Raises `ConnectError` when closed, `TooManyRequestsError` over the limit of
        unsent bytes.
        """

    @abstractmethod
    def respond(self, request: Command, response: Command) -> None:
        """Answer a request that a handler has left open.

        Opaque, flag and encoding are taken from the request.

        Dropped silently for one-way requests, closed channels and requests that were
        answered already.
        """

    @abstractmethod
    def unsent_bytes(self) -> int:
        """Bytes that are queued and not written yet."""

    @property
    def last_progress(self) -> float:
        """When the last byte was received or sent, in seconds of trio's clock."""
        return math.inf

    @property
    def overloaded(self) -> bool:
        """Whether the peer takes answers too slowly to be given large ones now."""
        return self.unsent_bytes() > UNSENT_MAX

    @abstractmethod
    async def drained(self) -> None:
        """Wait until few bytes are unsent, or the channel is closed.

        Few means fewer than `ChannelLimits.low_water`.
        """

    @abstractmethod
    def statistics(self) -> ChannelStatistics:
        """The channel's numbers at this moment."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Close without sending what is queued.

        Synchronous; slots fail and `on_close` runs soon after.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Send what is queued within `drain_timeout`, close, and wait until it is done.

        When cancelled the channel is closed all the same.
        """

    @abstractmethod
    async def wait_closed(self) -> None:
        """Wait until the channel is closed and `on_close` has run."""

    def __repr__(self) -> str:
        state = f"closed: {self.close_reason}" if self.closed else "open"
        return (
            f"<{type(self).__name__} {self.channel_id} {self.local_address} -> "
            f"{self.remote_address} {state}>"
        )
