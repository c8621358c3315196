"""Traffic that touches every metric of a broker, the same for Apache's and for ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from rocketmq_sdk import (
    Admin,
    ConsumeFrom,
    Message,
    PoppedMessage,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.frozen
class Names:
    """What the traffic uses; one topic for each kind of message."""

    normal: str = "metricsNormal"
    fifo: str = "metricsFifo"
    delay: str = "metricsDelay"
    timer: str = "metricsTimer"
    transaction: str = "metricsTransaction"
    failing: str = "metricsFailing"
    popped: str = "metricsPopped"
    group: str = "metricsGroup"
    pop_group: str = "metricsPopGroup"
    failing_group: str = "metricsFailingGroup"
    producers: str = "metricsProducers"

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics."""
        return (
            self.normal,
            self.fifo,
            self.delay,
            self.timer,
            self.transaction,
            self.failing,
            self.popped,
        )


async def _checker(_message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def make_traffic(namesrv: Any, scrape: Callable[[], Any], names: Names | None = None) -> str:
    """Send, consume, fail, pop and transact; `scrape` while members are there."""
    names = names or Names()
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.topic == names.failing:
            raise RuntimeError("as the test wants it")

    async with Admin(namesrv=namesrv) as admin:
        for topic in names.topics:
            await admin.topics.create(topic, queues=2)
        for group in (names.group, names.pop_group, names.failing_group):
            await admin.groups.create(group)
    both: dict[str, Any] = {"namesrv": namesrv, "consume_from": ConsumeFrom.FIRST_OFFSET}
    subscriptions = {topic: "*" for topic in names.topics if topic != names.failing}
    del subscriptions[names.popped]
    async with (
        Producer(names.producers, namesrv=namesrv) as producer,
        TransactionProducer(f"{names.producers}T", _checker, namesrv=namesrv) as transactions,
        PushConsumer(names.group, subscriptions=subscriptions, listener=listener, **both),
        PushConsumer(
            names.failing_group,
            subscriptions={names.failing: "*"},
            listener=listener,
            max_reconsume_times=0,
            **both,
        ),
        SimpleConsumer(
            names.pop_group, namesrv=namesrv, subscriptions={names.popped: "*"}
        ) as popping,
    ):
        for number in range(3):
            await producer.send(Message(names.normal, b"normal%d" % number))
        await producer.send(Message(names.normal, b"x" * 2000))
        await producer.send_batch([Message(names.normal, b"batch%d" % n) for n in range(5)])
        await producer.send(Message(names.fifo, b"fifo", sharding_key="one"))
        await producer.send(Message(names.delay, b"delay", delay_level=1))
        await producer.send(Message(names.timer, b"timer", delay=2.0))
        await producer.send(Message(names.timer, b"far", delay=3000.0))
        await producer.send(Message(names.failing, b"failing"))
        async with transactions.transaction(Message(names.transaction, b"kept")):
            pass
        async with transactions.transaction(Message(names.transaction, b"undone")) as undone:
            undone.rollback()
        async with transactions.transaction(Message(names.transaction, b"open")) as left_open:
            left_open.unknown()
        for number in range(4):
            await producer.send(Message(names.popped, b"popped%d" % number))
        popped = await _pop(popping, 2)
        await popping.ack(popped[0])
        expected = {b"normal2", b"batch4", b"fifo", b"delay", b"timer", b"kept", b"failing"}
        await until(lambda: expected <= set(seen))
        await trio.sleep(2.0)
        found: str = await scrape()
        return found


async def _pop(consumer: SimpleConsumer, wanted: int) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    with trio.fail_after(60):
        while len(found) < wanted:
            found += await consumer.receive(1, invisible_duration=10.0)
    return found
