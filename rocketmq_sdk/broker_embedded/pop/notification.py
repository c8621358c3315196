"""NOTIFICATION (200054) and POLLING_INFO (200055).

Whether there is something to pop, and how many pops wait (`NotificationProcessor`,
`PollingInfoProcessor` of Apache).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.filter.message_filters import TagFilter
from rocketmq_sdk.broker_embedded.pop.checks import check_attempt, checked_group, checked_topic
from rocketmq_sdk.broker_embedded.pop.polling import HeldPop
from rocketmq_sdk.broker_embedded.pop.popping import LATE_MS
from rocketmq_sdk.broker_embedded.pop.state import policy_of
from rocketmq_sdk.broker_embedded.pull.long_polling import LONGEST_HOLD_MS
from rocketmq_sdk.broker_embedded.pull.pull_requests import parse_subscription
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
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.filter.message_filters import SubscriptionFilters
    from rocketmq_sdk.broker_embedded.pop.state import PopState
    from rocketmq_sdk.broker_embedded.pull.long_polling import HeldPull
    from rocketmq_sdk.broker_embedded.store.messages import MessageFilter
    from rocketmq_sdk.remoting.channel import Channel

_REMARK: Final = "not set any response code"
_LEAST_WAIT: Final = 0.05
_FEW: Final = 64
"""With fewer messages waiting than this, they are compared by their tags.

Apache's `maxMessageFilterNumForNotification`; it looks at the first 32 only, and a
message behind them is told of when others arrive.
"""


class NotificationProcessor:
    """Tells whether a pop would find something, and waits for that."""

    def __init__(self, core: Core, state: PopState, filters: SubscriptionFilters) -> None:
        self._core = core
        self._state = state
        self._filters = filters

    def notify(self, channel: Channel, request: Command) -> Command | None:
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
        return self._look(channel, request, header, clock.monotonic() + left / 1000, wanted)

    def rerun(self, held: HeldPull) -> Command | None:
        """A question that was held, once more."""
        assert isinstance(held, HeldPop)
        assert isinstance(held.header, NotificationRequestHeader)
        return self._look(
            held.channel, held.request, held.header, held.expires, held.message_filter
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

    def _look(
        self,
        channel: Channel,
        request: Command,
        header: NotificationRequestHeader,
        expires: float,
        wanted: MessageFilter | None,
    ) -> Command | None:
        core, state = self._core, self._state
        topic = checked_topic(core, channel, header.topic, header.queue_id)
        checked_group(core, header.consumer_group)
        queues = (
            range(topic.read_queue_nums)
            if header.queue_id < 0
            else range(header.queue_id, header.queue_id + 1)
        )
        free_at = 0
        for queue_id in queues:
            found, blocked_until = self._has_messages(header, header.topic, queue_id, wanted)
            if found:
                return _answer(found=True)
            if blocked_until:
                free_at = min(free_at or blocked_until, blocked_until)
        if self._has_retries(header):
            return _answer(found=True)
        clock, waiting, config = core.clock, state.notifications, core.config.current
        key = (header.topic, header.consumer_group, header.queue_id)
        if waiting.closing or header.poll_time <= 0 or expires - clock.monotonic() < _LEAST_WAIT:
            return _answer(found=False)
        if (
            waiting.held >= config.max_pop_polling_size
            or waiting.waiting(*key) > config.pop_polling_size
        ):
            return _answer(found=False, full=True)
        header.bname = header.ns = None
        held = HeldPop(channel, request, *key, wanted, expires, header, ordered=header.order)
        if free_at:
            held.wake_at(clock.monotonic() + max(1, free_at - clock.now_ms()) / 1000)
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

    def _has_retries(self, header: NotificationRequestHeader) -> bool:
        if header.order:
            return False
        core = self._core
        for name in policy_of(core.config.current).retry_topics(
            header.topic, header.consumer_group, 0
        ):
            topic = core.topics.get(name)
            if topic is not None and any(
                self._has_messages(header, name, queue_id, None)[0]
                for queue_id in range(topic.read_queue_nums)
            ):
                return True
        return False

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
