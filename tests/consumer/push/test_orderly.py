"""Queues in order, in virtual time: one call at a time, suspension, attempts, poison,
locks at the broker, and what happens when they are lost.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.outcome import ConsumeLater, RejectMessage
from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.push.orderly import OrderlyService
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.names import dead_letter_topic
from rocketmq_sdk.testing.interception import intercept, refused
from support.consuming import Collector, Switch, committed, open_sender, received
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage


class Ordered:
    """A listener that notes what each queue got, and that no queue is with two calls at
    once.
    """

    def __init__(self, seconds: float = 0.01, fail: dict[str, int] | None = None) -> None:
        self.seconds = seconds
        self.fail = dict(fail or {})
        self.by_queue: defaultdict[int, list[str]] = defaultdict(list)
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        self.attempts: defaultdict[str, list[int]] = defaultdict(list)
        self.running: set[int] = set()
        self.finished: list[str] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        body = message.body.decode()
        assert message.queue_id not in self.running, "two calls for one queue"
        self.running.add(message.queue_id)
        self.by_queue[message.queue_id].append(body)
        self.times[body].append(trio.current_time())
        self.attempts[body].append(message.reconsume_times)
        try:
            await trio.sleep(self.seconds)
        finally:
            self.running.remove(message.queue_id)
        if self.fail.get(body, 0):
            self.fail[body] -= 1
            raise ValueError("as the test wants it")
        self.finished.append(body)


def ordered(broker: EmbeddedBroker | Switch, listener: object, **options: object) -> PushConsumer:
    return PushConsumer(
        "billing",
        namesrv=broker,
        subscriptions={"orders": "*"},
        listener=listener,  # type: ignore[arg-type]  # any callable
        orderly=True,
        **options,  # type: ignore[arg-type]  # settings of the tests
    )


def owned(consumer: PushConsumer) -> set[int]:
    return {queue.queue_id for queue in consumer.statistics().queues if queue.topic == "orders"}


def lock_owner(broker: EmbeddedBroker, queue_id: int) -> str | None:
    return broker.parts.members.locks.owner("billing", MessageQueue("orders", "broker-a", queue_id))


async def test_each_queue_is_consumed_in_order_one_call_at_a_time_and_queues_side_by_side(
    autojump_clock: MockClock,
) -> None:
    listener = Ordered(0.1)
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        for queue in range(4):
            await sender.send("orders", *(f"{queue}-{number}" for number in range(50)), queue=queue)
        began = trio.current_time()
        async with ordered(broker, listener):
            await until(lambda: len(listener.finished) == 200)
            assert (
                trio.current_time() - began < 7
            )  # 50 messages of 0.1 s in each of 4 queues at the same time
        assert committed(broker, "billing", "orders") == [50] * 4
    assert dict(listener.by_queue) == {
        queue: [f"{queue}-{number}" for number in range(50)] for queue in range(4)
    }


async def test_a_failing_message_holds_up_its_queue_at_a_fixed_interval_and_nothing_else(
    autojump_clock: MockClock,
) -> None:
    listener = Ordered(fail={"bad": 3})
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", "bad", "behind", queue=0)
        await sender.send("orders", "other", queue=1)
        async with ordered(broker, listener, suspend_current_queue_time=2):
            await until(lambda: len(listener.finished) == 3)
    assert listener.finished == ["other", "bad", "behind"]
    assert listener.attempts["bad"] == [0, 1, 2, 3]
    waits = [after - before for before, after in itertools.pairwise(listener.times["bad"])]
    assert waits == pytest.approx([2.01] * 3, abs=0.05)


async def test_a_message_of_poison_goes_to_the_dead_letter_topic_when_its_attempts_are_exhausted(
    autojump_clock: MockClock,
) -> None:
    listener, dead = Ordered(fail={"poison": 1000}), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", "poison", "behind", queue=0)
        async with ordered(broker, listener, max_reconsume_times=2):
            await until(lambda: "behind" in listener.finished)
        async with PushConsumer(
            "undertaker",
            namesrv=broker,
            subscriptions={dead_letter_topic("billing"): "*"},
            listener=dead,
        ):
            await until(lambda: dead.messages)
        assert committed(broker, "billing", "orders")[0] == 2
    assert listener.attempts["poison"] == [0, 1, 2]
    assert dead.bodies == ["poison"]


async def test_without_a_limit_a_message_of_poison_blocks_its_queue_for_hours(
    autojump_clock: MockClock,
) -> None:
    listener = Ordered(fail={"poison": 10**9})
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", "poison", "behind", queue=0)
        async with ordered(broker, listener, suspend_current_queue_time=30):
            await trio.sleep(2 * 3600)
            listener.fail.clear()
            await until(lambda: "behind" in listener.finished)
    assert len(listener.attempts["poison"]) > 230


async def test_a_dead_letter_that_cannot_be_stored_keeps_its_place(
    autojump_clock: MockClock,
) -> None:
    listener = Ordered(fail={"poison": 1000})
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", "poison", "behind", queue=0)
        codes = (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2)
        sends = intercept(broker, *codes, by=refused())
        async with ordered(broker, listener, max_reconsume_times=0):
            await until(lambda: sends.counts[RequestCode.CONSUMER_SEND_MSG_BACK] == 5)
            assert not listener.finished
            assert committed(broker, "billing", "orders")[0] in (-1, 0)
            sends.restore()
            await until(lambda: "behind" in listener.finished)


async def test_a_listener_may_choose_the_rest_or_give_up(autojump_clock: MockClock) -> None:
    times: list[tuple[str, float]] = []

    async def listener(message: ReceivedMessage) -> None:
        times.append((message.body.decode(), trio.current_time()))
        if message.body == b"later" and message.reconsume_times == 0:
            raise ConsumeLater(suspend=7)
        if message.body == b"reject":
            raise RejectMessage("poison")

    dead = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", "later", "reject", "last", queue=0)
        async with ordered(broker, listener):
            await until(lambda: times and times[-1][0] == "last")
        async with PushConsumer(
            "undertaker",
            namesrv=broker,
            subscriptions={dead_letter_topic("billing"): "*"},
            listener=dead,
        ):
            await until(lambda: dead.messages)
    assert [body for body, _ in times] == ["later", "later", "reject", "last"]
    assert times[1][1] - times[0][1] == pytest.approx(7, abs=0.01)


async def test_of_a_batch_what_lies_in_front_of_a_failure_is_done_and_the_rest_comes_again(
    autojump_clock: MockClock,
) -> None:
    calls: list[list[str]] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        calls.append([message.body.decode() for message in messages])
        if len(calls) == 1:
            raise ConsumeLater(messages=[messages[2]])

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", *"abcdef", queue=0)
        async with ordered(broker, listener, batch=4):
            await until(lambda: sum(map(len, calls)) >= 8)
        assert committed(broker, "billing", "orders")[0] == 6
    assert calls == [["a", "b", "c", "d"], ["c", "d", "e", "f"]]


async def test_the_lock_of_a_queue_is_taken_before_it_is_owned_renewed_and_given_back(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        async with ordered(broker, Ordered()) as consumer:
            assert owned(consumer) == {0, 1}
            holder = lock_owner(broker, 0)
            assert holder is not None
            await trio.sleep(600)
            assert lock_owner(broker, 0) == lock_owner(broker, 1) == holder
        assert lock_owner(broker, 0) is lock_owner(broker, 1) is None


async def test_members_join_and_leave_and_the_order_is_kept(autojump_clock: MockClock) -> None:
    listener = Ordered(0.02)
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        trio.open_nursery() as nursery,
    ):
        await sender.create_topic("orders", 6)

        async def visit(after: float, stay: float) -> None:
            await trio.sleep(after)
            async with ordered(broker, listener):
                await trio.sleep(stay)

        for after, stay in ((0, 60), (2, 5), (3, 20), (10, 1)):
            nursery.start_soon(visit, after, stay)
        for start in range(0, 1200, 60):
            for number in range(start, start + 60):
                await sender.send("orders", str(number), queue=number % 6)
            await trio.sleep(1)
        await until(lambda: len(set(listener.finished)) == 1200)
    for queue in range(6):
        assert listener.by_queue[queue] == [str(number) for number in range(queue, 1200, 6)]


async def test_a_queue_whose_lock_another_member_has_is_not_consumed_until_the_lock_expires(
    autojump_clock: MockClock,
) -> None:
    listener = Ordered()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", queue=0)
        broker.parts.members.locks.lock(
            "billing", [MessageQueue("orders", "broker-a", 0)], "killed member"
        )
        began = trio.current_time()
        async with ordered(broker, listener):
            await until(lambda: listener.finished, 120)
        assert 58 < trio.current_time() - began < 63


async def test_a_queue_that_another_member_gives_back_late_is_taken_at_once(
    autojump_clock: MockClock,
) -> None:
    """Apache's client gives up a queue whose listener is busy up to 20 s after it went
    to somebody else.
    """
    listener, queue = Ordered(), MessageQueue("orders", "broker-a", 0)
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", queue=0)
        broker.parts.members.locks.lock("billing", [queue], "slow member")
        async with ordered(broker, listener):
            await trio.sleep(20)
            assert not listener.finished
            broker.parts.members.locks.unlock("billing", [queue], "slow member")
            given_back_at = trio.current_time()
            await until(lambda: listener.finished, 30)
        assert trio.current_time() - given_back_at < 2


async def test_a_lost_lock_stops_the_queue_and_its_offset_is_left_alone(
    autojump_clock: MockClock,
) -> None:
    listener = Ordered()
    queue = MessageQueue("orders", "broker-a", 0)
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", queue=0)
        async with ordered(broker, listener) as consumer:
            await until(lambda: len(listener.finished) == 2)
            await trio.sleep(6)
            assert committed(broker, "billing", "orders", 1) == [2]
            locks = broker.parts.members.locks
            locks.unlock("billing", [queue], locks.owner("billing", queue) or "")
            locks.lock("billing", [queue], "thief")
            await until(lambda: not owned(consumer), 25)
            broker.core.offsets.commit(
                "billing", "orders", 0, 1
            )  # what the other member has reached
            await sender.send("orders", "c", queue=0)
            await trio.sleep(30)
            assert committed(broker, "billing", "orders", 1) == [1]
            assert listener.finished == ["a", "b"]
            locks.unlock("billing", [queue], "thief")
            await until(lambda: len(listener.finished) == 4, 10)
    assert listener.finished == ["a", "b", "b", "c"]


async def test_consumption_stops_when_the_lock_was_not_renewed_for_thirty_seconds(
    autojump_clock: MockClock,
) -> None:
    listener = Ordered(5.0)
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(30)), queue=0)
        async with ordered(broker, listener):
            await until(lambda: len(listener.finished) == 2)
            locks = intercept(broker, RequestCode.LOCK_BATCH_MQ, by=refused())
            cut = trio.current_time()
            await trio.sleep(100)
            last = max(times[-1] for times in listener.times.values())
            assert last - cut < 31
            locks.restore()
            await until(lambda: "29" in listener.finished, 300)
    first_seen = list(dict.fromkeys(listener.by_queue[0]))
    assert first_seen == list(map(str, range(30)))


async def test_a_queue_that_goes_to_another_member_waits_for_its_listener(
    autojump_clock: MockClock,
) -> None:
    listener = Ordered(6.0)
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", "0-a", "0-b", queue=0)
        await sender.send("orders", "1-a", "1-b", queue=1)
        async with ordered(broker, listener):
            await until(lambda: len(listener.running) == 2)
            async with ordered(broker, listener) as two:
                await until(lambda: owned(two), 30)
                await until(lambda: len(listener.finished) == 4, 60)
    assert listener.by_queue == {0: ["0-a", "0-b"], 1: ["1-a", "1-b"]}


@pytest.mark.real_time
async def test_a_listener_in_a_thread_keeps_the_lock_when_it_cannot_be_stopped() -> None:
    release = threading.Event()
    started = threading.Event()

    def listener(_message: ReceivedMessage) -> None:
        started.set()
        release.wait(60)

    try:
        async with EmbeddedBroker() as broker, open_sender(broker) as sender:
            await sender.create_topic("orders", 1)
            await sender.send("orders", "a", queue=0)
            with trio.CancelScope() as scope:
                async with ordered(broker, listener):
                    await until(started.is_set)
                    scope.cancel()
                    await trio.lowlevel.checkpoint()
            assert lock_owner(broker, 0) is not None
            assert committed(broker, "billing", "orders", 1) in ([-1], [0])
    finally:
        release.set()


async def test_a_broker_that_forgot_the_locks_has_them_again_as_soon_as_it_is_connected(
    autojump_clock: MockClock,
) -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        switch = Switch(broker)
        async with ordered(switch, Ordered()):
            locks = broker.parts.members.locks
            holder = locks.owner("billing", queue) or ""
            locks.unlock("billing", [queue], holder)
            switch.cut(brokers_only=True)
            switch.connect(broker)
            await until(lambda: locks.owner("billing", queue) == holder, 5)


async def test_a_cancellation_that_comes_with_the_answer_to_a_dead_letter_hits_no_other_queue(
    autojump_clock: MockClock,
) -> None:
    answered, calls = trio.Event(), []

    async def give_back(_message: ReceivedMessage, _delay_level: int) -> bool:
        await answered.wait()
        return True

    async def listener(message: ReceivedMessage) -> None:
        if message.queue_id == 0:
            raise RejectMessage
        await trio.sleep(0.1)
        calls.append(message.offset)

    service = OrderlyService(
        listener,
        group="g",
        batch=1,
        concurrency=1,
        suspension=1,
        give_back=give_back,
        most_retries=lambda: 16,
    )
    leaving, staying = (ProcessQueue(MessageQueue("T", "b", number), 0) for number in range(2))
    async with trio.open_nursery() as nursery:
        service.start(nursery)
        leaving.put([received(0, queue_id=0)], 1)
        service.add(leaving)
        await wait_all_tasks_blocked()
        staying.put([received(0, queue_id=1), received(1, queue_id=1)], 2)
        service.add(staying)
        answered.set()  # the broker's answer and the end of the grace in one pass
        service.interrupt(leaving)
        service.withdraw(leaving)
        with trio.fail_after(10):
            assert await service.wait_settled(leaving)
        await trio.sleep(10)
        assert calls == [0, 1]
        assert (staying.in_flight, staying.commit_offset) == (0, 2)
        assert leaving.commit_offset == 1
        nursery.cancel_scope.cancel()
