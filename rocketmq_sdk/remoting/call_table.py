"""Requests of one channel that wait for an answer.

They have slots by opaque, and one heap of deadlines.

`NettyRemotingAbstract.responseTable` of Apache RocketMQ 5.4.0, without its scan each
second: the housekeeper sweeps at the next moment at which something is due. Entries of
answered calls stay in the heap until they are most of it, then it is rebuilt; so a call
pays for a push and hardly for a pop.
"""

from __future__ import annotations

import heapq
import logging
import math
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.errors import RequestTimeoutError, TooManyRequestsError
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.remoting.channel import PendingCall, SweptCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.errors import RocketMQError
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Sweep

logger = logging.getLogger("rocketmq_sdk.remoting")
OPAQUE_MIN: Final = -0x80000000
OPAQUE_MAX: Final = 0x7FFFFFFF


class CallTable:
    """Slots of one side of a channel."""

    __slots__ = (
        "_address",
        "_heap",
        "_look_at",
        "_number",
        "_opaque",
        "due",
        "late_answers",
        "limit",
        "slots",
        "unanswered_since",
    )

    def __init__(
        self, limit: int, address: str, number: int, look_at: Callable[[int, float], None]
    ) -> None:
        self.slots: dict[int, PendingCall] = {}
        self.late_answers = 0
        self.unanswered_since = math.inf
        """When the first overdue call was made; set back when the peer is heard from.
        """
        self.limit = limit
        self._address = address
        self._opaque = 0
        self._heap: list[tuple[float, int, int]] = []
        # Deadlines, and the opaques from one to another one that they are the first of.
        self._number = number
        self._look_at = look_at
        self.due = -math.inf
        """The next moment at which the channel is swept; -inf while that goes on."""

    def admit(self) -> None:
        """Raise `TooManyRequestsError` when no more calls are allowed."""
        if len(self.slots) >= self.limit:
            raise TooManyRequestsError(
                f"{len(self.slots)} requests to {self._address} wait for answers, the limit"
            )

    @property
    def has_room(self) -> bool:
        """Whether one more call is allowed."""
        return len(self.slots) < self.limit

    def next_opaque(self) -> int:
        """A number that no request in flight has."""
        slots = self.slots
        opaque = self._opaque
        while opaque in slots:
            opaque = OPAQUE_MIN if opaque == OPAQUE_MAX else opaque + 1
        self._opaque = OPAQUE_MIN if opaque == OPAQUE_MAX else opaque + 1
        return opaque

    def add(
        self, opaque: int, timeout: float, on_done: Callable[[PendingCall], None] | None
    ) -> PendingCall:
        """Wait for the answer with this opaque, for `timeout` seconds from now."""
        return self.add_at(trio.current_time(), opaque, timeout, on_done)

    def add_at(
        self,
        since: float,
        opaque: int,
        timeout: float,
        on_done: Callable[[PendingCall], None] | None,
    ) -> PendingCall:
        """`add`, with the moment from which on the timeout counts."""
        slots = self.slots
        deadline = since + timeout
        call = slots[opaque] = PendingCall(slots, opaque, deadline, timeout, on_done)
        if deadline != math.inf:
            if self._is_stale():
                self._rebuild()
            else:
                heapq.heappush(self._heap, (deadline, opaque, opaque))
            if deadline < self.due:
                self.wake_at(deadline)
        return call

    def _is_stale(self) -> bool:
        """Whether most of the heap has been answered."""
        return len(self._heap) > 2 * len(self.slots) + 64

    def _rebuild(self) -> None:
        """Leave out of the heap what has been answered."""
        self._heap[:] = [
            (waiting.deadline, number, number)
            for number, waiting in self.slots.items()
            if waiting.deadline != math.inf
        ]
        heapq.heapify(self._heap)

    def watch_run(self, first: int, last: int, earliest: float) -> None:
        """Look after the deadlines of calls that were put into slots together.

        They have the opaques from `first` to `last`; others may stand between them.
        """
        if first > last or self._is_stale():  # the first: the numbers began anew
            self._rebuild()
        elif earliest != math.inf:
            heapq.heappush(self._heap, (earliest, first, last))
        if earliest < self.due:
            self.wake_at(earliest)

    def answer(self, response: Command) -> None:
        """Hand a response to the call it belongs to.

        One that nobody waits for is counted and dropped.
        """
        call = self.slots.pop(response.opaque, None)
        if call is None:
            self.late_answers += 1
        else:
            call.complete(response)

    def answer_from(self, commands: Sequence[Command], number: int) -> int:
        """`answer` for all from index `number` on, up to a request; gives its index.

        Calls that are swept end last, together.
        """
        slots, stop = self.slots, len(commands)
        swept: dict[Sweep, list[PendingCall]] = {}
        while number < stop and (response := commands[number]).flag & FLAG_RESPONSE:
            number += 1
            call = slots.pop(response.opaque, None)
            if call is None:
                self.late_answers += 1
            elif type(call) is SweptCall:
                call.answered(response)
                calls = swept.get(call.sweep)
                if calls is None:
                    calls = swept[call.sweep] = []
                calls.append(call)
            else:
                call.response = response
                call._finish()
        for sweep, calls in swept.items():
            try:
                sweep.together(calls)
            except Exception:
                logger.exception("a callback of finished calls failed; the connection goes on")
        return number

    def fail_all(self, make_error: Callable[[], RocketMQError]) -> None:
        """End every call with an error of its own."""
        calls = list(self.slots.values())
        self.slots.clear()
        self._heap.clear()
        for call in calls:
            if not call.done:
                call.fail(make_error())

    def is_overdue(self, now: float) -> bool:
        """Whether the deadline of a call without an answer has passed."""
        return self.next_deadline() <= now

    def next_deadline(self) -> float:
        """The earliest deadline of a call without an answer; infinite for none."""
        heap, slots = self._heap, self.slots
        if not slots:
            heap.clear()
            return math.inf
        while heap:
            deadline, first, last = heap[0]
            earliest = self._earliest(first, last)
            if earliest <= deadline:
                return deadline
            heapq.heappop(heap)
            if earliest != math.inf and first != last:
                heapq.heappush(heap, (earliest, first, last))
        return math.inf

    def _earliest(self, first: int, last: int) -> float:
        """The earliest deadline of the calls with these opaques; infinite for none."""
        slots = self.slots
        waiting = [slots[opaque].deadline for opaque in range(first, last + 1) if opaque in slots]
        return min(waiting, default=math.inf)

    def fail_overdue(self, now: float) -> float:
        """End the calls whose deadline has passed; returns the next deadline.

        That is `inf` when no call is left.
        """
        heap, slots = self._heap, self.slots
        while heap and heap[0][0] <= now:
            _deadline, first, last = heapq.heappop(heap)
            for opaque in range(first, last + 1):
                call = slots.get(opaque)
                if call is None or call.deadline > now:
                    continue
                del slots[opaque]
                self.unanswered_since = min(self.unanswered_since, call.deadline - call.timeout)
                call.fail(
                    RequestTimeoutError(
                        f"{self._address} did not answer within {call.timeout:g} s",
                        address=self._address,
                    )
                )
            if first != last and (later := self._earliest(first, last)) != math.inf:
                heapq.heappush(heap, (later, first, last))
        return self.next_deadline()

    def wake_at(self, moment: float) -> None:
        """Have the channel swept at `moment` if that is earlier than it would be."""
        if moment < self.due:
            self.due = moment
            self._look_at(self._number, moment)
