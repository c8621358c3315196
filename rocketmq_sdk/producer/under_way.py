"""The messages of a producer that were handed over and are not finished."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.errors import ClosedError, SendTimeout, TooManyRequestsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.producer.handle import SendHandle

logger = logging.getLogger("rocketmq_sdk.producer")
REMEMBERED_FAILURES: Final = 1000


class UnderWay:
    """Handles under way, the room within the limits, and failures that nobody has seen.

    `finished` is called once for each handle that was added to `handles`, with its
    result or error set; then it calls each of `observers` in their order.
    """

    __slots__ = (
        "_failures",
        "_max_bytes",
        "_max_handles",
        "_room",
        "bytes",
        "handles",
        "observers",
    )

    def __init__(self, config: ProducerConfig) -> None:
        self.handles: set[SendHandle] = set()
        self.bytes = 0
        """Sum of the body sizes of `handles`; whoever adds a handle adds its size."""
        self.observers: list[Callable[[SendHandle], None]] = []
        self._max_handles = config.max_in_flight
        self._max_bytes = config.max_in_flight_bytes
        self._room = trio.lowlevel.ParkingLot()
        self._failures: deque[SendHandle] = deque(maxlen=REMEMBERED_FAILURES)

    # --- room

    def is_full(self, size: int) -> bool:
        """Whether a message of `size` bytes has to wait. One message always fits."""
        under_way = len(self.handles)
        return under_way >= self._max_handles or (
            under_way > 0 and self.bytes + size > self._max_bytes
        )

    def refusal(self) -> TooManyRequestsError:
        """The error of a message that cannot wait."""
        return TooManyRequestsError(
            f"{len(self.handles)} messages with {self.bytes} bytes are under way, the limit"
        )

    async def wait_for_room(
        self, size: int, seconds: float, check_open: Callable[[], object]
    ) -> float:
        """Wait until a message of `size` bytes may be handed over.

        Returns the seconds that are left of `seconds`. Raises `SendTimeout` when they
        have passed, and what `check_open` raises; it is called before each wait.
        """
        deadline = trio.current_time() + seconds
        with trio.move_on_after(seconds):
            while self.is_full(size):
                check_open()
                await self._room.park()
            return deadline - trio.current_time()
        raise SendTimeout(
            f"{len(self.handles)} messages were under way, the limit, for {seconds:g} s",
            outcome_unknown=False,
        )

    # --- the end of one message

    def finished(self, handle: SendHandle) -> None:
        """A message has its result or error."""
        self.handles.discard(handle)
        self.bytes -= len(handle.body)
        for observe in self.observers:
            observe(handle)
        if handle.error is not None and not handle.observed:
            self._failures.append(handle)
        if self._room:
            self._room.unpark()

    def abandoned(self, handle: SendHandle) -> None:
        """The only waiter of a message was cancelled."""
        if handle.call is not None:
            handle.unknown = True
            handle.call.forget()
        handle.error = ClosedError("the message was given up by its sender")
        handle.error.outcome_unknown = handle.unknown
        handle.settle()
        self.finished(handle)

    # --- all of them

    async def settled(self) -> None:
        """Wait until all messages that are under way now are finished."""
        await trio.lowlevel.checkpoint()
        for handle in list(self.handles):
            if not handle.done:
                await handle.settled()

    def raise_failure(self) -> None:
        """Raise the first failure that nobody has seen, once; the others are logged."""
        failed = [handle for handle in self._failures if not handle.observed]
        self._failures.clear()
        for handle in failed[1:]:
            logger.warning("%r has failed as well", handle)
        if failed:
            failed[0].outcome()

    def give_up(self, group: str) -> None:
        """End all messages because the producer `group` is closed.

        Logs how many failures nobody has seen.
        """
        for handle in list(self.handles):
            call = handle.call
            if call is not None:
                handle.unknown = True
                call.forget()
            handle.result = handle.stored
            if handle.result is None:
                handle.error = ClosedError(
                    "the producer was closed before the message was finished"
                )
                handle.error.outcome_unknown = handle.unknown
            handle.settle()
            self.finished(handle)
        lost = sum(1 for handle in self._failures if not handle.observed)
        if lost:
            logger.warning(
                "producer %r was closed; %d submitted messages have failed and nobody has awaited "
                "them",
                group,
                lost,
            )
        self._room.unpark_all()
