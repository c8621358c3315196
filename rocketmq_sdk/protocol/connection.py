"""The protocol engine of one connection: bytes in, commands out, no I/O.

The engine is symmetric: both sides send requests and responses. It watches framing
only; which response belongs to which request is the channel's matter. What it may do in
which state is the literal table below.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_sdk.protocol.buffer import ReceiveBuffer
from rocketmq_sdk.protocol.frame import (
    DEFAULT_MAX_FRAME,
    HEADER_LENGTH_MAX,
    decode_parts,
    encode_frame,
    encode_head,
)
from rocketmq_sdk.protocol.header_json import decode_json_header
from rocketmq_sdk.protocol.shapes.answers import AnswerShapes
from rocketmq_sdk.protocol.shapes.sends import SendShapes, is_send

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.command import Command

_WORDS = Struct(">II")
_WORD = Struct(">I")
MANY: Final = 8
"""Commands that came together, from which on more of their kind are expected."""


class ReceiveState(Enum):
    """Where the incoming bytes stand."""

    BETWEEN_FRAMES = "between frames"
    INSIDE_FRAME = "inside a frame"
    ENDED = "ended"
    FAILED = "failed"


class SendState(Enum):
    """Whether commands may still be sent."""

    OPEN = "open"
    FAILED = "failed"


class Incoming(Enum):
    """What received bytes can amount to."""

    WHOLE_FRAMES = "the bytes end with a frame"
    PART_OF_FRAME = "the bytes end inside a frame"
    END = "end of stream"
    BROKEN = "bytes that are no frame"


# State, what came in -> state. A combination that is not listed breaks the protocol:
# the state becomes FAILED and stays so.
RECEIVE_STATES: Final[dict[ReceiveState, dict[Incoming, ReceiveState]]] = {
    ReceiveState.BETWEEN_FRAMES: {
        Incoming.WHOLE_FRAMES: ReceiveState.BETWEEN_FRAMES,
        Incoming.PART_OF_FRAME: ReceiveState.INSIDE_FRAME,
        Incoming.END: ReceiveState.ENDED,
    },
    ReceiveState.INSIDE_FRAME: {
        Incoming.WHOLE_FRAMES: ReceiveState.BETWEEN_FRAMES,
        Incoming.PART_OF_FRAME: ReceiveState.INSIDE_FRAME,
    },
    ReceiveState.ENDED: {
        Incoming.END: ReceiveState.ENDED,
    },
    ReceiveState.FAILED: {},
}


class NeedData:
    """Nothing is complete: receive more bytes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NEED_DATA"


class EndOfStream:
    """The peer ended the stream between two frames."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "END_OF_STREAM"


NEED_DATA: Final = NeedData()
END_OF_STREAM: Final = EndOfStream()


class Connection:
    """Turns bytes into commands and commands into bytes.

    Two ways in: `receive_data` and `next_event`, one command at a time, or
    `receive_commands`, the fast way for readers that take all that is there. They may
    be mixed. Commands in front of broken bytes are always delivered; after that the
    engine raises the same `RemoteProtocolError` for ever. Sending stays possible after
    the peer broke the protocol or ended its side, until `send_failed` is called.
    """

    __slots__ = (
        "_buffer",
        "_error",
        "_max_frame",
        "_ready",
        "_receive_state",
        "_send_shapes",
        "_send_state",
        "_shapes",
    )

    def __init__(self, *, max_frame: int = DEFAULT_MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._buffer = ReceiveBuffer()
        self._ready: deque[Command] | None = None
        """Made when `receive_data` is first used.

        An empty one takes 760 bytes, and most connections never need it.
        """
        self._error: RemoteProtocolError | None = None
        self._receive_state = ReceiveState.BETWEEN_FRAMES
        self._send_state = SendState.OPEN
        self._shapes: AnswerShapes | None = None
        self._send_shapes: SendShapes | None = None
        """Made when many requests to send came together.

        One that comes alone is decoded.
        """

    def expect_alike(self) -> None:
        """Many answers of one kind will come: cut those that are as the one before.

        They are `CutAnswer`s then. It costs others a little, and changes nothing else.
        """
        if self._shapes is None:
            self._shapes = AnswerShapes()

    @property
    def receive_state(self) -> ReceiveState:
        """Where the incoming bytes stand."""
        return self._receive_state

    @property
    def send_state(self) -> SendState:
        """Whether commands may still be sent."""
        return self._send_state

    @property
    def error(self) -> RemoteProtocolError | None:
        """Why the incoming side failed.

        Known as soon as the broken bytes were received, before all commands in front of
        them were taken.
        """
        return self._error

    @property
    def held_bytes(self) -> int:
        """Memory that keeps a frame that is not complete."""
        return self._buffer.allocated

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the stream; `b""` is its end.

        What comes of them is told by `next_event`.
        """
        commands = self._take(data)
        if self._ready is None:
            self._ready = deque(commands)
        else:
            self._ready.extend(commands)

    def next_event(self) -> Command | NeedData | EndOfStream:
        """The next command, or why there is none.

        Raises `RemoteProtocolError` once all commands in front of the broken bytes were
        taken, then at each call.
        """
        if self._ready:
            return self._ready.popleft()
        if self._error is not None:
            raise self._error
        return END_OF_STREAM if self._receive_state is ReceiveState.ENDED else NEED_DATA

    def receive_commands(self, data: bytes) -> list[Command]:
        """Take bytes from the stream and return all commands that are complete now.

        `b""` is the end of the stream.

        Raises `RemoteProtocolError` when the bytes break the protocol and no command
        stands in front of the break. When some do they are returned, `error` is set at
        once, and the next call raises it.
        """
        commands = self._take(data)
        if self._ready:
            commands = [*self._ready, *commands]
            self._ready.clear()
        if self._error is not None and not commands:
            raise self._error
        return commands

    def send(self, command: Command) -> bytes:
        """The bytes that carry a command.

        Raises `LocalProtocolError` when the command cannot be written or the sending
        side has failed.
        """
        if self._send_state is SendState.FAILED:
            raise LocalProtocolError("nothing can be sent any more on this connection")
        return encode_frame(command, max_frame=self._max_frame)

    def send_head(self, command: Command) -> bytes:
        """The bytes that come before the body of a command, which has to follow them.

        Raises as `send`.
        """
        if self._send_state is SendState.FAILED:
            raise LocalProtocolError("nothing can be sent any more on this connection")
        return encode_head(command, max_frame=self._max_frame)

    def send_failed(self) -> None:
        """Tell the engine that bytes of a command were lost.

        Nothing may follow them.
        """
        self._send_state = SendState.FAILED

    def _move(self, incoming: Incoming) -> bool:
        following = RECEIVE_STATES[self._receive_state].get(incoming)
        if following is None:
            return False
        self._receive_state = following
        return True

    def _fail(self, error: RemoteProtocolError) -> None:
        self._receive_state = ReceiveState.FAILED
        self._error = error
        self._buffer.clear()

    def _take(self, data: bytes) -> list[Command]:
        if self._error is not None:
            return []
        if not data:
            if not self._move(Incoming.END):
                self._fail(
                    RemoteProtocolError(f"the stream ended {len(self._buffer)} bytes into a frame")
                )
            return []
        if self._receive_state is ReceiveState.ENDED:
            self._fail(RemoteProtocolError("bytes came after the end of the stream"))
            return []
        commands: list[Command] = []
        try:
            end = (self._split_all if self._buffer.kept else self._split)(data, 0, commands)
        except RemoteProtocolError as error:
            self._fail(error)
            return commands
        if len(commands) >= MANY and self._send_shapes is None and is_send(commands[-1]):
            self._send_shapes = SendShapes()
        # Most chunks leave the state as it was; the table is asked only when it
        # changes.
        if end == len(data) and not self._buffer.kept:
            if self._receive_state is not ReceiveState.BETWEEN_FRAMES:
                self._move(Incoming.WHOLE_FRAMES)
        elif self._receive_state is not ReceiveState.INSIDE_FRAME:
            self._move(Incoming.PART_OF_FRAME)
        return commands

    def _split_all(self, data: bytes, start: int, commands: list[Command]) -> int:
        """`_split` behind the frame whose beginning is kept, which comes first."""
        buffer = self._buffer
        while buffer.kept:  # first the words that tell its length, then the rest
            complete, start = buffer.complete(data, start)
            if complete is None:
                return start
            self._split(complete, 0, commands)
        return self._split(data, start, commands)

    # The hot path: one pass with an offset, nothing is sliced but headers and bodies.
    def _split(self, data: bytes, offset: int, commands: list[Command]) -> int:
        unpack = _WORDS.unpack_from
        longest, shapes, sends = self._max_frame - 4, self._shapes, self._send_shapes
        end, needed = len(data), 4
        while end - offset >= 8:
            total, word = unpack(data, offset)
            stop = offset + 4 + total
            if not 4 <= total <= longest:
                raise self._bad_length(total)
            if stop > end:
                needed = total + 4
                break
            body_at = offset + 8 + (word & HEADER_LENGTH_MAX)
            if body_at > stop:
                raise RemoteProtocolError(
                    f"a frame of {total} bytes announces a header of {word & HEADER_LENGTH_MAX}"
                )
            if shapes is not None and body_at == stop and word <= HEADER_LENGTH_MAX:
                commands.append(
                    shapes.cut(data, offset + 8, stop) or shapes.learn(data[offset + 8 : stop])
                )
            elif word > HEADER_LENGTH_MAX:
                commands.append(
                    decode_parts(word >> 24, data[offset + 8 : body_at], data[body_at:stop])
                )
            elif sends is not None and (offset or stop != end):
                offset = sends.take(data, offset, longest, commands)
                continue
            else:
                commands.append(decode_json_header(data[offset + 8 : body_at], data[body_at:stop]))
            offset = stop
        else:
            if end - offset >= 4:
                (total,) = _WORD.unpack_from(data, offset)
                if not 4 <= total <= longest:
                    raise self._bad_length(total)
                needed = 8
        if offset != end:
            self._buffer.keep(memoryview(data)[offset:] if offset else data, needed)
        return offset

    def _bad_length(self, total: int) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"a frame announces {total} bytes; from 4 to {self._max_frame - 4} are allowed"
        )
