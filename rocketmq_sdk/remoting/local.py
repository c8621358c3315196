"""A channel inside one process: commands are handed over, no byte is made.

It keeps the contract of a stream. A request to the serving end runs its handler at once
in the caller's task, and an answer that the handler returns is there before `submit`
returns; `call` passes one checkpoint all the same. Everything else goes through a queue
with a task of its own: requests of the serving end, answers that come later, answers to
calls that were made inside another call's `on_done`. So no client code ever runs in the
middle of a handler, and a chain of calls cannot grow the stack.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import LocalProtocolError, RocketMQError, WrongRunError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, FLAG_RESPONSE
from rocketmq_sdk.protocol.frame import decode_frame, encode_frame
from rocketmq_sdk.protocol.text import valid_text
from rocketmq_sdk.remoting.channel import TOGETHER, ChannelLimits, PendingCall, logger
from rocketmq_sdk.remoting.command_channel import CommandChannel
from rocketmq_sdk.remoting.dispatch import error_response

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.remoting.channel import Channel, Handler, Reply, TemplateRequest, Turn

LOCAL_ADDRESS: Final = "127.0.0.1:0"
LOCAL_HOST: Final = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
TEXTS_SURELY_FIT: Final = 64 * 1024
PAUSE: Final = 31
"""The most times that requests go alone before they are tried together again."""
HEADER_ROOM: Final = 1024 * 1024
"""A bound on the size of a header with texts of that length.

It counts six bytes for an escaped character, and includes the names.
"""
_new = Command.__new__


def check_same_run(token: trio.lowlevel.TrioToken) -> None:
    """Raise `WrongRunError` unless the caller runs in the trio run of `token`."""
    try:
        if trio.lowlevel.current_trio_token() is token:
            return
    except RuntimeError:
        pass  # outside of trio: as wrong as another run
    raise WrongRunError(
        "this broker lives in another trio.run; give it a port (EmbeddedBroker(listen=...)) and "
        "connect to its address"
    )


class LocalEndpoint(CommandChannel):
    """One end of a link; `peer` is the other one."""

    in_process = True
    peer: LocalEndpoint

    def __init__(
        self,
        link: _Link,
        handler: Handler,
        limits: ChannelLimits,
        *,
        remote_address: str,
        local_address: str,
    ) -> None:
        super().__init__(
            handler,
            limits,
            remote_address=remote_address,
            local_address=local_address,
            remote_host_packed=LOCAL_HOST,
        )
        self._link = link
        self._scope = link.scope
        self._unsent = 0
        self._texts_surely_fit = min(TEXTS_SURELY_FIT, limits.max_frame // 16)
        self._body_surely_fits = max(0, limits.max_frame - HEADER_ROOM)

    @trio.lowlevel.enable_ki_protection
    def submit(
        self, command: Command, timeout: float, on_done: Callable[[PendingCall], None] | None = None
    ) -> PendingCall:
        self._check_open()
        calls = self.calls
        calls.admit()
        command.opaque = opaque = calls.next_opaque()
        self._transmit(command)
        return calls.add(opaque, timeout, on_done)

    @trio.lowlevel.enable_ki_protection
    def send_oneway(self, command: Command) -> None:
        self._check_open()
        command.flag |= FLAG_ONEWAY
        command.opaque = self.calls.next_opaque()
        self._transmit(command)

    def _check_open(self) -> None:
        check_same_run(self._link.token)
        if self.closed or self.peer.closed:
            raise self._refuse_closed()
        if self._unsent > self.limits.max_unsent_bytes:
            raise self._refuse_unsent()

    def _transmit(self, command: Command) -> None:
        copy = self._carry(command)
        self._unsent += len(copy.body)
        self._link.put(self.peer, copy)

    def _carry(self, command: Command) -> Command:
        """What the other end gets: a command of its own, checked as on a stream."""
        if self._link.through_codec:
            return decode_frame(encode_frame(command, max_frame=self.limits.max_frame)[4:])
        ascii_only = self._check_size(command)
        copy = _new(Command)
        copy.code = command.code
        copy.flag = command.flag
        copy.opaque = command.opaque
        copy.remark = command.remark
        copy.ext_fields = (
            command.ext_fields.copy()
            if ascii_only
            else {name: valid_text(text) for name, text in command.ext_fields.items()}
        )
        copy.body = command.body
        copy.language = command.language
        copy.version = command.version
        copy.encoding = command.encoding
        return copy

    def _check_size(self, command: Command) -> bool:
        """Refuse what a stream would refuse; whether all texts are ASCII.

        Measuring costs as much as encoding, so it is left out where no text can make
        the frame too long.
        """
        try:
            texts = "".join(command.ext_fields.values())
        except TypeError as error:
            raise LocalProtocolError(
                f"{command!r} has an ext field that is no text: {error}"
            ) from error
        if len(texts) > self._texts_surely_fit or len(command.body) > self._body_surely_fits:
            encode_frame(command, max_frame=self.limits.max_frame)
        return texts.isascii()

    def answer_now(self, request: Command, answer: Command) -> Command:
        """The answer as the other end gets it. Called by the other end."""
        answer.opaque = request.opaque
        answer.flag |= FLAG_RESPONSE
        answer.encoding = request.encoding
        try:
            return self._carry(answer)
        except LocalProtocolError as error:
            failure = error_response(error)
            failure.opaque = request.opaque
            failure.encoding = request.encoding
            return failure

    def _receive(self, command: Command) -> None:
        if command.flag & FLAG_RESPONSE:
            self.calls.answer(command)
        elif not self.closed:
            answer = self._serve(command)
            if answer is not None and not self.closed:
                self._answer(command, answer)

    def received(self, command: Command) -> None:
        """Take a command out of the queue. Called by the link."""
        self.peer._unsent -= len(command.body)
        self._receive(command)

    def link_ends(self) -> None:
        """The link takes nothing more. Called by the link."""
        self._begin_close(
            "the peer closed it" if self.peer.closed else "the task that serves it has ended"
        )

    def close_with_link(self) -> None:
        """The link has ended. Called by the link."""
        self.link_ends()
        self._finish()

    def unsent_bytes(self) -> int:
        return self._unsent

    async def drained(self) -> None:
        await trio.lowlevel.checkpoint()
        await self._link.wait_empty()

    async def aclose(self) -> None:
        try:
            if self._begin_close("closed by this side"):
                with trio.move_on_after(self.limits.drain_timeout):
                    await self._link.wait_empty()
        finally:
            self._begin_close("closed by this side")
            self._scope.cancel()
        await self.wait_closed()


class LocalChannel(LocalEndpoint):
    """The client's end.

    `submit` may run `on_done` before it returns; see the text of the module.
    """

    _delivering = False
    _pause = _skip = 0
    _ahead = TOGETHER
    """How many commands are made before it is known whether they go together.

    What is made in vain is made again: that must not be all that follows.
    """

    @trio.lowlevel.enable_ki_protection
    def exchange(self, requests: Sequence[TemplateRequest], start: int = 0) -> list[Command]:
        """The answers to the first of several requests that the server serves together.

        One request, and what the server wants to see alone, is for `submit`.
        """
        link = self._link
        if len(requests) < start + 2 or link.through_codec or self.peer._together is None:
            return []
        try:
            self._check_open()
        except RocketMQError:
            return []  # `submit` says so to each of them
        if self._skip:
            self._skip -= 1
            return []
        commands = self._commands(requests, start)
        answers = self._served(commands, requests, start) if commands else []
        if commands:
            # Where many are special, looking at each of them would be dear.
            self._skip = self._pause = 0 if answers else min(2 * self._pause + 1, PAUSE)
        return answers

    def _served(
        self, commands: list[Command], requests: Sequence[TemplateRequest], start: int
    ) -> list[Command]:
        """The answers to the first of several requests, which were served together.

        `commands` are those of the first ones from `start` on; more are added.
        """
        turn, error = self._link.turn, None
        replies: list[Reply] = []
        if turn is not None:
            turn.begin()
        try:
            while len(replies) < len(commands):
                more = self.peer._serve_together(commands, len(replies))
                if not more:
                    self._ahead = max(2, min(2 * len(replies), TOGETHER))
                    break
                replies += more
                if len(replies) == len(commands):
                    self._ahead = min(2 * self._ahead, TOGETHER)
                    commands += self._commands(requests, start + len(commands))
        finally:
            if turn is not None:
                try:
                    turn.end()
                except RocketMQError as raised:
                    error = raised
        if error is not None:
            logger.error(
                "%s is told of an error, because what was done for it did not last: %s",
                self.peer.remote_address,
                error,
            )
            return [error_response(error) for _reply in replies]
        return [
            reply if type(reply) is Command else _command_of(reply)  # type: ignore[arg-type]
            for reply in replies
        ]

    def _commands(self, requests: Sequence[TemplateRequest], start: int) -> list[Command]:
        """What the server gets of the next requests, as many as may be handed over."""
        together = self.peer._together
        assert together is not None
        commands: list[Command] = []
        for request in islice(requests, start, start + self._ahead):
            command = self._command(request)
            if command is None or (not commands and together(command.code) is None):
                break
            commands.append(command)
        return commands

    def _command(self, request: TemplateRequest) -> Command | None:
        """What the server gets of a request; None for one that may be too large."""
        template, values, body = request
        texts = "".join(values.values())
        if len(body) > self._body_surely_fits or len(texts) > self._texts_surely_fit:
            return None
        if not texts.isascii():
            values = {name: valid_text(value) for name, value in values.items()}
        return template.command(values, body)

    @trio.lowlevel.enable_ki_protection
    def submit(
        self, command: Command, timeout: float, on_done: Callable[[PendingCall], None] | None = None
    ) -> PendingCall:
        self._check_open()
        calls = self.calls
        calls.admit()
        command.opaque = opaque = calls.next_opaque()
        request = self._carry(command)
        peer = self.peer
        answer = peer._serve(request)
        if answer is None or peer.closed:
            call = calls.add(opaque, timeout, on_done)
        elif self._delivering:
            call = calls.add(opaque, timeout, on_done)
            peer._answer(request, answer)
        else:
            call = PendingCall(calls.slots, opaque, 0.0, timeout, on_done)
            response = peer.answer_now(request, answer)
            self._delivering = True
            try:
                call.complete(response)
            finally:
                self._delivering = False
        return call

    @trio.lowlevel.enable_ki_protection
    def submit_template(
        self, request: TemplateRequest, timeout: float, on_done: Callable[[PendingCall], None]
    ) -> PendingCall | Command:
        peer = self.peer
        if (
            self._delivering
            or self.closed
            or peer.closed
            or self._unsent > self.limits.max_unsent_bytes
            or self._link.through_codec
            or (command := self._command(request)) is None
        ):
            return super().submit_template(request, timeout, on_done)
        calls = self.calls
        calls.admit()
        command.opaque = opaque = calls.next_opaque()
        answer = peer._serve(command)
        if answer is None or peer.closed:
            return calls.add(opaque, timeout, on_done)
        try:
            if peer._check_size(answer):
                return answer
        except LocalProtocolError:
            pass  # `answer_now` makes the answer that says so
        return peer.answer_now(command, answer)

    @trio.lowlevel.enable_ki_protection
    def send_oneway(self, command: Command) -> None:
        self._check_open()
        command.flag |= FLAG_ONEWAY
        command.opaque = self.calls.next_opaque()
        self.peer._serve(self._carry(command))


def _command_of(reply: bytes | tuple[bytes, memoryview] | None) -> Command:
    if reply is None:
        return Command.response(ResponseCode.SYSTEM_ERROR, remark="it was served without an answer")
    return decode_frame(memoryview(b"".join(reply) if isinstance(reply, tuple) else reply)[4:])


class _Link:
    """What both ends share: the queue, its task, the end."""

    def __init__(self, *, through_codec: bool, turn: Turn | None) -> None:
        self.through_codec = through_codec
        self.turn = turn
        self.token = trio.lowlevel.current_trio_token()
        self.scope = trio.CancelScope()
        self._queue: deque[tuple[LocalEndpoint, Command]] = deque()
        self._task: trio.lowlevel.Task | None = None
        self._empty: trio.Event | None = None

    def put(self, target: LocalEndpoint, command: Command) -> None:
        self._queue.append((target, command))
        task = self._task
        if task is not None:
            self._task = None
            trio.lowlevel.reschedule(task)

    async def wait_empty(self) -> None:
        while self._queue:
            if self._empty is None:
                self._empty = trio.Event()
            await self._empty.wait()

    def _stop_waiting(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    @trio.lowlevel.enable_ki_protection
    async def _deliver(self) -> None:
        queue = self._queue
        while True:
            if not queue:
                self._wake_empty()
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)
            for _ in range(len(queue)):
                target, command = queue.popleft()
                target.received(command)
            await trio.lowlevel.checkpoint()

    def _wake_empty(self) -> None:
        if self._empty is not None:
            self._empty.set()
            self._empty = None

    async def run(
        self, client: LocalEndpoint, server: LocalEndpoint, task_status: trio.TaskStatus[None]
    ) -> None:
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    client._nursery = server._nursery = nursery
                    for end in (client, server):
                        end._housekeeper.keep(end)
                    task_status.started()
                    try:
                        await self._deliver()
                    finally:
                        # Before the nursery takes no more tasks: a request of this very
                        # moment must find the channel closed.
                        server.link_ends()
                        client.link_ends()
        finally:
            self._queue.clear()
            self._wake_empty()
            server.close_with_link()
            client.close_with_link()


async def open_local_channel(
    server_handler: Handler,
    client_handler: Handler,
    nursery: trio.Nursery,
    *,
    limits: ChannelLimits | None = None,
    server_limits: ChannelLimits | None = None,
    server_address: str = LOCAL_ADDRESS,
    client_address: str = LOCAL_ADDRESS,
    on_open: Callable[[Channel], None] | None = None,
    through_codec: bool = False,
    turn: Turn | None = None,
) -> LocalChannel:
    """The client's end of a new link to `server_handler`.

    Its `peer` is the serving end, which `on_open` is told of.

    The tasks of both ends live in `nursery`, the client's. `through_codec` makes bytes
    of each command and reads them again, for tests. `turn` brackets what the server
    serves together.
    """
    link = _Link(through_codec=through_codec, turn=turn)
    client = LocalChannel(
        link,
        client_handler,
        limits or ChannelLimits(),
        remote_address=server_address,
        local_address=client_address,
    )
    server = LocalEndpoint(
        link,
        server_handler,
        server_limits or limits or ChannelLimits(),
        remote_address=client_address,
        local_address=server_address,
    )
    client.peer, server.peer = server, client
    await nursery.start(link.run, client, server)
    if on_open is not None:
        on_open(server)
    return client
