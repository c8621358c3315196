"""Handles of messages under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

import trio

from rocketmq_sdk.errors import ClosedError, ConfigurationError, WrongTypeError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.producer.queue_selector import UNSET, select_by_hash
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_id import joined_ids
from rocketmq_sdk.validators import check_callable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.results import SendResult
    from rocketmq_sdk.producer.queue_selector import QueueSelector
    from rocketmq_sdk.producer.targets import Target, TopicTargets
    from rocketmq_sdk.protocol.message_id import IdRange
    from rocketmq_sdk.remoting.channel import Channel, PendingCall, SocketWait


_SEND_PLAIN: Final = 310
_HALF: Final = SysFlag.TRANSACTION_PREPARED
_SEND_BATCH: Final = 320


class Aim(TypedDict, total=False):
    """How a caller chooses the queue."""

    queue: MessageQueue | None
    selector: QueueSelector | None
    key: object


def check_aim(queue: object, selector: object, key: object) -> None:
    """Raise `ConfigurationError` for what chooses no queue, or two."""
    if key is None:
        raise ConfigurationError(
            "key is None, which chooses no queue; leave key= out to send to any queue"
        )
    if queue is not None:
        if not isinstance(queue, MessageQueue):
            raise WrongTypeError(f"queue is {queue!r:.200}; give a MessageQueue")
        if selector is not None or key is not UNSET:
            raise ConfigurationError("queue= excludes selector= and key=")
    elif selector is not None:
        check_callable("selector", selector, "give a function of queues, message and key")


class TicketOwner(Protocol):
    """Who has admitted a message and will end it."""

    @property
    def count(self) -> int:
        """Messages under way."""
        ...

    @property
    def next_id(self) -> Callable[[], str]:
        """What makes the unique id of a message."""
        ...

    def abandoned(self, handle: SendHandle) -> None:
        """The only waiter of the message was cancelled."""
        ...

    def check_run(self) -> None:
        """Raise `WrongRunError` in another `trio.run` than the producer's."""
        ...


class SendHandle:
    """A message that was handed over with `Producer.submit`.

    Await it (or `wait()`) for its `SendResult`; any number of tasks may.

    `done` tells that it is finished, `message_id` is its unique id. Nothing is lost by
    not awaiting it: retries go on without a waiter.
    """

    # It is the ticket of a message: `UnderWay` admits it and ends it. It holds `room`
    # bytes for `count` messages until then. `deadline` is that of the message, `limit`
    # that of the present attempt once it waits for a connection (0.0 before).

    __slots__ = (
        "_id",
        "_owner",
        "_settled",
        "_waiters",
        "attempts",
        "body",
        "call",
        "channel",
        "code",
        "count",
        "deadline",
        "done",
        "error",
        "key",
        "last_broker",
        "limit",
        "message",
        "observed",
        "queue",
        "refreshed",
        "result",
        "room",
        "selector",
        "started",
        "stored",
        "sys_flag",
        "tail",
        "target",
        "topic",
        "unknown",
    )

    def __init__(
        self,
        topic: TopicTargets,
        code: int,
        message: Message,
        tail: str,
        body: bytes,
        sys_flag: int,
        started: float,
        deadline: float,
        attempts: int,
        owner: TicketOwner,
    ) -> None:
        self.topic = topic
        self.code = code
        self.message = message
        self.tail = tail
        """Its properties behind the unique id; those of a batch are whole."""
        self._id = ""
        self.body = body
        self.sys_flag = sys_flag
        self.deadline = deadline
        self.attempts = attempts
        self.room = len(body)
        self.count = 1
        self.limit = 0.0
        self._owner = owner
        self.queue: MessageQueue | None = None
        self.selector: QueueSelector | None = None
        self.key: object = None
        self.target: Target | None = None
        self.last_broker: str | None = None
        self.call: PendingCall | None = None
        self.channel: Channel | None = None
        self.stored: SendResult | None = None
        self.started = started
        self.unknown = False
        self.refreshed = False
        self.observed = False
        self.done = False
        self.result: SendResult | None = None
        self.error: Exception | None = None
        self._waiters: list[trio.lowlevel.Task | Callable[[], None]] | None = None
        self._settled: trio.Event | None = None

    # Most messages leave with others, which get their ids together then.
    @property
    def message_id(self) -> str:
        """The unique id of the message; that of a batch is all of them with commas."""
        return self._id or self.name(self._owner.next_id())

    def name(self, message_id: str) -> str:
        """Give the message its unique id; it has none yet. Returns it."""
        self._id = message_id
        return message_id

    @property
    def properties(self) -> str:
        """The property text of its request."""
        return self.tail if self.is_batch else f"UNIQ_KEY\x01{self.message_id}\x02{self.tail}"

    @property
    def is_plain(self) -> bool:
        """Whether its request differs from others in time, properties and body only.

        From those of other half messages if it is one: `is_half`.
        """
        message = self.message
        return (
            self.code == _SEND_PLAIN
            and self.sys_flag in (0, _HALF)
            and (message._is_plain or not message.flag)
        )

    @property
    def is_half(self) -> bool:
        """Whether it is a half message, of a transaction, that is not compressed."""
        return self.sys_flag == _HALF

    def aim(
        self,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
        attempts: int = 1,
    ) -> None:
        """Let the caller choose the queue; there is one attempt then.

        Raises `ConfigurationError`.
        """
        check_aim(queue, selector, key)
        if queue is not None:
            self.queue = self.topic.as_named(queue)
        else:
            self.selector = selector or select_by_hash
            self.key = None if key is UNSET else key
        self.attempts = attempts

    def __await__(self) -> Generator[Any, Any, SendResult]:
        return self.wait().__await__()

    async def wait(self) -> SendResult:
        """Wait for the result.

        Raises what `Producer.send` raises. Cancelling the waiter does not touch the
        message: it stays under way, and may be awaited again.
        """
        if self.done:
            await trio.lowlevel.checkpoint()
        else:
            self._owner.check_run()
            await self._park(self._leave)
        return self.outcome()

    async def wait_or_abandon(self, *, alone: bool = True) -> SendResult:
        """As `wait`, for the only waiter; cancelling it gives the message up.

        No further attempt is made then, and the message may be stored. `alone` is False
        where something else than messages is under way beside it.
        """
        if self.done:
            await trio.lowlevel.checkpoint()
            return self.outcome()
        wait = self.socket_wait() if alone else None
        if wait is not None:
            await self._wait_at(wait)
        if not self.done:
            await self._park(lambda _task: self._give_up())
        return self.outcome()

    def socket_wait(self) -> SocketWait | None:
        """How its only waiter may wait at the socket itself.

        None where it cannot, and beside other messages.
        """
        channel = self.channel
        if channel is None or self._owner.count > 1:
            return None
        return channel.socket_wait(self.room)

    async def _wait_at(self, wait: SocketWait) -> None:
        """Wait at the socket, as the only waiter, as long as that is possible."""
        self._waiters = [wait.wake]
        try:
            while await wait.turn() and not self.done:
                pass
        except BaseException:
            if not self.done:
                self._give_up()
            raise
        finally:
            wait.leave()
        if not self.done:
            self.do_not_call(wait.wake)

    async def settled(self) -> None:
        """Wait until the message is finished, however.

        Whoever waits here does not look at the outcome: a failure still counts as seen
        by nobody.
        """
        self._owner.check_run()
        if self._settled is None:
            self._settled = trio.Event()
        if self.done:
            self._settled.set()
        await self._settled.wait()

    def outcome(self) -> SendResult:
        """The result of a finished message, or its error raised."""
        self.observed = True
        if self.result is not None:
            return self.result
        raise self.error or ClosedError("the message is not finished")

    def call_when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the message is finished; it counts as a waiter.

        For doors, whose users wait outside of trio. The message must be under way.
        """
        if self._waiters is None:
            self._waiters = [callback]
        else:
            self._waiters.append(callback)

    def do_not_call(self, callback: Callable[[], None]) -> None:
        """Take a callback back."""
        if self._waiters is not None and callback in self._waiters:
            self._waiters.remove(callback)

    def mark(self, *, seen: bool) -> None:
        """Say whether somebody has seen, or will see, what becomes of the message."""
        self.observed = seen

    def abandon(self) -> None:
        """Give the message up, as when the only waiter of it is cancelled."""
        if not self.done:
            self._give_up()

    async def _park(self, leave: Callable[[trio.lowlevel.Task], None]) -> None:
        task = trio.lowlevel.current_task()
        if self._waiters is None:
            self._waiters = [task]
        else:
            self._waiters.append(task)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            leave(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _leave(self, task: trio.lowlevel.Task) -> None:
        if self._waiters is not None:
            self._waiters.remove(task)

    def _give_up(self) -> None:
        self._waiters = None
        self.observed = True
        self._owner.abandoned(self)

    def settle(self) -> None:
        """Wake the waiters; result or error is set. For `UnderWay` only."""
        self.done = True
        self.call = self.channel = None
        if self._settled is not None:
            self._settled.set()
        waiters = self._waiters
        if waiters:
            self._waiters = None
            self.observed = True
            for waiter in waiters:
                if callable(waiter):
                    waiter()
                else:
                    trio.lowlevel.reschedule(waiter)

    @property
    def last_failure(self) -> str:
        """How an error names the last failure of an attempt, if there was one."""
        return "" if self.error is None else f"; its last attempt: {self.error}"

    @property
    def message_count(self) -> int:
        """How many messages its request carries."""
        return self.message_id.count(",") + 1 if self.is_batch else 1

    @property
    def is_batch(self) -> bool:
        """Whether its request carries several messages."""
        return self.code == _SEND_BATCH

    def __repr__(self) -> str:
        state = "under way" if not self.done else repr(self.result or self.error)
        return f"<SendHandle {self.message_id} to {self.topic.topic!r}: {state}>"


class BatchHandle(SendHandle):
    """The handle of a batch that gathers, whose ids are written when asked for."""

    __slots__ = ("_ranges", "_withdrawn", "ids_so_far")
    _ranges: list[IdRange]
    _withdrawn: set[int]
    ids_so_far: Callable[[], str] | None
    """Asks the batch, until it leaves: it knows its handle, and a circle is garbage."""

    def left(self, ranges: list[IdRange], withdrawn: set[int]) -> None:
        """The batch leaves with these unique ids but those at some places."""
        self._ranges, self._withdrawn, self.ids_so_far = ranges, withdrawn, None

    @property
    def message_id(self) -> str:
        """The unique ids of its messages, with commas."""
        if self.ids_so_far is not None:
            return self.ids_so_far()
        return self._id or self.name(joined_ids(self._ranges, self._withdrawn))
