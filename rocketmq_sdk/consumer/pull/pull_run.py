"""Pulls of one queue that leave together, as long as it has a backlog.

A pull costs both sides a turn of their loops, some system calls, and a change of
processes. Where the last answer was full and says that the queue has more, several
pulls are written at once. Those that follow leave before the messages of these are
decoded, so that client and broker work at the same time.

A run is as one larger pull. Only its first pull carries the offset to commit, and
nothing else is asked of the queue until all of its answers are here or given up. It
asks for messages that exist, so none of its pulls waits for one. The first answer that
is not as expected ends it: a pull alone, which comes next, says what is the matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.client.api.pull import pull_request
from rocketmq_sdk.client.together import Together, nothing
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.protocol.flags import PullSysFlag
from rocketmq_sdk.remoting.housekeeper import housekeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader
    from rocketmq_sdk.remoting.channel import PendingCall

MOST: Final = 4
"""Pulls of one queue that leave together."""
_FIELDS: Final = ("queueOffset", "sysFlag", "commitOffset")


class PullRun:
    """Pulls of one queue under way together; answers are given in their order."""

    __slots__ = ("_at", "_calls", "_end", "_stride", "address", "began")

    def __init__(
        self, address: str, calls: Sequence[PendingCall], first_offset: int, stride: int
    ) -> None:
        self.address = address
        self.began = trio.current_time()
        self._calls = calls
        self._at = 0
        self._stride = stride
        self._end = first_offset
        """Where the answers end that have been given."""

    @property
    def is_over(self) -> bool:
        """Whether all answers were given."""
        return self._at == len(self._calls)

    @property
    def end(self) -> int:
        """The offset behind the answers that were given."""
        return self._end

    async def answers(self) -> list[Command]:
        """The next answers: all that are here, at least one, in the order of offsets.

        Empty when the next one is not as expected, or has failed: the run has ended.
        """
        calls, at = self._calls, self._at
        if not calls[at].done:
            try:
                await calls[at].wait()
            except RocketMQError:
                return []  # who asks alone is told
        found: list[Command] = []
        while at < len(calls) and (answer := calls[at].response) is not None:
            if not self._is_full(answer):
                break
            found.append(answer)
            self._end += self._stride
            at += 1
        self._at = at
        return found

    def _is_full(self, answer: Command) -> bool:
        """Whether an answer has all messages that were asked for."""
        return (
            answer.code == ResponseCode.SUCCESS
            and answer.ext_fields.get("nextBeginOffset") == str(self._end + self._stride)
            and bool(answer.body)
        )

    def forget(self) -> None:
        """Give up what has no answer yet; does nothing when there is none."""
        for call in self._calls[self._at :]:
            call.forget()


class PullRuns:
    """Begins the runs of one queue whose pulls are as `header`, but for the offsets."""

    __slots__ = ("_client", "_header", "_timeout", "_together")

    def __init__(self, client: Client, header: PullMessageRequestHeader, timeout: float) -> None:
        self._client = client
        self._header = header
        self._timeout = timeout
        self._together: Together | None = None

    def changed(self) -> None:
        """The header is another one in what all pulls have in common."""
        self._together = None

    def begin(
        self, address: str, first_offset: int, number: int, commit_offset: int | None
    ) -> PullRun | None:
        """Send `number` pulls from an offset on, the first of them with a commit.

        None when they cannot leave: nothing was sent then.
        """
        header, stride = self._header, self._header.max_msg_nums
        flags = header.sys_flag & ~(PullSysFlag.SUSPEND | PullSysFlag.COMMIT_OFFSET)
        plain = str(flags)
        stop = first_offset + number * stride
        values = [(str(offset), plain, "0") for offset in range(first_offset, stop, stride)]
        if commit_offset is not None:
            flags |= PullSysFlag.COMMIT_OFFSET
            values[0] = (values[0][0], str(flags), str(commit_offset))
        calls = self._begin(address, values)
        return PullRun(address, calls, first_offset, stride) if calls else None

    def _begin(
        self,
        address: str,
        values: Sequence[tuple[str, ...]],
        on_done: Callable[[PendingCall], None] = nothing,
    ) -> Sequence[PendingCall]:
        if self._together is None:
            self._together = Together(self._client, pull_request(self._header), _FIELDS)
        return self._together.begin(address, values, self._timeout, on_done)

    async def alone(self, address: str, take: Callable[[Command], bool]) -> Command | None:
        """The answer to one pull as the header says, written as those of a run are.

        None where it has to be asked for otherwise: it cannot leave like that, or the
        broker wants another connection. `take` is offered the answer as soon as it is
        here; where it takes it, whoever it wakes is before the caller of this. Raises
        as `Channel.call` does.
        """
        header, pull = self._header, _Alone(take)
        values = str(header.queue_offset), str(int(header.sys_flag)), str(header.commit_offset)
        calls = self._begin(address, (values,), pull)
        if not calls:
            return None
        answer = await pull.wait(calls[0])
        return None if answer.code == ResponseCode.GO_AWAY else answer


class _Alone:
    """One pull under way, and the task that waits for it."""

    __slots__ = ("_call", "_take", "_task")

    def __init__(self, take: Callable[[Command], bool]) -> None:
        self._take = take
        self._call: PendingCall | None = None
        self._task: trio.lowlevel.Task | None = None

    def __call__(self, call: PendingCall) -> None:
        """The call is over. Runs in the reader of the channel."""
        taken = False
        try:
            if call.response is not None:
                taken = self._take(call.response)
        finally:
            if self._task is None:
                pass  # nobody waits any more, or not yet
            elif taken:
                housekeeper().go_on_later(self._task)
            else:
                trio.lowlevel.reschedule(self._task)

    async def wait(self, call: PendingCall) -> Command:
        self._call = call
        if call.done:
            await trio.lowlevel.checkpoint()
        else:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        if call.response is None:
            assert call.error is not None
            raise call.error
        return call.response

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        task, self._task = self._task, None
        assert task is not None
        assert self._call is not None
        self._call.forget()
        housekeeper().stay(task)
        return trio.lowlevel.Abort.SUCCEEDED
