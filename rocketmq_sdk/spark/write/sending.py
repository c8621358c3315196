"""Sends the messages of a task, in the trio thread.

They are batched, with several requests at a time, each retried until acknowledged.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.errors import MessageIllegalError, RocketMQError
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.producer.queue_selector import key_hash
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.retry import persistently, side_by_side
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.write.rows import BadRowError, LoneRow
from rocketmq_sdk.spark.write.visible import Ends

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.results import SendResult
    from rocketmq_sdk.producer.producer import Producer
    from rocketmq_sdk.spark.write.columns import Frames
    from rocketmq_sdk.spark.write.send_plan import SendPlan

logger = logging.getLogger("rocketmq_sdk.spark")
REQUESTS_AT_ONCE: Final = 8
"""Requests of a task that are under way at the same time.

One for each queue where a sharding key orders rows.
"""
DEFAULT_LARGEST: Final = 4 * 1024 * 1024
"""Bytes that a producer sends at most in one body unless it is told otherwise."""
_Lane = tuple[str, "MessageQueue | None"]


@attrs.define
class Tally:
    """What became of the rows of a task."""

    acknowledged: int = 0
    size: int = 0
    """Bytes of what was acknowledged: bodies before they are compressed, properties."""
    unknown: int = 0
    weak: int = 0
    """Acknowledged, but not yet flushed or copied as the broker is set to."""
    skipped: int = 0
    """Refused by a broker, and left out."""
    first_skipped: BadRowError | None = None
    ends: Ends = attrs.field(factory=dict)
    """Lowest possible ends of the queues, by what was acknowledged.

    Rows that the broker holds back for later do not count.
    """

    def place(self, topic: str, result: SendResult, count: int) -> None:
        """Note where so many rows of one request were put."""
        queue = QueueKey(topic, result.queue.broker_name, result.queue.queue_id)
        self.ends[queue] = max(self.ends.get(queue, 0), result.queue_offset + count)

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} rows were acknowledged, of {self.unknown} rows nobody knows "
            "whether they are stored"
        )


@attrs.define
class _Load:
    """Frames that gather for one request."""

    parts: list[memoryview] = attrs.field(factory=list)
    count: int = 0
    size: int = 0


class _Sender:
    """Collects frames into requests and sends them."""

    def __init__(
        self, producer: Producer, plan: SendPlan, tally: Tally, nursery: trio.Nursery
    ) -> None:
        self._producer = producer
        self._plan = plan
        self._tally = tally
        self._nursery = nursery
        self._room = trio.Semaphore(REQUESTS_AT_ONCE)
        self._waiting: dict[_Lane, _Load] = {}
        self._in_order: dict[MessageQueue, trio.Lock] = {}

    async def take(self, part: Frames | LoneRow) -> None:
        """Add what is to be sent; returns when there is room for more."""
        if isinstance(part, LoneRow):
            await self._send_alone(part)
        elif part.sharding is None:
            await self._gather((part.topic, None), part, 0, len(part))
        else:
            lanes = await self._lanes(part)
            begin = 0
            for end in range(1, len(part) + 1):  # rows of one lane in a row are gathered together
                if end == len(part) or lanes[end] is not lanes[begin]:
                    await self._gather(lanes[begin], part, begin, end)
                    begin = end

    async def flush(self) -> None:
        """Start what is waiting for more of its lane."""
        for lane in list(self._waiting):
            await self._start_waiting(lane)

    @property
    def is_waiting(self) -> bool:
        """Whether messages wait for others."""
        return bool(self._waiting)

    async def _gather(self, lane: _Lane, frames: Frames, begin: int, end: int) -> None:
        """Add a slice of frames to what waits in a lane, and send what is full."""
        offsets, plan = frames.offsets, self._plan
        while begin < end:
            load = self._waiting.get(lane)
            if load is None:
                load = self._waiting[lane] = _Load()
            room = offsets[begin] + plan.batch_bytes - load.size
            stop = (
                bisect_right(
                    offsets, room, begin, min(end, begin + plan.batch_size - load.count) + 1
                )
                - 1
            )
            if stop <= begin:
                if load.count:
                    await self._start_waiting(lane)
                    continue
                stop = begin + 1
            load.parts.append(frames.data[offsets[begin] : offsets[stop]])
            load.count += stop - begin
            load.size += offsets[stop] - offsets[begin]
            begin = stop

    async def _send_alone(self, lone: LoneRow) -> None:
        """Send a message in a request of its own.

        It goes after what came before it for the same queue.
        """
        message = lone.message
        delayed = message.is_delayed
        queue = None
        if message.sharding_key and not delayed:
            queues = await self._queues_of(message.topic)
            queue = queues[abs(key_hash(message.sharding_key)) % len(queues)]
            if (message.topic, queue) in self._waiting:
                await self._start_waiting((message.topic, queue))

        async def call() -> SendResult:
            try:
                result = await self._producer.send(message, queue=queue)
            except MessageIllegalError as error:
                raise lone.refused(error) from error
            if not delayed:
                self._tally.place(message.topic, result, 1)
            return result

        size = len(message.body) + len(message.property_text().encode())
        await self._start((message.topic, queue), 1, size, call)

    async def _queues_of(self, topic: str) -> list[MessageQueue]:
        return await persistently(
            f"asking for the queues of topic {topic!r}",
            self._plan.retry_timeout,
            lambda: self._producer.publish_queues(topic),
        )

    async def _lanes(self, frames: Frames) -> list[_Lane]:
        """The lane of each frame: that of its queue where it has a sharding key."""
        assert frames.sharding is not None
        queues = await self._queues_of(frames.topic)
        of_queue: list[_Lane] = [(frames.topic, queue) for queue in queues]
        known: dict[str | None, _Lane] = {None: (frames.topic, None)}
        for key in set(frames.sharding):
            if key is not None:
                known[key] = of_queue[abs(key_hash(key)) % len(queues)]
        return [known[key] for key in frames.sharding]

    async def _start_waiting(self, lane: _Lane) -> None:
        load = self._waiting.pop(lane)
        body, (topic, queue) = b"".join(load.parts), lane

        async def call() -> SendResult:
            result = await self._producer.send_encoded_batch(topic, body, queue=queue)
            self._tally.place(topic, result, load.count)
            return result

        await self._start(lane, load.count, load.size, call)

    async def _start(
        self, lane: _Lane, count: int, size: int, call: Callable[[], Awaitable[SendResult]]
    ) -> None:
        await self._room.acquire()
        if lane[1] is not None:
            lock = self._in_order.setdefault(lane[1], trio.Lock())
            turn = trio.Event()
            self._nursery.start_soon(self._send_in_order, lane, count, size, call, lock, turn)
            await turn.wait()
        else:
            self._nursery.start_soon(self._send, lane, count, size, call)

    async def _send_in_order(
        self,
        lane: _Lane,
        count: int,
        size: int,
        call: Callable[[], Awaitable[SendResult]],
        lock: trio.Lock,
        turn: trio.Event,
    ) -> None:
        async with (
            lock
        ):  # the lock is fair, and the next of this queue is started when this one has it
            turn.set()
            await self._send(lane, count, size, call)

    async def _send(
        self, lane: _Lane, count: int, size: int, call: Callable[[], Awaitable[SendResult]]
    ) -> None:
        under_way = lost = False

        async def attempt() -> SendResult:
            nonlocal under_way, lost
            under_way = True
            try:
                return await call()
            except RocketMQError as error:
                under_way = False
                lost = (
                    lost or error.outcome_unknown
                )  # an earlier try may be stored though the last one was refused
                raise

        topic, queue = lane
        what = (
            f"sending to topic {topic!r}"
            if queue is None
            else f"sending to queue {QueueKey(topic, queue.broker_name, queue.queue_id)}"
        )
        try:
            result = await persistently(what, self._plan.retry_timeout, attempt)
        except BaseException as error:
            if under_way or lost:
                self._tally.unknown += count
            if isinstance(error, BadRowError) and self._plan.skip_bad:
                self._tally.skipped += count
                self._tally.first_skipped = self._tally.first_skipped or error
                return
            raise
        finally:
            self._room.release()
        self._tally.acknowledged += count
        self._tally.size += size
        if result.status is not SendStatus.SEND_OK:
            self._tally.weak += count


async def send_all(
    receive: trio.MemoryReceiveChannel[Frames | LoneRow], plan: SendPlan, tally: Tally
) -> None:
    """Send everything that comes through a channel.

    Returns when the channel is closed and everything is acknowledged.

    Raises what no retry mends. Cancelled, what is under way may arrive or not.
    """
    largest = max(plan.max_body, DEFAULT_LARGEST)
    async with (
        receive,
        bridge.producer(plan.connection, plan.group, max_message_size=largest) as producer,
        side_by_side() as nursery,
    ):
        sender = _Sender(producer, plan, tally, nursery)
        while True:
            part: Frames | LoneRow | None = None
            with trio.move_on_after(plan.linger if sender.is_waiting else float("inf")):
                try:
                    part = await receive.receive()
                except trio.EndOfChannel:
                    break
            if part is None:
                await sender.flush()
            else:
                await sender.take(part)
        await sender.flush()
