"""What one pull means: where to go on, what is lost, and that no pull waits or reads beyond the end of its range."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from rocketmq_sdk import Client, EmbeddedBroker, Message, Producer
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pull import PullMessageResponseHeader
from rocketmq_sdk.spark import bridge
from rocketmq_sdk.spark.connection import Connection
from rocketmq_sdk.spark.offsets import QueueKey
from rocketmq_sdk.spark.plan import Range
from rocketmq_sdk.spark.pulls import DataLossError, GoneError, Piece, PullPlan, pull_ranges
from rocketmq_sdk.spark.records import Record, read_records

PLAN = PullPlan(Connection("unused:1"), "*", "TAG", 32, 20.0, True)
OFFSET = Record._fields.index("queue_offset")


class Watched:
    """The requests of a client."""

    def __init__(self) -> None:
        self.pulls: list[dict[str, str]] = []
        self.answer: Command | None = None

    def before(self, command: Command, address: str | None) -> None:
        if command.code == RequestCode.PULL_MESSAGE:
            self.pulls.append(dict(command.ext_fields))

    def after(self, command: Command, response: Command, address: str | None) -> None:
        if command.code == RequestCode.PULL_MESSAGE and self.answer is not None:
            response.code, response.ext_fields, response.body = self.answer.code, self.answer.ext_fields, b""
            self.answer = None


@asynccontextmanager
async def queues(count: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[list[QueueKey], Watched]]:
    """A topic of two queues with `count` messages in each."""
    watched = Watched()
    async with EmbeddedBroker() as broker, Client(broker, interceptors=[watched]) as client:
        async with Producer("filler", client=client) as producer:
            await producer.create_topic("T", queues=2)
            for queue in await producer.publish_queues("T"):
                for begin in range(0, count, 100):
                    part = [Message("T", b"%d" % number, tags="AB"[number % 2]) for number in range(begin, min(begin + 100, count))]
                    await producer.send_batch(part, queue=queue)
            found = [QueueKey("T", queue.broker_name, queue.queue_id) for queue in await producer.publish_queues("T")]

        @asynccontextmanager
        async def lent(_connection: Connection) -> AsyncIterator[Client]:
            yield client

        monkeypatch.setattr(bridge, "client", lent)
        yield sorted(found), watched


async def pulled(plan: PullPlan, ranges: list[Range]) -> list[Piece]:
    pieces: list[Piece] = []

    async def put(piece: Piece) -> None:
        pieces.append(piece)

    with trio.fail_after(1000):
        await pull_ranges(put, plan, ranges)
    return pieces


def offsets(pieces: list[Piece], queue: QueueKey) -> list[object]:
    """The offsets that count: a filtered pull may bring messages behind the end of its piece."""
    found: list[object] = []
    for piece in pieces:
        if piece.queue == queue:
            found += (row[OFFSET] for row in read_records(piece.records) if row[OFFSET] in range(piece.begin, piece.end))
    return found


async def test_ranges_are_pulled_whole_in_order_and_not_beyond(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with queues(300, monkeypatch) as ((first, second), watched):
        pieces = await pulled(PLAN, [Range(first, 10, 260), Range(second, 0, 3)])
        assert offsets(pieces, first) == list(range(10, 260))
        assert offsets(pieces, second) == [0, 1, 2]
        ends = {str(first.queue_id): 260, str(second.queue_id): 3}
        assert all(int(pull["queueOffset"]) + int(pull["maxMsgNums"]) <= ends[pull["queueId"]] for pull in watched.pulls)
        assert {pull["suspendTimeoutMillis"] for pull in watched.pulls} == {"0"}


async def test_a_filter_ends_a_range_by_its_offsets(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with queues(100, monkeypatch) as ((first, _), _watched):
        assert offsets(await pulled(attrs.evolve(PLAN, expression="B"), [Range(first, 0, 50)]), first) == list(range(1, 50, 2))
        assert await pulled(attrs.evolve(PLAN, expression="nothing"), [Range(first, 0, 100)]) == []


async def test_large_ranges_take_turns(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_sdk.spark.pulls.PIECE", 50)
    async with queues(200, monkeypatch) as ((first, second), _watched):
        pieces = await pulled(PLAN, [Range(first, 0, 200), Range(second, 0, 200)])
        assert [piece.queue for piece in pieces] == [first, second] * 4
        assert offsets(pieces, first) == offsets(pieces, second) == list(range(200))


def moved(begin: int, end: int) -> Command:
    header = PullMessageResponseHeader(suggest_which_broker_id=0, next_begin_offset=begin, min_offset=begin, max_offset=end)
    return Command(ResponseCode.PULL_OFFSET_MOVED, ext_fields=header.to_ext())


async def test_expired_messages(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async with queues(100, monkeypatch) as ((first, _), watched):
        watched.answer = moved(40, 100)
        with pytest.raises(DataLossError, match=f"the queue {first} should be read from offset 0 on, but the broker's messages begin at 40"):
            await pulled(PLAN, [Range(first, 0, 100)])
        watched.answer = moved(40, 100)
        with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
            assert offsets(await pulled(attrs.evolve(PLAN, fail_on_data_loss=False), [Range(first, 0, 100)]), first) == list(range(40, 100))
        assert "begin at 40" in caplog.text


async def test_a_queue_that_ends_too_early(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with queues(100, monkeypatch) as ((first, _), _watched):
        with pytest.raises(GoneError, match=f"the queue {first} should be read up to offset 150, but ends at 100"):
            await pulled(PLAN, [Range(first, 50, 150)])
        assert offsets(await pulled(attrs.evolve(PLAN, fail_on_data_loss=False), [Range(first, 50, 150)]), first) == list(range(50, 100))
