"""Messages of a task on their way to the brokers, in the trio thread: batched, several requests at a time, each tried again until acknowledged."""

import logging
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.producer.queue_selector import select_by_hash
from rocketmq_sdk.spark import bridge
from rocketmq_sdk.spark.retry import persistently, side_by_side

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.results import SendResult
    from rocketmq_sdk.producer.producer import Producer
    from rocketmq_sdk.spark.connection import Connection
    from rocketmq_sdk.spark.options import Settings

logger = logging.getLogger("rocketmq_sdk.spark")
REQUESTS_AT_ONCE: Final = 8
"""Requests of a task that are under way at the same time; one for each queue where a sharding key orders rows."""
_Lane = tuple[str, "MessageQueue | None"]


@attrs.frozen
class SendPlan:
    """What a task needs to know to send; pickles."""

    connection: "Connection"
    group: str
    batch_size: int
    batch_bytes: int
    linger: float
    retry_timeout: float

    @classmethod
    def of(cls, settings: "Settings", connection: "Connection") -> "SendPlan":
        """The part of the options that sends need."""
        return cls(
            connection, settings.producer_group, settings.batch_size, settings.batch_bytes, settings.linger, settings.retry_timeout
        )


@attrs.define
class Tally:
    """What became of the rows of a task."""

    acknowledged: int = 0
    unknown: int = 0
    weak: int = 0
    """Acknowledged, but not yet flushed or copied as the broker is set to."""


class _Sender:
    """Collects messages into requests and sends them."""

    def __init__(self, producer: "Producer", plan: SendPlan, tally: Tally, nursery: trio.Nursery) -> None:
        self._producer = producer
        self._plan = plan
        self._tally = tally
        self._nursery = nursery
        self._room = trio.Semaphore(REQUESTS_AT_ONCE)
        self._waiting: dict[_Lane, list[Message]] = {}
        self._bytes: dict[_Lane, int] = {}
        self._in_order: dict[MessageQueue, trio.Lock] = {}

    async def take(self, messages: "Sequence[Message]") -> None:
        """Add messages; returns when there is room for more."""
        for message in messages:
            if message.delay_level or message.deliver_at_ms is not None:
                await self._start((message.topic, None), [message])
                continue
            lane: _Lane = (message.topic, await self._queue_of(message) if message.sharding_key else None)
            size = len(message.body) + len(message.property_text()) + 80
            waiting = self._waiting.setdefault(lane, [])
            if waiting and (len(waiting) >= self._plan.batch_size or self._bytes[lane] + size > self._plan.batch_bytes):
                await self._start(lane, self._waiting.pop(lane))
                waiting = self._waiting[lane] = []
            waiting.append(message)
            self._bytes[lane] = size + (self._bytes[lane] if len(waiting) > 1 else 0)

    async def flush(self) -> None:
        """Start what is waiting for more of its lane."""
        for lane in list(self._waiting):
            await self._start(lane, self._waiting.pop(lane))

    @property
    def is_waiting(self) -> bool:
        """Whether messages wait for others."""
        return bool(self._waiting)

    async def _queue_of(self, message: "Message") -> "MessageQueue":
        queues = await persistently(
            f"asking for the queues of topic {message.topic!r}", self._plan.retry_timeout, lambda: self._producer.publish_queues(message.topic)
        )
        return select_by_hash(queues, message, message.sharding_key)

    async def _start(self, lane: _Lane, messages: "list[Message]") -> None:
        await self._room.acquire()
        lock = None
        if lane[1] is not None:
            lock = self._in_order.setdefault(lane[1], trio.Lock())
            turn = trio.Event()
            self._nursery.start_soon(self._send_in_order, lane, messages, lock, turn)
            await turn.wait()
        else:
            self._nursery.start_soon(self._send, lane, messages)

    async def _send_in_order(self, lane: _Lane, messages: "list[Message]", lock: trio.Lock, turn: trio.Event) -> None:
        async with lock:  # the lock is fair, and the next of this queue is started when this one has it
            turn.set()
            await self._send(lane, messages)

    async def _send(self, lane: _Lane, messages: "list[Message]") -> None:
        count, done, lost = len(messages), False, False
        call = self._call(lane, messages)

        async def attempt() -> "SendResult":
            nonlocal lost
            try:
                return await call()
            except RocketMQError as error:
                lost = lost or error.outcome_unknown
                raise

        try:
            result = await persistently(f"sending to topic {lane[0]!r}", self._plan.retry_timeout, attempt)
            done = True
        except RocketMQError:
            done = not lost  # an earlier try may be stored though the last one was refused
            raise
        finally:
            self._room.release()
            if not done:
                self._tally.unknown += count
        self._tally.acknowledged += count
        if result.status is not SendStatus.SEND_OK:
            self._tally.weak += count

    def _call(self, lane: _Lane, messages: "list[Message]") -> "Callable[[], Awaitable[SendResult]]":
        queue = lane[1]
        if len(messages) == 1:
            return lambda: self._producer.send(messages[0], queue=queue)
        return lambda: self._producer.send_batch(messages, queue=queue)


async def send_all(receive: "trio.MemoryReceiveChannel[Sequence[Message]]", plan: SendPlan, tally: Tally) -> None:
    """Send everything that comes through a channel; returns when it is closed and all of it is acknowledged.

    Raises what no retry mends. Cancelled, what is under way may arrive or not.
    """
    async with receive, bridge.producer(plan.connection, plan.group) as producer, side_by_side() as nursery:
        sender = _Sender(producer, plan, tally, nursery)
        while True:
            messages: Sequence[Message] | None = None
            with trio.move_on_after(plan.linger if sender.is_waiting else float("inf")):
                try:
                    messages = await receive.receive()
                except trio.EndOfChannel:
                    break
            if messages is None:
                await sender.flush()
            else:
                await sender.take(messages)
        await sender.flush()
