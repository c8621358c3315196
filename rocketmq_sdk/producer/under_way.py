"""The messages of a producer that were handed over and are not finished.

Each is a ticket, a `SendHandle`. It is admitted here and ended here, once, whatever
happens to it: then its room is free, its waiters wake, and the observers are told.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, Self

import trio

from rocketmq_sdk.errors import ClosedError, SendTimeout, TooManyRequestsError
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.results import SendResult
    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.producer.handle import SendHandle

logger = logging.getLogger("rocketmq_sdk.producer")
REMEMBERED_FAILURES: Final = 1000


class Room:
    """Room for one message, kept for a sender that has waited for it.

    Use it as a context manager around the start of the message, which takes room of
    its own. `seconds` are left of the time that the sender had.
    """

    __slots__ = ("_owner", "granted", "seconds", "size", "taken")

    def __init__(self, owner: UnderWay, size: int) -> None:
        self._owner = owner
        self.size = size
        self.granted = trio.Event()
        self.taken = False
        self.seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._owner.leave(self)


class Failure(Protocol):
    """A message, or several in one request, that has failed."""

    @property
    def observed(self) -> bool:
        """Whether somebody has seen that."""
        ...

    @property
    def message(self) -> Message:
        """The message, or the first of them."""
        ...

    @property
    def message_count(self) -> int:
        """How many they are."""
        ...

    @property
    def error(self) -> BaseException | None:
        """Why."""
        ...

    def outcome(self) -> SendResult:
        """Raise the error; somebody has seen it then."""
        ...


class UnderWay:
    """Messages under way, room within the limits, and failures that nobody has seen.

    `observers` are called for each message that has ended, in their order, `sweeps`
    after them with all that have ended together; what one raises is logged.
    """

    __slots__ = (
        "_failures",
        "_max_bytes",
        "_max_count",
        "_waiting",
        "bytes",
        "check_run",
        "count",
        "handles",
        "next_id",
        "observers",
        "sweeps",
    )

    def __init__(
        self,
        config: ProducerConfig,
        check_run: Callable[[], None],
        next_id: Callable[[], str],
    ) -> None:
        self.check_run = check_run
        """Raises `WrongRunError` in another `trio.run` than the producer's."""
        self.next_id = next_id
        """Makes the unique id of a message."""
        self.handles: dict[SendHandle, None] = {}
        self.count = 0
        """Messages under way, and those that a sender is about to hand over."""
        self.bytes = 0
        """The bytes that they hold."""
        self.observers: list[Callable[[SendHandle], None]] = []
        self.sweeps: list[Callable[[Sequence[SendHandle]], None]] = []
        self._max_count = config.max_in_flight
        self._max_bytes = config.max_in_flight_bytes
        self._waiting: deque[Room] = deque()
        self._failures: deque[Failure] = deque(maxlen=REMEMBERED_FAILURES)

    # --- room

    def is_full(self, size: int) -> bool:
        """Whether a message of `size` bytes has to wait. One message always fits.

        Who comes while others wait has to wait behind them.
        """
        if self._waiting:
            return True
        count = self.count
        return count >= self._max_count or (count > 0 and self.bytes + size > self._max_bytes)

    def refusal(self) -> TooManyRequestsError:
        """The error of a message that cannot wait."""
        return TooManyRequestsError(
            f"{self.count} messages with {self.bytes} bytes are under way, the limit"
        )

    def check_room(self, size: int, ahead: int) -> None:
        """Raise `TooManyRequestsError` where `size` bytes would have to wait.

        `ahead` messages are about to be handed over.
        """
        if self.is_full(size) or self.count + ahead >= self._max_count:
            raise self.refusal()

    async def wait_for_room(
        self, size: int, seconds: float, check_open: Callable[[], object]
    ) -> Room:
        """Wait until a message of `size` bytes may be handed over, in turn.

        Raises `SendTimeout` when `seconds` have passed, and what `check_open` raises.
        """
        check_open()
        deadline = trio.current_time() + seconds
        room = Room(self, size)
        self._waiting.append(room)
        try:
            with trio.move_on_at(deadline):
                await room.granted.wait()
            check_open()
            if not room.taken:
                raise SendTimeout(
                    f"{self.count} messages were under way, the limit, for {seconds:g} s",
                    outcome_unknown=False,
                )
        except BaseException:
            self.leave(room)
            raise
        room.seconds = deadline - trio.current_time()
        return room

    def take_room(self, size: int) -> Room:
        """Room for a message that fits and takes a moment until it is handed over."""
        room = Room(self, size)
        room.taken = True
        self.count += 1
        self.bytes += size
        return room

    def leave(self, room: Room) -> None:
        """A sender has used its room, or does not want it any more."""
        if room.taken:
            room.taken = False
            self.count -= 1
            self.bytes -= room.size
        elif room in self._waiting:
            self._waiting.remove(room)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Give room to all that fit, the first first."""
        waiting = self._waiting
        while (
            waiting
            and self.count < self._max_count
            and (not self.count or self.bytes + waiting[0].size <= self._max_bytes)
        ):
            room = waiting.popleft()
            room.taken = True
            self.count += 1
            self.bytes += room.size
            room.granted.set()

    # --- one message

    def admit(self, handle: SendHandle) -> None:
        """A message is handed over.

        A batch is admitted when it begins to gather; whoever adds a message to it
        counts it here, and in the handle when the batch leaves.
        """
        self.handles[handle] = None
        self.count += handle.count
        self.bytes += handle.room

    def join(self, size: int) -> bool:
        """Count a message more of a batch that gathers; False where it has to wait."""
        count = self.count
        if self._waiting or count >= self._max_count or self.bytes + size > self._max_bytes:
            return False
        self.count = count + 1
        self.bytes += size
        return True

    def shrink(self, size: int) -> None:
        """A message of `size` bytes was taken back out of a batch that gathers."""
        self.count -= 1
        self.bytes -= size
        self._serve_waiting()

    def end(self, handle: SendHandle, result: SendResult | None, error: Exception | None) -> None:
        """A message has its result, else its error.

        Does nothing for one that has ended.
        """
        if handle.done:
            return
        handle.result = result
        handle.error = error if result is None else None
        self.handles.pop(handle, None)
        self.count -= handle.count
        self.bytes -= handle.room
        handle.settle()
        if result is None and not handle.observed:
            self._failures.append(handle)
        if self._waiting:
            self._serve_waiting()
        if self.observers:
            self._tell(handle)
        if self.sweeps:
            self._tell_all((handle,))

    def end_stored(self, ended: Sequence[SendHandle]) -> None:
        """Messages have their results: `end` for each that has not ended."""
        handles, count, size = self.handles, 0, 0
        told: list[SendHandle] = []
        for handle in ended:
            if handle.done:
                continue
            handle.error = None
            handles.pop(handle, None)
            count += handle.count
            size += handle.room
            try:
                handle.settle()
            except Exception:
                logger.exception("%r is finished, and one who waits for it has failed", handle)
            told.append(handle)
        self.count -= count
        self.bytes -= size
        if self._waiting:
            self._serve_waiting()
        try:
            if self.observers:
                _for_each(told, self._tell)
        finally:
            if self.sweeps and told:
                self._tell_all(told)

    def _tell_all(self, handles: Sequence[SendHandle]) -> None:
        for sweep in self.sweeps:
            try:
                sweep(handles)
            except Exception:
                logger.exception(
                    "%d messages from %r on are finished, and an observer of them has failed",
                    len(handles),
                    handles[0],
                )

    def _tell(self, handle: SendHandle) -> None:
        for observe in self.observers:
            try:
                observe(handle)
            except Exception:
                logger.exception("%r is finished, and an observer of it has failed", handle)

    def withdraw(self, handle: SendHandle, remark: str) -> None:
        """End a message although an attempt may be under way.

        An earlier attempt may have stored it; then that is its result.
        """
        call = handle.call
        if call is not None and not handle.done:
            handle.unknown = True
            call.forget()
        error = ClosedError(remark)
        error.outcome_unknown = handle.unknown
        self.end(handle, handle.stored, error)

    def break_off(self, handle: SendHandle, error: BaseException) -> None:
        """End a message over what is no `Exception`; who has handed it over gets it."""
        handle.observed = True
        self.withdraw(handle, f"the message was given up: {error!r}")

    def abandoned(self, handle: SendHandle) -> None:
        """The only waiter of a message was cancelled."""
        self.withdraw(handle, "the message was given up by its sender")

    # --- all of them

    async def settled(self) -> None:
        """Wait until all messages that are under way now are finished."""
        self.check_run()
        await trio.lowlevel.checkpoint()
        for handle in list(self.handles):
            if not handle.done:
                await handle.settled()

    def note_failure(self, failure: Failure) -> None:
        """Somebody has to see a failure."""
        if not failure.observed:
            self._failures.append(failure)

    def raise_failure(self) -> None:
        """Raise the first failure that nobody has seen, once; the others are logged."""
        failed = [handle for handle in self._failures if not handle.observed]
        self._failures.clear()
        for handle in failed[1:]:
            logger.warning("%r has failed as well", handle)
        if failed:
            failed[0].outcome()

    def give_up(self, group: str) -> None:
        """End all messages because the producer `group` is closed."""
        waiting, self._waiting = self._waiting, deque()
        for room in waiting:
            room.granted.set()
        remark = "the producer was closed before the message was finished"
        try:
            _for_each(list(self.handles), lambda handle: self.withdraw(handle, remark))
        finally:
            self._tell_of_lost(group)

    def _tell_of_lost(self, group: str) -> None:
        """Log how many failures nobody has seen, and the first."""
        lost = [failure for failure in self._failures if not failure.observed]
        if not lost:
            return
        count = sum([failure.message_count for failure in lost])
        at_least = "at least " if len(self._failures) == REMEMBERED_FAILURES else ""
        first = lost[0]
        logger.warning(
            "producer %r was closed; %s%d submitted %s failed and nobody has awaited %s; the "
            "%s to topic %r: %s",
            group,
            at_least,
            count,
            "message has" if count == 1 else "messages have",
            "it" if count == 1 else "them",
            "message" if count == 1 else "first one",
            first.message.topic,
            first.error or "nothing is known of it",
            extra=about(group=group, topic=first.message.topic),
        )


def _for_each(handles: Iterable[SendHandle], act: Callable[[SendHandle], None]) -> None:
    """Do it to all.

    Raises at the end what an observer has raised that is no `Exception`.
    """
    failure: BaseException | None = None
    for handle in handles:
        try:
            act(handle)
        except BaseException as error:  # noqa: BLE001
            failure = error
    if failure is not None:
        raise failure
