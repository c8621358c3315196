"""Pops: POP_MESSAGE (200050) (`PopMessageProcessor`).

A pop takes messages of several queues, the group's retry topics among them. Each
queue's part is in the books (a checkpoint, in memory or in the store; order info for
ordered pops) before its messages leave. All of it happens without interruption, except
where a queue has to be read from the disk: then that queue is closed to other pops
until the read is over. Of very many queues some are looked at in one turn.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.broker_embedded.pop.checks import (
    check_attempt,
    check_invisible,
    checked_group,
    checked_topic,
    host_of,
    refusal,
)
from rocketmq_sdk.broker_embedded.pop.plan import (
    HUNDRED,
    PopAnswer,
    PopPolicy,
    as_of_topic,
    queue_order,
    record_offsets,
)
from rocketmq_sdk.broker_embedded.pop.polling import ANY_QUEUE, LOOK_AGAIN, HeldPop
from rocketmq_sdk.broker_embedded.pop.records import is_stored
from rocketmq_sdk.broker_embedded.pop.state import policy_of
from rocketmq_sdk.broker_embedded.pull.long_polling import LONGEST_HOLD_MS
from rocketmq_sdk.broker_embedded.pull.pull_requests import parse_subscription
from rocketmq_sdk.broker_embedded.slices import SLICE
from rocketmq_sdk.broker_embedded.store.messages import GetResult, GetStatus, PutStatus, QueueRead
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import BrokerError, StoreCorruptError, StoreError
from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.protocol.bodies.pop_records import MAX_COUNT, PopCheckPoint
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pop import (
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketmq_sdk.protocol.receipt_handle import NORMAL, ORDERED_QUEUE, ReceiptHandle, topic_kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.filter.message_filters import SubscriptionFilters
    from rocketmq_sdk.broker_embedded.pop.buffer import QueueKey
    from rocketmq_sdk.broker_embedded.pop.state import PopState
    from rocketmq_sdk.broker_embedded.pull.long_polling import HeldPull
    from rocketmq_sdk.broker_embedded.store.messages import MessageFilter, PutResult
    from rocketmq_sdk.protocol.bodies.topics import TopicConfig
    from rocketmq_sdk.remoting.channel import Channel

    Answer = Command | Callable[[], Awaitable[Command | None]] | None
    Reading = Generator[QueueRead | None, GetResult | None, None]

logger = logging.getLogger(__name__)

LATE_MS: Final = 500
"""How much later than its polling time a pop may arrive."""
_LEAST_WAIT: Final = 0.05
_INIT_MAX: Final = 1
_MOVED: Final = frozenset(
    {GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL}
)
_NOTHING_FOR_IT: Final = frozenset(
    {
        GetStatus.NO_MATCHED_MESSAGE,
        GetStatus.OFFSET_FOUND_NULL,
        GetStatus.MESSAGE_WAS_REMOVING,
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)


class _Pop:
    """One pop while it is served."""

    __slots__ = (
        "answer",
        "channel",
        "draw",
        "expires",
        "fresh",
        "header",
        "held",
        "last_put",
        "log_end",
        "message_filter",
        "pop_time",
        "refused",
        "request",
        "revive_queue",
        "topic",
    )

    def __init__(
        self, channel: Channel, request: Command, header: PopMessageRequestHeader, expires: float
    ) -> None:
        self.channel = channel
        self.request = request
        self.header = header
        self.expires = expires
        self.held = False
        """It has waited, so its filter is known."""
        self.topic: TopicConfig
        self.message_filter: MessageFilter | None = None
        self.log_end = -1  # when the first of very many queues was looked at
        self.pop_time = 0
        self.revive_queue = 0
        self.draw = 0
        self.fresh = False
        self.last_put: PutResult | None = None
        """The last checkpoint in the store: answers wait until it is safe."""
        self.refused: PutResult | None = None
        """A checkpoint that the store did not take."""
        self.answer = PopAnswer()

    @property
    def missing(self) -> int:
        return self.header.max_msg_nums - self.answer.count


class PopProcessor:
    """Hands messages out for a time."""

    def __init__(
        self,
        core: Core,
        state: PopState,
        filters: SubscriptionFilters,
        *,
        draws: Callable[[], int] | None = None,
    ) -> None:
        """`draws` gives numbers below 100.

        Each pop takes from one its order of queues and whether retries come first.
        """
        self._core = core
        self._store = core.store
        self._offsets = core.offsets
        self._state = state
        self._filters = filters
        self._turn = 0
        self._locked: set[QueueKey] = set()
        self._draw = draws or (lambda: random.randrange(HUNDRED))

    def pop(self, channel: Channel, request: Command) -> Answer:
        """A pop that may be held."""
        header = PopMessageRequestHeader.from_ext(request.ext_fields)
        check_attempt(header.attempt_id)
        now = self._core.clock.now_ms()
        poll_time = min(header.poll_time, LONGEST_HOLD_MS)
        left = min(poll_time, (header.born_time or now) + poll_time - now)
        if left < -LATE_MS:
            return refusal(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{host_of(self._core)}] pop message is timeout, "
                "please check client's clock",
            )
        return self._run(_Pop(channel, request, header, self._core.clock.monotonic() + left / 1000))

    def rerun(self, held: HeldPull) -> Answer:
        """A pop that was held, from its beginning; it may be held again."""
        assert isinstance(held, HeldPop)
        if held.outdated:
            return refusal(
                ResponseCode.POLLING_TIMEOUT, "the subscription of the group has changed; ask again"
            )
        assert isinstance(held.header, PopMessageRequestHeader)
        pop = _Pop(held.channel, held.request, held.header, held.expires)
        pop.held = True
        pop.message_filter = held.message_filter
        return self._run(pop)

    def _run(self, pop: _Pop) -> Answer:
        if self._state.waiting.closing:
            return refusal(ResponseCode.POLLING_TIMEOUT, "the broker is closing")
        try:
            self._check(pop)
        except BrokerError as error:
            return refusal(error.code, error.remark or "")
        header = pop.header
        pop.pop_time = self._core.clock.now_ms()
        pop.draw = self._draw()
        if header.order:
            pop.revive_queue = ORDERED_QUEUE
        else:
            pop.revive_queue = self._turn % self._core.config.current.revive_queue_num
            self._turn += 1
        reading, log_end = self._collect(pop), self._store.max_physical_offset
        try:
            wanted = next(reading)
        except StopIteration:
            return self._finish(pop)
        pop.log_end = log_end
        return lambda: self._read_on(pop, reading, wanted)

    async def _read_on(
        self, pop: _Pop, reading: Reading, wanted: QueueRead | None
    ) -> Command | None:
        """Continue a pop that reads from the disk, or looks at very many queues."""
        try:
            while True:
                if wanted is None:
                    await trio.lowlevel.checkpoint()
                    wanted = next(reading)
                    continue
                try:
                    result = await self._store.read_cold(wanted)
                except StoreError as error:
                    result = _unreadable(wanted.topic, wanted.queue_id, error)
                wanted = reading.send(result)
        except StopIteration:
            pass
        finally:
            reading.close()
        answer = self._finish(pop)
        return answer if answer is None or isinstance(answer, Command) else await answer()

    def _check(self, pop: _Pop) -> None:
        core, header = self._core, pop.header
        config = core.config.current
        if not config.broker_permission & Permission.READ:
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{host_of(self._core)}] pop message is forbidden",
            )
        if header.max_msg_nums > MAX_COUNT:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{host_of(self._core)}] pop message's num is greater than {MAX_COUNT}",
            )
        if not config.timer_wheel_enable:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                (
                    f"the broker[{host_of(self._core)}] pop message is forbidden because "
                    "timerWheelEnable is false"
                ),
            )
        pop.topic = checked_topic(core, pop.channel, header.topic, header.queue_id)
        checked_group(core, header.consumer_group)
        check_invisible(core, header.invisible_time)
        if core.topics.has_batch_queues(header.topic):
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"the topic[{header.topic}] has queues of batches, which can be pulled only",
            )
        if pop.held:
            return
        subscription = parse_subscription(header.topic, header.exp or "*", header.exp_type)
        if subscription is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
            )
        pop.message_filter = self._filters.of_pop(header.consumer_group, subscription)

    def _policy(self, pop: _Pop) -> tuple[PopPolicy, int]:
        """The policy, and the draw as topics with priorities change it."""
        policy = policy_of(self._core.config.current)
        if pop.header.order or pop.topic.attributes.get("message.type") != "PRIORITY":
            return policy, pop.draw
        group = self._core.groups.find_existing(pop.header.consumer_group)
        factor = (
            int(group.attributes.get("priority.factor", "100")) if group is not None else HUNDRED
        )
        if pop.draw >= factor:
            return policy, pop.draw
        return attrs.evolve(
            policy,
            retry_probability=self._core.config.current.pop_from_retry_probability_for_priority,
        ), 0

    def _collect(self, pop: _Pop) -> Reading:
        header = pop.header
        policy, draw = self._policy(pop)
        retries = (
            () if header.order else policy.retry_topics(header.topic, header.consumer_group, draw)
        )
        retry_first = policy.retry_first(draw)
        if retry_first:
            yield from self._collect_retries(pop, retries, policy, draw)
        queues = (
            queue_order(pop.topic.read_queue_nums, draw, descending=policy.descending)
            if header.queue_id < 0
            else (header.queue_id,)
        )
        for number, queue_id in enumerate(queues, 1):
            if number % SLICE == 0:
                yield None
            yield from self._take(pop, header.topic, queue_id, pop.message_filter)
        if not retry_first and pop.missing > 0:
            yield from self._collect_retries(pop, retries, policy, draw)

    def _collect_retries(
        self, pop: _Pop, retries: tuple[str, ...], policy: PopPolicy, draw: int
    ) -> Reading:
        for name in retries:
            topic = self._core.topics.get(name)
            if topic is not None:
                order = queue_order(topic.read_queue_nums, draw, descending=policy.descending)
                for number, queue_id in enumerate(order, 1):
                    if number % SLICE == 0:
                        yield None
                    yield from self._take(pop, name, queue_id, None)

    def _take(
        self, pop: _Pop, topic: str, queue_id: int, message_filter: MessageFilter | None
    ) -> Reading:
        """Take what there is for a pop in one queue."""
        header, answer = pop.header, pop.answer
        key = (topic, header.consumer_group, queue_id)
        if key in self._locked:
            answer.rest += self._behind(key)
            return
        offset = self._position(pop, key)
        if header.order:
            free_at = self._state.order.blocked_until(
                topic, header.consumer_group, queue_id, header.attempt_id, offset
            )
            if free_at:
                answer.note_blocked(free_at)
                return
        if pop.missing <= 0:
            answer.rest += max(0, self._store.max_offset(topic, queue_id) - offset)
            return
        result = yield from self._read(pop, key, offset, message_filter)
        if result.status in _MOVED and result.next_begin_offset >= 0:
            self._commit(key, result.next_begin_offset)
            offset = result.next_begin_offset
            result = yield from self._read(pop, key, offset, message_filter)
        if result.status is GetStatus.FOUND:
            try:
                self._hand_out(pop, key, result)
            except StoreCorruptError:
                yield from self._take_one(pop, key, offset, message_filter)
        elif result.status in _NOTHING_FOR_IT and result.next_begin_offset >= 0:
            self._pass(pop, key, result.next_begin_offset)

    def _take_one(
        self, pop: _Pop, key: QueueKey, offset: int, message_filter: MessageFilter | None
    ) -> Reading:
        """Take the next message of a damaged stretch, or go over that one."""
        result = yield from self._read(pop, key, offset, message_filter, 1)
        if result.status is GetStatus.FOUND:
            try:
                self._hand_out(pop, key, result)
            except StoreCorruptError as error:
                behind = result.next_begin_offset
                logger.error("a pop goes over message %d of %s: %s", behind - 1, key, error)
                self._pass(pop, key, behind)

    def _read(
        self,
        pop: _Pop,
        key: QueueKey,
        offset: int,
        message_filter: MessageFilter | None,
        most: int = 0,
    ) -> Generator[QueueRead | None, GetResult | None, GetResult]:
        topic, _group, queue_id = key
        wanted = QueueRead(topic, queue_id, offset, most or pop.missing, message_filter)
        found = self._store.read_nowait(wanted)
        if found is not None:
            return found
        self._locked.add(key)
        try:
            result = yield wanted
            assert result is not None
            return result
        finally:
            self._locked.discard(key)
            # Others may have found this queue closed; retries are for all queues.
            self._state.waiting.wake(
                pop.header.topic,
                pop.header.consumer_group,
                queue_id if topic == pop.header.topic else ANY_QUEUE,
            )

    def _hand_out(self, pop: _Pop, key: QueueKey, result: GetResult) -> None:
        topic, group, queue_id = key
        header, answer = pop.header, pop.answer
        offsets = record_offsets(result.body, result.next_begin_offset)
        first, kind, body = (
            offsets[0],
            topic_kind(topic) if topic != header.topic else NORMAL,
            result.body,
        )
        if header.order:
            self._offsets.commit(group, topic, queue_id, first)
            answer.order_parts += self._state.order.update(
                topic,
                group,
                queue_id,
                offsets,
                attempt_id=header.attempt_id,
                pop_time=pop.pop_time,
                invisible_time=header.invisible_time,
                kind=kind,
            )
        elif not self._book(pop, key, offsets, result.next_begin_offset):
            answer.rest += len(offsets)
            return
        broker_name = self._core.config.current.broker_name
        if kind != NORMAL and not self._core.config.current.pop_response_return_actual_retry_topic:
            handle = ReceiptHandle(
                first,
                pop.pop_time,
                header.invisible_time,
                pop.revive_queue,
                kind,
                broker_name,
                queue_id,
            )
            body = as_of_topic(body, header.topic, handle)
        answer.add(kind, queue_id, body, offsets)
        answer.rest += max(0, result.max_offset - result.next_begin_offset)
        self._state.count_out(topic, header.topic, group, queue_id, len(offsets), result.size)

    def _book(self, pop: _Pop, key: QueueKey, offsets: list[int], next_offset: int) -> bool:
        """Keep or store the checkpoint of a pop; False when it cannot be stored."""
        topic, group, queue_id = key
        checkpoint = PopCheckPoint(
            topic,
            group,
            queue_id,
            offsets[0],
            pop.pop_time,
            pop.header.invisible_time,
            len(offsets),
            [offset - offsets[0] for offset in offsets],
            broker_name=self._core.config.current.broker_name,
        )
        self._core.stats.checkpoint(pop.header.topic, group)
        stored = self._state.buffer.hand_out(checkpoint, pop.revive_queue, next_offset)
        if stored is None:
            return True
        if not is_stored(stored):
            pop.refused = stored
            return False
        pop.last_put = stored
        return True

    def _pass(self, pop: _Pop, key: QueueKey, next_offset: int) -> None:
        """Nothing up to an offset is for this pop; go over it."""
        topic, group, queue_id = key
        if pop.header.order:
            self._offsets.commit(group, topic, queue_id, next_offset)
        else:
            self._state.buffer.pass_over(key, next_offset)
        behind = self._store.max_offset(topic, queue_id) - next_offset
        if behind > 0:
            pop.answer.rest += behind
            pop.answer.unseen = True

    def _position(self, pop: _Pop, key: QueueKey) -> int:
        """Where a pop of a queue begins."""
        topic, group, queue_id = key
        if self._core.config.current.use_server_side_reset_offset:
            reset = self._offsets.take_reset(group, topic, queue_id)
            if reset is not None:
                self._state.order.clear(topic, group, queue_id)
                self._state.buffer.forget_queue(key)
                self._offsets.commit(group, topic, queue_id, reset)
                return reset
        committed = self._offsets.query(group, topic, queue_id)
        if committed < 0:
            committed = self._first_offset(pop, topic, queue_id)
            self._offsets.commit(group, topic, queue_id, committed)
        return committed if pop.header.order else max(committed, self._state.buffer.position(key))

    def _first_offset(self, pop: _Pop, topic: str, queue_id: int) -> int:
        """Where a group that was never there begins."""
        store, least = self._store, self._store.min_offset(topic, queue_id)
        if pop.header.init_mode != _INIT_MAX or topic != pop.header.topic:
            return least
        pop.fresh = True
        in_memory = store.in_memory(topic, queue_id, 0)
        if (
            self._core.config.current.init_pop_offset_by_check_msg_in_mem
            and least <= 0
            and in_memory
        ):
            return 0
        return max(0, store.max_offset(topic, queue_id) - 1)

    def _commit(self, key: QueueKey, offset: int) -> None:
        self._offsets.commit(key[1], key[0], key[2], offset)

    def _behind(self, key: QueueKey) -> int:
        topic, group, queue_id = key
        committed = max(
            self._offsets.query(group, topic, queue_id), self._state.buffer.position(key), 0
        )
        return max(0, self._store.max_offset(topic, queue_id) - committed)

    def _finish(self, pop: _Pop) -> Answer:
        answer, header = pop.answer, pop.header
        if not answer.count:
            if pop.refused is not None:
                return refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"what was popped could not be recorded: {pop.refused.status.name}",
                )
            return self._hold_or_end(pop)
        response = self._response(ResponseCode.SUCCESS, GetStatus.FOUND.name, pop)
        response.body = answer.bodies[0] if len(answer.bodies) == 1 else b"".join(answer.bodies)
        if answer.rest > 0:
            self._state.waiting.wake(header.topic, header.consumer_group, header.queue_id)
        waits = self._store.needs_wait and pop.last_put is not None
        return (lambda: self._when_safe(pop, response)) if waits or pop.fresh else response

    async def _when_safe(self, pop: _Pop, response: Command) -> Command:
        """Answer when no kill can move the group's offset back.

        Under SYNC_FLUSH no power cut can either.
        """
        if pop.fresh:
            await self._offsets.persist()
        if (
            pop.last_put is not None
            and await self._store.wait_durable(pop.last_put) is PutStatus.SERVICE_NOT_AVAILABLE
        ):
            return refusal(
                ResponseCode.SYSTEM_ERROR, "what was popped could not be recorded: the store failed"
            )
        return response

    def _hold_or_end(self, pop: _Pop) -> Command | None:
        waiting, header, config = self._state.waiting, pop.header, self._core.config.current
        clock = self._core.clock
        left = pop.expires - clock.monotonic()
        if header.poll_time <= 0 or left < _LEAST_WAIT:
            return self._response(
                ResponseCode.POLLING_TIMEOUT, GetStatus.NO_MESSAGE_IN_QUEUE.name, pop
            )
        key = (header.topic, header.consumer_group, header.queue_id)
        if (
            waiting.held >= config.max_pop_polling_size
            or waiting.waiting(*key) > config.pop_polling_size
        ):
            return self._response(
                ResponseCode.POLLING_FULL, GetStatus.NO_MESSAGE_IN_QUEUE.name, pop
            )
        # Its filter stands for the expression, which may be long.
        header.exp = header.bname = header.ns = None
        held = HeldPop(
            pop.channel,
            pop.request,
            *key,
            pop.message_filter,
            pop.expires,
            header,
            ordered=header.order,
        )
        if pop.answer.unseen:
            # No message that arrives has to wake it: it goes on where it ended, when
            # others have been served.
            held.wake_at(clock.monotonic())
        elif pop.answer.free_at:
            held.wake_at(clock.monotonic() + max(1, pop.answer.free_at - clock.now_ms()) / 1000)
        if pop.log_end not in (-1, self._store.max_physical_offset):
            # What came meanwhile may lie in a queue that was looked at before.
            held.wake_at(min(held.deadline, clock.monotonic() + LOOK_AGAIN))
        waiting.hold(held)
        return None

    def _response(self, code: int, remark: str, pop: _Pop) -> Command:
        starts, offsets, orders = pop.answer.infos()
        header = PopMessageResponseHeader(
            pop_time=pop.pop_time,
            invisible_time=pop.header.invisible_time,
            revive_qid=pop.revive_queue,
            rest_num=pop.answer.rest,
            start_offset_info=starts,
            msg_offset_info=offsets,
            order_count_info=orders if pop.header.order else None,
        )
        return Command.response(code, header, remark=remark)


def _unreadable(topic: str, queue_id: int, error: StoreError) -> GetResult:
    logger.error("a pop could not read the queue %d of %s: %s", queue_id, topic, error)
    return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE)
