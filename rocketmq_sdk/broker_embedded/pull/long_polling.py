"""Pulls that wait for a message (`PullRequestHoldService`).

A pull that found nothing is held with a predicate: queue, offset, tags. An arriving
message wakes exactly the pulls that it matches (`NotifyMessageArrivingListener`); a
deadline wakes the others. No service scans held pulls. A woken pull is run once more
and answered in any case; it is never held again.

Woken pulls are run after the code that appended: the append is not delayed by its
readers, and messages that arrive together are answered together. A few are run as soon
as the answers to the chunk have left that brought the messages; more, and those that
something else has woken, by a task of their own.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable
from itertools import count, islice
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.dispatch import error_response
from rocketmq_sdk.remoting.housekeeper import housekeeper
from rocketmq_sdk.sleeper import Sleeper

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.messages import Arrival, MessageFilter
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.protocol.header import Header
    from rocketmq_sdk.remoting.channel import Channel
    from rocketmq_sdk.remoting.housekeeper import Housekeeper

logger = logging.getLogger(__name__)

Rerun = Callable[["HeldPull"], "Command | Callable[[], Awaitable[Command | None]] | None"]
DEFAULT_LIMIT: Final = 100_000
LONGEST_HOLD_MS: Final = 600_000
"""Longest wait of any request, whatever it asks for.

It is the time after which Apache forgets waiting pops
(`popPollingMapExpireTimeSeconds`); clients ask for 15 to 30 s.
"""
_UNREAD: Final = "[OVERLOAD]earlier answers are not read yet, start flow control for a while"
_SLACK: Final = 64
_SLICE: Final = 64
"""Woken pulls that are run again without interruption."""
_FEW: Final = 4
"""Woken pulls that are run again by the reader whose chunk has woken them."""
_SLICE_OF_DEADLINES: Final = 1024


class HeldPull:
    """One pull that waits.

    `message_filter` is None when every message matches; `deadline` is monotonic
    seconds. Of the request only what an answer needs is kept (opaque, flag, encoding),
    not its body and fields. `header` is what it is run again by.
    """

    __slots__ = (
        "channel",
        "deadline",
        "header",
        "key",
        "message_filter",
        "number",
        "offset",
        "over",
        "queue_id",
        "request",
        "topic",
        "wanted",
    )

    def __init__(
        self,
        channel: Channel,
        request: Command,
        topic: str,
        queue_id: int,
        offset: int,
        message_filter: MessageFilter | None,
        deadline: float,
        header: Header | None = None,
    ) -> None:
        request.body = b""
        request.ext_fields = {}
        request.remark = None
        self.channel = channel
        self.request = request
        self.header = header
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.message_filter = message_filter
        self.deadline = deadline
        self.key: tuple[str | int, ...] = (topic, queue_id)
        self.number = 0
        """Its place in the order of those that came."""
        self.wanted: Hashable = None if message_filter is None else message_filter.what
        """Equal for all that the same messages end the wait of."""
        self.over = False

    def lets_through(self, arrival: Arrival) -> bool:
        """Whether its filter lets a message through that has arrived."""
        wanted = self.message_filter
        if wanted is None:
            return True
        if not wanted.matches_tags_code(arrival.tags_code):
            return False
        return not wanted.needs_properties or wanted.matches_record(arrival.decoded_properties)


class PullHolder:
    """Holds pulls until a message matches or their time is over.

    Add `on_arrival` to the store's list of listeners.
    """

    __slots__ = (
        "_channels",
        "_chunks",
        "_clock",
        "_deadlines",
        "_held",
        "_limit",
        "_matched",
        "_nearest",
        "_nursery",
        "_order",
        "_queues",
        "_rerun",
        "_runner",
        "_sleeper",
        "_soon",
        "_woken",
        "closing",
        "on_call",
    )

    def __init__(self, clock: Clock, rerun: Rerun, *, limit: int = DEFAULT_LIMIT) -> None:
        self._clock = clock
        self._rerun = rerun
        self._limit = limit
        # The inner tables are ordered sets: a connection that ends takes thousands of
        # its pulls out of a long one.
        # Those that wait for the same are together, so that each filter is asked once.
        self._queues: dict[tuple[str | int, ...], dict[Hashable, dict[HeldPull, None]]] = {}
        self._channels: dict[Channel, dict[HeldPull, None]] = {}
        self._deadlines: list[tuple[float, int, HeldPull]] = []
        self._order = count()
        self._held = 0
        self._woken: deque[HeldPull] = deque()
        self._matched: deque[tuple[dict[HeldPull, None], int]] = deque()
        """Pulls that a message matches, up to its offset, too many to wake at once."""
        self._runner: trio.lowlevel.Task | None = None
        self._nursery: trio.Nursery | None = None
        self._chunks: Housekeeper | None = None
        self._soon = False  # whether they are run at the end of the chunk
        self._nearest = float("inf")
        self._sleeper = Sleeper()
        self.closing = False
        self.on_call = OnCall()
        """Called with the first pull."""

    @property
    def held(self) -> int:
        """How many pulls wait now."""
        return self._held

    @property
    def waiting_by_queue(self) -> Collection[object]:
        """What is held; while it is empty, arrivals mean nothing."""
        return self._queues

    @property
    def full(self) -> bool:
        """Whether no further pull may be held."""
        return self._held >= self._limit or self.closing

    def hold(self, pull: HeldPull) -> None:
        """Keep a pull until it is woken; the caller has checked `full`."""
        self.on_call.call()
        self._held += 1
        pull.number = next(self._order)
        same = self._queues.setdefault(pull.key, {}).setdefault(pull.wanted, {})
        if same:
            pull.message_filter = next(iter(same)).message_filter
        same[pull] = None
        pulls = self._channels.get(pull.channel)
        if pulls is None:
            pulls = self._channels[pull.channel] = {}
        pulls[pull] = None
        if len(self._deadlines) > 2 * self._held + _SLACK:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].over]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (pull.deadline, pull.number, pull))
        if pull.deadline < self._nearest:
            self._nearest = pull.deadline
            self._sleeper.wake_at(self._moment(pull.deadline, self._clock.monotonic()))

    def on_arrival(self, arrival: Arrival) -> None:
        """Wake the pulls that a message matches."""
        if not self._queues:
            return
        groups = self._queues.get((arrival.topic, arrival.queue_id))
        if groups is None:
            return
        offset = arrival.queue_offset
        for same in list(groups.values()):
            if not next(iter(same)).lets_through(arrival):
                continue
            if len(same) > _SLICE_OF_DEADLINES:
                self._matched.append((same, offset))
                self._wake_runner()
                continue
            for pull in [pull for pull in same if pull.offset <= offset]:
                self._wake(pull)

    def wake_queue(self, topic: str, queue_id: int) -> None:
        """Run the pulls of a queue again now, whatever they wait for.

        Used when something other than a message has come.
        """
        for pull in self._all_of((topic, queue_id)):
            self._wake(pull)

    def _all_of(self, key: tuple[str | int, ...]) -> list[HeldPull]:
        return [pull for same in self._queues.get(key, {}).values() for pull in same]

    def channel_closed(self, channel: Channel) -> None:
        """Forget the pulls of a connection that has ended."""
        for pull in self._channels.pop(channel, ()):
            self._drop(pull)

    def release_all(self) -> None:
        """Answer every pull now and hold no more."""
        self.closing = True
        self._matched.clear()
        for key in list(self._queues):
            for pull in self._all_of(key):
                self._wake(pull)
        while self._woken:
            self._finish(self._woken.popleft())

    def _drop(self, pull: HeldPull) -> None:
        if pull.over:
            return
        pull.over = True
        self._held -= 1
        key = pull.key
        groups = self._queues[key]
        same = groups[pull.wanted]
        del same[pull]
        if not same:
            del groups[pull.wanted]
            if not groups:
                del self._queues[key]
        of_channel = self._channels.get(pull.channel)
        if of_channel is not None:
            of_channel.pop(pull, None)
            if not of_channel:
                del self._channels[pull.channel]

    def _wake(self, pull: HeldPull) -> None:
        self._drop(pull)
        self._woken.append(pull)
        if not self._soon:
            chunks = self._chunks
            self._soon = chunks is not None and chunks.after_chunk(self._run_few)
            if not self._soon:
                self._wake_runner()

    def _wake_some(self) -> None:
        """Wake some of the very many pulls that wait for a message which has come."""
        same, offset = self._matched[0]
        some = list(islice((pull for pull in same if pull.offset <= offset), _SLICE))
        if not some:
            self._matched.popleft()
        for pull in some:
            self._wake(pull)

    def _run_few(self) -> None:
        """Run woken pulls now if there are few; the runner does not know of them."""
        self._soon = False
        if len(self._woken) <= _FEW and not self._matched and self._nursery is not None:
            self._run_some(self._nursery)
        if self._woken:
            self._wake_runner()

    def _run_some(self, nursery: trio.Nursery) -> None:
        for _ in range(min(_SLICE, len(self._woken))):
            pull = self._woken.popleft()
            continuation = self._finish(pull)
            if continuation is not None:
                nursery.start_soon(self._answer, pull, continuation)

    def _wake_runner(self) -> None:
        task = self._runner
        if task is not None:
            self._runner = None
            trio.lowlevel.reschedule(task)

    def _finish(self, pull: HeldPull) -> Callable[[], Awaitable[Command | None]] | None:
        """Run a woken pull and answer it.

        Returns what the answer still has to await.
        """
        if pull.channel.closed:
            self._pass_on(pull)
            return None
        if pull.channel.overloaded:
            self._pass_on(pull)
            # One message can wake thousands of pulls of a peer that reads nothing; it
            # is not read for each of them.
            pull.channel.respond(
                pull.request, Command.response(ResponseCode.SYSTEM_BUSY, remark=_UNREAD)
            )
            return None
        try:
            answer = self._rerun(pull)
        except Exception as error:  # noqa: BLE001 - answered, and logged there
            answer = self._failed(pull, error)
        if answer is None or isinstance(answer, Command):
            if answer is not None:
                pull.channel.respond(pull.request, answer)
            return None
        return answer

    def _failed(self, pull: HeldPull, error: Exception) -> Command:
        """The answer to a woken pull that could not look for messages."""
        self._pass_on(pull)
        if not isinstance(error, RocketMQError):
            logger.exception(
                "a held pull of %s failed",
                pull.channel.remote_address,
                extra=about(peer=pull.channel.remote_address),
            )
        return error_response(error)

    def _pass_on(self, pull: HeldPull) -> None:
        """A woken pull has not looked for messages. Each message wakes all pulls that
        match, so nobody else has to be woken.
        """

    async def _answer(
        self, pull: HeldPull, continuation: Callable[[], Awaitable[Command | None]]
    ) -> None:
        try:
            answer = await continuation()
        except Exception as error:  # noqa: BLE001 - answered, and logged there
            answer = self._failed(pull, error)
        if answer is not None:
            pull.channel.respond(pull.request, answer)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Serve woken pulls and deadlines until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery, self._chunks = nursery, housekeeper()
            nursery.start_soon(self._watch_deadlines)
            while True:
                if self._matched and len(self._woken) < _SLICE:
                    self._wake_some()
                if not self._woken and not self._matched:
                    self._runner = trio.lowlevel.current_task()
                    await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)
                self._run_some(nursery)
                if self._woken or self._matched:
                    await trio.lowlevel.checkpoint()

    def _stop_waiting(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._runner = None
        return trio.lowlevel.Abort.SUCCEEDED

    @trio.lowlevel.enable_ki_protection
    async def _watch_deadlines(self) -> None:
        while True:
            now = self._clock.monotonic()
            deadlines, ended = self._deadlines, 0
            while (
                deadlines
                and ended < _SLICE_OF_DEADLINES
                and (deadlines[0][2].over or deadlines[0][0] <= now)
            ):
                pull = heapq.heappop(deadlines)[2]
                ended += 1
                if not pull.over:
                    self._wake(pull)
            self._nearest = deadlines[0][0] if deadlines else float("inf")
            await self._sleeper.sleep_until(self._moment(self._nearest, now))

    @staticmethod
    def _moment(deadline: float, now: float) -> float:
        """A deadline of the broker's clock in seconds of trio's."""
        return trio.current_time() + max(0.0, deadline - now)
