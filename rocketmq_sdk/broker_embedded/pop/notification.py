"""NOTIFICATION (200054) and POLLING_INFO (200055).

Whether there is something to pop, and how many pops wait (`NotificationProcessor`,
`PollingInfoProcessor` of Apache).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rocketmq_sdk.broker_embedded.filter.message_filters import TagFilter
from rocketmq_sdk.broker_embedded.pop.checks import check_attempt, checked_group, checked_topic
from rocketmq_sdk.broker_embedded.pop.polling import LOOK_AGAIN, HeldPop
from rocketmq_sdk.broker_embedded.pop.popping import LATE_MS
from rocketmq_sdk.broker_embedded.pop.state import policy_of
from rocketmq_sdk.broker_embedded.pull.long_polling import LONGEST_HOLD_MS
from rocketmq_sdk.broker_embedded.pull.pull_requests import parse_subscription
from rocketmq_sdk.broker_embedded.slices import SLICE
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import BrokerError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.filter.message_filters import SubscriptionFilters
    from rocketmq_sdk.broker_embedded.pop.state import PopState
    from rocketmq_sdk.broker_embedded.pull.long_polling import HeldPull
    from rocketmq_sdk.broker_embedded.store.messages import MessageFilter
    from rocketmq_sdk.remoting.channel import Channel, Continuation

_REMARK: Final = "not set any response code"
_LEAST_WAIT: Final = 0.05
_FEW: Final = 64
"""With fewer messages waiting than this, they are compared by their tags.

Apache's `maxMessageFilterNumForNotification`; it looks at the first 32 only, and a
message behind them is told of when others arrive.
"""


class Found(NamedTuple):
    """What a look at the queues has told."""

    messages: bool
    free_at: int
    """When a blocked queue may be popped (epoch milliseconds); 0: none is."""


class _Question(NamedTuple):
    channel: Channel
    request: Command
    header: NotificationRequestHeader
    expires: float
    wanted: MessageFilter | None


class NotificationProcessor:
    """Tells whether a pop would find something, and waits for that."""

    def __init__(self, core: Core, state: PopState, filters: SubscriptionFilters) -> None:
        self._core = core
        self._state = state
        self._filters = filters

    def notify(self, channel: Channel, request: Command) -> Command | Continuation | None:
        """A question that may be held."""
        header = NotificationRequestHeader.from_ext(request.ext_fields)
        clock = self._core.clock
        check_attempt(header.attempt_id)
        now = clock.now_ms()
        poll_time = min(header.poll_time, LONGEST_HOLD_MS)
        left = min(poll_time, (header.born_time or now) + poll_time - now)
        if left < -LATE_MS:
            return _answer(found=False)
        wanted = self._filter(header)
        # The filter stands for the expression, which may be long.
        header.exp = header.exp_type = None
        expires = clock.monotonic() + left / 1000
        return self._look(_Question(channel, request, header, expires, wanted))

    def rerun(self, held: HeldPull) -> Command | Continuation | None:
        """A question that was held, once more."""
        assert isinstance(held, HeldPop)
        assert isinstance(held.header, NotificationRequestHeader)
        return self._look(
            _Question(held.channel, held.request, held.header, held.expires, held.message_filter)
        )

    def _filter(self, header: NotificationRequestHeader) -> MessageFilter | None:
        """What the request asks for, None for any message (new in 5.5).

        A retry is always asked for.
        """
        if header.exp is None or header.exp_type is None:
            return None
        subscription = parse_subscription(header.topic, header.exp, header.exp_type)
        if subscription is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
            )
        return self._filters.of_pop(header.consumer_group, subscription)

    def _look(self, question: _Question) -> Command | Continuation | None:
        header = question.header
        topic = checked_topic(self._core, question.channel, header.topic, header.queue_id)
        checked_group(self._core, header.consumer_group)
        queues = (
            range(topic.read_queue_nums)
            if header.queue_id < 0
            else range(header.queue_id, header.queue_id + 1)
        )
        log_end = self._core.store.max_physical_offset
        looking = self._looking(header, queues, question.wanted)
        found = next(looking)
        if found is not None:
            return self._answer_or_hold(question, found, log_end)

        async def look_on() -> Command | None:
            found = None
            while found is None:
                await trio.lowlevel.checkpoint()
                found = next(looking)
            return self._answer_or_hold(question, found, log_end)

        return look_on

    def _looking(
        self, header: NotificationRequestHeader, queues: range, wanted: MessageFilter | None
    ) -> Iterator[Found | None]:
        """Look at all queues; None whenever the others should have their turn."""
        free_at = 0
        for number, queue_id in enumerate(queues, 1):
            if number % SLICE == 0:
                yield None
            found, blocked_until = self._has_messages(header, header.topic, queue_id, wanted)
            if found:
                yield Found(True, 0)
                return
            if blocked_until:
                free_at = min(free_at or blocked_until, blocked_until)
        for name in self._retry_topics(header):
            topic = self._core.topics.get(name)
            for number in range(0 if topic is None else topic.read_queue_nums):
                if number % SLICE == SLICE - 1:
                    yield None
                if self._has_messages(header, name, number, None)[0]:
                    yield Found(True, 0)
                    return
        yield Found(False, free_at)

    def _answer_or_hold(self, question: _Question, found: Found, log_end: int) -> Command | None:
        """The answer, or none when the request waits.

        `log_end` is where the log ended before the look.
        """
        if found.messages:
            return _answer(found=True)
        core, waiting, header = self._core, self._state.notifications, question.header
        clock, config = core.clock, core.config.current
        left = question.expires - clock.monotonic()
        if waiting.closing or header.poll_time <= 0 or left < _LEAST_WAIT:
            return _answer(found=False)
        key = (header.topic, header.consumer_group, header.queue_id)
        if (
            waiting.held >= config.max_pop_polling_size
            or waiting.waiting(*key) > config.pop_polling_size
        ):
            return _answer(found=False, full=True)
        header.bname = header.ns = None
        channel, request, _, expires, wanted = question
        held = HeldPop(channel, request, *key, wanted, expires, header, ordered=header.order)
        if found.free_at:
            held.wake_at(clock.monotonic() + max(1, found.free_at - clock.now_ms()) / 1000)
        if log_end != core.store.max_physical_offset:
            # What came meanwhile may lie in a queue that was looked at before.
            held.wake_at(min(held.deadline, clock.monotonic() + LOOK_AGAIN))
        waiting.hold(held)
        return None

    def _has_messages(
        self,
        header: NotificationRequestHeader,
        topic: str,
        queue_id: int,
        wanted: MessageFilter | None,
    ) -> tuple[bool, int]:
        """Whether a queue has messages, and until when it is blocked."""
        core, state, group = self._core, self._state, header.consumer_group
        committed = core.offsets.query(group, topic, queue_id)
        if header.order:
            blocked_until = state.order.blocked_until(
                topic, group, queue_id, header.attempt_id, committed
            )
            if blocked_until:
                return False, blocked_until
        else:
            committed = max(committed, state.buffer.position((topic, group, queue_id)))
        first = max(committed, core.store.min_offset(topic, queue_id))
        end = core.store.max_offset(topic, queue_id)
        if isinstance(wanted, TagFilter) and end - first < _FEW:
            units = (core.store.queue_unit(topic, queue_id, at) for at in range(first, end))
            return any(unit is not None and wanted.matches_tags_code(unit[2]) for unit in units), 0
        return end > first, 0

    def _retry_topics(self, header: NotificationRequestHeader) -> Iterable[str]:
        if header.order:
            return ()
        policy = policy_of(self._core.config.current)
        return policy.retry_topics(header.topic, header.consumer_group, 0)

    def polling_info(self, channel: Channel, request: Command) -> Command:
        """How many pops wait for a queue, or for any."""
        header = PollingInfoRequestHeader.from_ext(request.ext_fields)
        checked_topic(self._core, channel, header.topic, header.queue_id)
        checked_group(self._core, header.consumer_group)
        number = self._state.waiting.waiting(header.topic, header.consumer_group, header.queue_id)
        return Command.response(
            header=PollingInfoResponseHeader(polling_num=number), remark=_REMARK
        )


def _answer(*, found: bool, full: bool = False) -> Command:
    return Command.response(
        header=NotificationResponseHeader(has_msg=found, polling_full=full), remark=_REMARK
    )
