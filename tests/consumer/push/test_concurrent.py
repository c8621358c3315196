"""The workers alone: every message is handed over, whatever the listener and the queues
do.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketmq_sdk.consumer.listener import Failed
from rocketmq_sdk.consumer.pop.popped_queue import PoppedQueue
from rocketmq_sdk.consumer.pop.receipt import PoppedMessage, Receipt
from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
from rocketmq_sdk.consumer.push.concurrent import ConcurrentService
from rocketmq_sdk.consumer.push.listener_service import STREAK
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.receipt_handle import ReceiptHandle
from support.consuming import received, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.consumer.listener import Listener, Results
    from rocketmq_sdk.consumer.push.listener_service import GiveBack
    from rocketmq_sdk.model.received import ReceivedMessage


async def taken_back(_message: ReceivedMessage, _delay_level: int) -> bool:
    return True


def service_of(
    listener: Listener, give_back: GiveBack = taken_back, **options: int
) -> ConcurrentService:
    settings = {"batch": 1, "concurrency": 1, "consume_timeout": 900, **options}
    return ConcurrentService(
        listener, group="g", give_back=give_back, most_retries=lambda: 16, **settings
    )


def queues(number: int) -> list[ProcessQueue]:
    return [ProcessQueue(MessageQueue("T", "b", queue_id), 0) for queue_id in range(number)]


def fill(process_queue: ProcessQueue, count: int) -> None:
    first = process_queue.next_offset
    process_queue.put(
        [received(first + index, queue_id=process_queue.queue.queue_id) for index in range(count)],
        first + count,
    )


@pytest.mark.parametrize("seed", range(12))
async def test_no_message_is_forgotten_and_no_worker_sleeps_while_there_is_work(
    autojump_clock: MockClock, seed: int
) -> None:
    chance = random.Random(seed)
    batch, concurrency = chance.choice([1, 1, 3]), chance.choice([1, 2, 7])
    seen: Counter[tuple[int, int]] = Counter()

    async def single(message: ReceivedMessage) -> None:
        if chance.random() < 0.5:
            await trio.sleep(chance.choice([0, 0, 0.1, 1]))
        seen[message.queue_id, message.offset] += 1
        if chance.random() < 0.2:
            raise ValueError("as the test wants it")

    async def several(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            seen[message.queue_id, message.offset] += 1
        await trio.sleep(chance.choice([0, 0.1]))

    async def give_back(_message: ReceivedMessage, _delay_level: int) -> bool:
        await trio.sleep(chance.choice([0, 0.5]))
        return chance.random() < 0.7

    service = service_of(
        single if batch == 1 else several, batch=batch, concurrency=concurrency, give_back=give_back
    )
    caches = queues(3)
    with trio.fail_after(20_000):
        async with trio.open_nursery() as nursery:
            service.start(nursery)
            for _ in range(60):
                cache = chance.choice(caches)
                fill(cache, chance.randint(1, 40))
                service.add(cache)
                await trio.sleep(chance.choice([0, 0, 0, 0.3, 5]))
            while any(cache.message_count for cache in caches):
                await trio.sleep(0.05)
                await wait_all_tasks_blocked()
                busy = sum(cache.in_flight for cache in caches)
                waiting = sum(len(cache.pending) + len(cache.again) for cache in caches)
                assert not waiting or busy >= concurrency
            nursery.cancel_scope.cancel()
    expected = {
        (cache.queue.queue_id, offset) for cache in caches for offset in range(cache.next_offset)
    }
    assert set(seen) == expected
    assert all(cache.commit_offset == cache.next_offset for cache in caches)


async def test_queues_take_turns(autojump_clock: MockClock) -> None:
    order: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        order.append(message.queue_id)

    service = service_of(listener)
    caches = queues(3)
    for cache in caches:
        fill(cache, 5)
        service.add(cache)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            service.start(nursery)
            while len(order) < 15:
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    assert order == [0, 1, 2] * 5


async def test_a_listener_that_never_waits_lets_others_run(autojump_clock: MockClock) -> None:
    turns: list[int] = []
    consumed = 0

    async def listener(_message: ReceivedMessage) -> None:
        nonlocal consumed
        consumed += 1

    service = service_of(listener, concurrency=4)
    (cache,) = queues(1)
    fill(cache, 3000)
    service.add(cache)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            service.start(nursery)
            while consumed < 3000:
                turns.append(consumed)
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    steps = [after - before for before, after in zip(turns, [*turns[1:], 3000], strict=True)]
    assert max(steps) <= 2 * 4 * STREAK


async def test_a_withdrawn_queue_is_finished_but_not_continued(autojump_clock: MockClock) -> None:
    done: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        await trio.sleep(1)
        done.append(message.offset)
        if message.offset == 1:
            raise ValueError("as the test wants it")

    async def not_taken_back(_message: ReceivedMessage, _delay_level: int) -> bool:
        return False

    service = service_of(listener, concurrency=2, give_back=not_taken_back)
    (cache,) = queues(1)
    fill(cache, 10)
    service.add(cache)
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            service.start(nursery)
            await trio.sleep(0.5)
            service.withdraw(cache)
            assert (cache.in_flight, cache.message_count) == (2, 2)
            await cache.wait_drained()
            service.withdraw(cache)
            assert service.waiting_for_retry == 0
            await trio.sleep(30)
            nursery.cancel_scope.cancel()
    assert sorted(done) == [0, 1]
    assert cache.commit_offset == 1


async def test_an_interrupted_message_is_not_sent_back_even_by_a_worker_that_timed_out_before(
    autojump_clock: MockClock,
) -> None:
    returned: list[int] = []

    async def listener(_message: ReceivedMessage) -> None:
        await trio.sleep_forever()

    async def give_back(message: ReceivedMessage, _delay_level: int) -> bool:
        returned.append(message.offset)
        return True

    service = service_of(listener, consume_timeout=5, give_back=give_back)
    (cache,) = queues(1)
    fill(cache, 2)
    service.add(cache)
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            service.start(nursery)
            await trio.sleep(7)
            assert (returned, cache.in_flight, cache.commit_offset) == ([0], 1, 1)
            service.withdraw(cache)
            service.interrupt(cache)
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
    assert returned == [0]
    assert cache.commit_offset == 1
    assert service.timed_out == 1


async def test_what_fails_on_a_withdrawn_queue_does_not_go_to_the_listener_again(
    autojump_clock: MockClock,
) -> None:
    calls: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        calls.append(message.offset)
        await trio.sleep(1 if message.offset else 60)
        raise ValueError("as the test wants it")

    async def not_taken_back(_message: ReceivedMessage, _delay_level: int) -> bool:
        return False

    service = service_of(listener, concurrency=4, give_back=not_taken_back)
    (cache,) = queues(1)
    fill(cache, 2)
    service.add(cache)
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            service.start(nursery)
            await trio.sleep(0.5)
            service.withdraw(cache)
            await cache.wait_drained()
            assert trio.current_time() >= 60
            assert (service.waiting_for_retry, cache.commit_offset, cache.in_flight) == (0, 0, 0)
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
    assert sorted(calls) == [0, 1]


async def test_popped_messages_that_expire_while_all_workers_are_busy_are_passed_over(
    autojump_clock: MockClock,
) -> None:
    seen: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.offset)
        await trio.sleep(10)

    def popped(offset: int, expires_at: float) -> PoppedMessage:
        [message] = decode_messages(stored(offset), kind=PoppedMessage)
        assert isinstance(message, PoppedMessage)
        message._receipt = Receipt(
            "T", ReceiptHandle(0, 1000, 30_000, 3, "0", "b", 0, offset), expires_at, "g"
        )
        return message

    service = service_of(listener)
    busy, short = (
        PoppedQueue(MessageQueue("T", "b", queue_id), lambda _message: None)
        for queue_id in range(2)
    )
    async with trio.open_nursery() as nursery:
        service.start(nursery)
        busy.add([popped(1, 60.0)])
        short.add([popped(2, 5.0)])
        for queue in (busy, short):
            service.add(queue)
        await trio.sleep(6)
        short.drop_expired()
        await trio.sleep(10)
        short.add([popped(3, 60.0)])
        service.add(short)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert seen == [1, 3]


async def test_a_cancellation_that_comes_with_the_answer_to_a_send_back_hits_no_other_message(
    autojump_clock: MockClock,
) -> None:
    answered, calls = trio.Event(), []

    async def give_back(_message: ReceivedMessage, _delay_level: int) -> bool:
        await answered.wait()
        return True

    async def listener(message: ReceivedMessage) -> None:
        if message.queue_id == 0:
            raise ValueError("as the test wants it")
        await trio.sleep(0.1)
        calls.append(message.offset)

    service = service_of(listener, give_back=give_back)
    leaving, staying = queues(2)
    async with trio.open_nursery() as nursery:
        service.start(nursery)
        fill(leaving, 1)
        service.add(leaving)
        await wait_all_tasks_blocked()
        fill(staying, 2)
        service.add(staying)
        answered.set()  # the broker's answer and the end of the grace in one pass
        service.interrupt(leaving)
        await trio.sleep(10)
        assert calls == [0, 1]
        assert (staying.in_flight, staying.commit_offset) == (0, 2)
        assert (leaving.in_flight, leaving.commit_offset) == (0, 1)
        nursery.cancel_scope.cancel()


class Handed:
    """A listener that is handed several messages: by offset, it fails, hangs, or takes
    `slow` seconds, after which the messages behind are given back.
    """

    def __init__(self, fails: Sequence[int] = (), hangs: int = -1, slow: int = -1) -> None:
        self.fails, self.hangs, self.slow = fails, hangs, slow
        self.together: list[int] = []
        self.called: list[int] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        self.together.append(1)
        await self._call(message.offset)

    most_together = 4

    async def _call(self, offset: int) -> None:
        first = offset not in self.called
        self.called.append(offset)
        if first and offset == self.hangs:
            await trio.sleep_forever()
        if first and offset in self.fails:
            raise ValueError("as the test wants it")

    def call_each(
        self,
        messages: Sequence[ReceivedMessage],
        results: Results,
        give_back: Callable[[int], None],
    ) -> HandedCalls:
        self.together.append(len(messages))
        return HandedCalls(self, messages, results, give_back)

    async def call(self, offset: int) -> None:
        await self._call(offset)


class HandedCalls:
    """What it was handed at once: `wait` calls it up to the first slow one."""

    def __init__(
        self,
        listener: Handed,
        messages: Sequence[ReceivedMessage],
        results: Results,
        give_back: Callable[[int], None],
    ) -> None:
        self.listener, self.results, self.give_back = listener, results, give_back
        self.left = [message.offset for message in messages]
        self.first = self.left[0]
        self.told = False

    async def wait(self) -> None:
        while self.left:
            offset, *rest = self.left
            if offset in (self.listener.slow, self.listener.hangs) and not self.told:
                self.told = True
                if rest:
                    self.left = [offset]
                    self.give_back(rest[0] - self.first)
                    await trio.lowlevel.checkpoint()
                    return
            if offset == self.listener.slow:
                await trio.sleep(10)
            try:
                await self.listener.call(offset)
            except ValueError as error:
                self.results.append(Failed(error))
            else:
                self.results.append(None)
            self.left = rest
        await trio.lowlevel.checkpoint()

    def abandon(self) -> None:
        self.left = []


@pytest.mark.parametrize(
    "listener",
    [Handed(), Handed(fails=(1, 2, 6)), Handed(slow=1), Handed(hangs=5, fails=(4, 6))],
    ids=["quick", "failing", "slow", "hanging"],
)
async def test_messages_that_are_handed_over_together_end_each_by_itself(
    autojump_clock: MockClock, listener: Handed
) -> None:
    listener.together, listener.called = [], []
    back: list[int] = []

    async def give_back(message: ReceivedMessage, _delay_level: int) -> bool:
        back.append(message.offset)
        return message.offset != 2 or back.count(2) > 1  # once no broker takes it

    service = service_of(listener, give_back, concurrency=2, consume_timeout=60)
    (cache,) = queues(1)
    fill(cache, 12)
    service.add(cache)
    with trio.fail_after(200):
        async with trio.open_nursery() as nursery:
            service.start(nursery)
            while cache.message_count:
                await trio.sleep(1)
                if listener.slow >= 0:  # nobody waits for it
                    assert len(set(listener.called)) >= 11
            nursery.cancel_scope.cancel()
    assert sorted(set(listener.called)) == list(range(12))
    assert max(listener.together) == 4
    twice = [offset for offset in range(12) if listener.called.count(offset) > 1]
    assert twice == ([2] if 2 in listener.fails else [])
    expected = {*listener.fails, listener.hangs} - {-1}
    assert set(back) == expected
    assert service.consumed == 12 - len(expected - set(twice))
    assert service.timed_out == (listener.hangs >= 0)
    assert cache.byte_count == 0
