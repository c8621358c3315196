"""Frames become requests; what a task knows about its rows when sending fails."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
import trio
import trio.testing

from rocketmq_sdk.errors import ConfigurationError, MessageIllegalError, RocketMQError, SendTimeout
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.producer.queue_selector import select_by_hash
from rocketmq_sdk.protocol.batch_codec import decode_batch
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.write.rows import BadRowError, RowMaker
from rocketmq_sdk.spark.write.send_plan import SendPlan
from rocketmq_sdk.spark.write.sending import Tally, _Sender

if TYPE_CHECKING:
    from rocketmq_sdk.producer.producer import Producer

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]


def parts_of(*columns: tuple[str, pa.Array]) -> list[Any]:
    counter = itertools.count()
    maker = RowMaker(
        [name for name, _ in columns],
        topic="T",
        scope="s",
        partition=0,
        max_body=1 << 20,
        skip_bad=False,
        next_ids=lambda count: [f"{next(counter):032X}" for _ in range(count)],
    )
    return list(
        maker.parts(
            pa.RecordBatch.from_arrays(
                [array for _, array in columns], names=[name for name, _ in columns]
            )
        )
    )


class Failing:
    """A producer whose sends fail, each with the next of these errors."""

    def __init__(self, *errors: RocketMQError) -> None:
        self.errors = list(errors)

    async def send_encoded_batch(self, topic: str, body: bytes, *, queue: Any = None) -> Any:
        raise self.errors.pop(0)


class Recording:
    """A producer that keeps what it is given; an answer takes a while, a shorter one
    for each request.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[MessageQueue | None, list[bytes]]] = []
        self.pause = 1.0
        self.under_way: dict[MessageQueue | None, int] = {}
        self.most = 0
        self.stored: dict[MessageQueue, int] = {}

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        return QUEUES

    async def send_encoded_batch(
        self, topic: str, body: bytes, *, queue: MessageQueue | None = None
    ) -> SendResult:
        return await self._take(queue, [body for _, body, _ in decode_batch(body)])

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        return await self._take(queue, [message.body])

    async def _take(self, queue: MessageQueue | None, bodies: list[bytes]) -> SendResult:
        self.requests.append((queue, bodies))
        self.under_way[queue] = self.under_way.get(queue, 0) + 1
        self.most = max(self.most, sum(self.under_way.values()))
        if queue is not None:
            assert self.under_way[queue] == 1
        self.pause *= 0.9
        await trio.sleep(self.pause)
        self.under_way[queue] -= 1
        place = queue or QUEUES[0]
        self.stored[place] = self.stored.get(place, 0) + len(bodies)
        return SendResult(
            SendStatus.SEND_OK,
            "",
            "",
            place,
            self.stored[place] - len(bodies),
            None,
            None,
            "",
            trace_on=False,
        )


async def send(
    producer: Any,
    parts: list[Any],
    tally: Tally,
    *,
    batch_size: int = 256,
    batch_bytes: int = 1 << 19,
    skip_bad: bool = False,
) -> None:
    plan = SendPlan(
        cast("Any", None), "group", batch_size, batch_bytes, 0.01, 30, 1 << 20, skip_bad
    )
    async with trio.open_nursery() as nursery:
        sender = _Sender(cast("Producer", producer), plan, tally, nursery)
        for part in parts:
            await sender.take(part)
        await sender.flush()


async def test_a_task_knows_where_its_rows_end(autojump_clock: trio.testing.MockClock) -> None:
    tally, producer = Tally(), Recording()
    keys = pa.array([None if number % 3 == 0 else str(number % 5) for number in range(1000)])
    parts = parts_of(("body", pa.array([b"x"] * 1000)), ("shardingKey", keys))
    await send(producer, parts, tally, batch_size=7)
    assert sum(producer.stored.values()) == 1000
    assert tally.ends == {
        QueueKey("T", queue.broker_name, queue.queue_id): count
        for queue, count in producer.stored.items()
    }
    delayed = parts_of(
        ("body", pa.array([b"x", b"y"])), ("delayLevel", pa.array([3, 3], pa.int32()))
    )
    tally = Tally()
    await send(producer, delayed, tally)
    assert (tally.acknowledged, tally.ends) == (2, {})


@pytest.mark.parametrize(
    ("errors", "unknown"),
    [
        ([ConfigurationError("refused")], 0),
        ([SendTimeout("no answer", outcome_unknown=True), ConfigurationError("refused")], 3),
        ([SendTimeout("not sent", outcome_unknown=False), ConfigurationError("refused")], 0),
    ],
    ids=["refused", "lost, then refused", "not sent, then refused"],
)
async def test_rows_of_a_lost_try_are_of_unknown_outcome(
    autojump_clock: trio.testing.MockClock, errors: list[RocketMQError], unknown: int
) -> None:
    tally = Tally()
    with pytest.raises(ExceptionGroup) as caught:
        await send(Failing(*errors), parts_of(("body", pa.array([b"x"] * 3))), tally)
    assert caught.group_contains(ConfigurationError, match="refused")
    assert (tally.acknowledged, tally.unknown) == (0, unknown)


async def test_rows_under_way_when_a_task_ends_are_of_unknown_outcome(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tally, producer = Tally(), Recording()
    with trio.move_on_after(0.95):
        await send(producer, parts_of(("body", pa.array([b"x"] * 400))), tally, batch_size=4)
    requests = len(
        producer.requests
    )  # eight at a time; rows that wait for room are neither acknowledged nor of unknown outcome
    assert 8 < requests < 100
    assert (tally.acknowledged, tally.unknown) == (4 * (requests - 8), 4 * 8)


class Refusing(Recording):
    """A producer whose broker refuses messages of some bodies."""

    def __init__(self, *refused: bytes) -> None:
        super().__init__()
        self.refused = refused
        self.tries: list[bytes] = []

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        self.tries.append(message.body)
        if message.body in self.refused:
            raise MessageIllegalError(13, "timer message illegal, ...", address="host:1")
        return await super().send(message, queue=queue)


@pytest.mark.parametrize("skip_bad", [False, True])
async def test_a_row_that_a_broker_refuses_is_named_or_skipped(
    autojump_clock: trio.testing.MockClock, skip_bad: bool
) -> None:
    moments = pa.array(
        [None if number % 4 else 1_700_000_000_000_000 for number in range(12)], pa.int64()
    ).view(pa.timestamp("us", tz="UTC"))
    parts = parts_of(
        ("body", pa.array([b"%d" % number for number in range(12)])), ("deliverAt", moments)
    )
    producer, tally = Refusing(b"4", b"8"), Tally()
    if skip_bad:
        await send(producer, parts, tally, skip_bad=True)
        assert (tally.acknowledged, tally.unknown, tally.skipped) == (10, 0, 2)
        assert str(tally.first_skipped).startswith(
            "row 4 of partition 0 cannot be written, column deliverAt: the broker at host:1 "
            "refuses it"
        )
    else:
        with pytest.raises(ExceptionGroup) as caught:
            await send(producer, parts, tally)
        assert caught.group_contains(
            BadRowError, match="row 4 of partition 0 cannot be written, column deliverAt"
        )
    assert max(producer.tries.count(body) for body in producer.tries) == 1, "nothing is sent twice"


async def test_requests_are_filled_up_to_their_limits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parts = [
        part
        for begin in (0, 700, 1400)
        for part in parts_of(("body", pa.array([b"%d" % n for n in range(begin, begin + 700)])))
    ]
    by_count, tally = Recording(), Tally()
    await send(by_count, parts, tally, batch_size=100)
    assert [len(bodies) for _, bodies in by_count.requests] == [100] * 21
    assert [body for _, bodies in by_count.requests for body in bodies] == [
        b"%d" % n for n in range(2100)
    ]
    assert (tally.acknowledged, tally.unknown, by_count.most) == (2100, 0, 8)
    by_size = Recording()
    size = len(parts[0].data)
    await send(by_size, parts, Tally(), batch_size=10_000, batch_bytes=size // 3)
    assert [body for _, bodies in by_size.requests for body in bodies] == [
        b"%d" % n for n in range(2100)
    ]
    assert len(by_size.requests) in (10, 11)
    small = Recording()
    await send(small, parts[:1], Tally(), batch_bytes=1)
    assert [len(bodies) for _, bodies in small.requests] == [1] * 700


async def test_rows_of_a_sharding_key_follow_each_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    numbers = range(400)
    keys = [None if n % 5 == 0 else f"key-{n % 7}" for n in numbers]
    bodies = [b"%d" % n + b" " * (300_000 if n % 50 == 0 or n % 61 == 0 else 0) for n in numbers]
    producer, tally = Recording(), Tally()
    await send(
        producer,
        parts_of(("body", pa.array(bodies)), ("shardingKey", pa.array(keys))),
        tally,
        batch_size=16,
    )
    by_queue: dict[MessageQueue | None, list[int]] = {}
    for queue, found in producer.requests:
        by_queue.setdefault(queue, []).extend(int(body) for body in found)
    probe = Message("T", b"x")
    for queue in QUEUES:
        wanted = [
            n
            for n, key in zip(numbers, keys, strict=True)
            if key is not None and select_by_hash(QUEUES, probe, key) is queue
        ]
        assert by_queue.get(queue, []) == wanted
    assert sorted(by_queue[None]) == [n for n in numbers if n % 5 == 0]
    assert tally.acknowledged == 400


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "GMT+02:00"])
def test_moments_of_every_time_zone(zone: str) -> None:
    moments = pa.array([1_700_000_000_123_456, None], pa.int64()).view(pa.timestamp("us", tz=zone))
    delayed, frames = parts_of(("body", pa.array([b"a", b"b"])), ("deliverAt", moments))
    assert delayed.message.deliver_at_ms == 1_700_000_000_123
    assert [body for _, body, _ in decode_batch(bytes(frames.data))] == [b"b"]
