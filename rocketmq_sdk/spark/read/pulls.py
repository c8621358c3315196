"""Pulls ranges of offsets ahead of their decoding, in the trio thread of a worker.

Ranges are cut into pieces; a few pieces are pulled at the same time and handed on in
order, so that a broker that gives 32 messages at a time
(`maxTransferCountOnMessageInMemory`, Apache's default) does not cost a round trip for
each 32. Within a piece, where it is known how many messages an answer brings, several
pulls leave together. A piece ends when the next offset reaches its end, never by
counting messages: filters and holes leave some out. No pull waits at the broker.
"""

from __future__ import annotations

import logging
from array import array
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.client.api.pull import (
    PulledRecords,
    pull_records,
    pull_request,
    pulled_records,
)
from rocketmq_sdk.client.together import Together
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import RouteError
from rocketmq_sdk.protocol.flags import PullSysFlag
from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.retry import persistently, side_by_side
from rocketmq_sdk.spark.cluster.view import broker_address, read_group
from rocketmq_sdk.spark.plan.answers import Answer, Judgement, judged
from rocketmq_sdk.spark.plan.loss import DataLossError, GoneError, NotThereYetError
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.read.budget import Budget, Share
from rocketmq_sdk.spark.rows.records import cut_to

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.spark.options.settings import SparkOptions
    from rocketmq_sdk.spark.plan.ranges import Range

logger = logging.getLogger("rocketmq_sdk.spark")
PIECE: Final = 4096
"""Offsets that are handed on together.

Large enough for Arrow, small enough to start on the next piece early.
"""
PIECE_BYTES: Final = 8 << 20
"""Bytes after which a piece is handed on before its end."""
BUDGET: Final = 48 << 20
"""Bytes that all pieces of a task may have in flight, as they are stored.

Compressed bodies are inflated afterwards, some at a time (`RowDecoder.batches`).
"""
IN_FLIGHT: Final = 3
"""Whole pieces that are pulled at the same time."""
MOST_IN_FLIGHT: Final = 8
"""Pieces of few offsets that are pulled at the same time.

A trigger of a stream may read one message from each of hundreds of queues.
"""
BUNDLE_BYTES: Final = 1 << 20
"""Bytes from which pieces are handed on.

Smaller ones go together, as each hand-over and each record batch has its price.
"""
TOGETHER: Final = 64
"""The most pulls of a piece that leave together."""
TOGETHER_BYTES: Final = 1 << 20
"""Bytes that pulls which leave together may bring, by what the last ones brought."""
_PULL_TIMEOUT: Final = 30.0
"""Seconds for one pull, which never waits at the broker."""
ALL_OFFSETS: Final = 1 << 62
"""An offset after all others."""


@attrs.frozen
class PullPlan:
    """What a task needs to know to pull; pickles."""

    connection: ClusterAccess
    group: str
    expression: str
    expression_type: str
    batch_size: int
    retry_timeout: float
    fail_on_data_loss: bool

    @property
    def unfiltered(self) -> bool:
        """Whether every message is asked for."""
        return self.expression_type == "TAG" and self.expression.strip() in ("", "*")

    @classmethod
    def of(cls, settings: SparkOptions, connection: ClusterAccess) -> PullPlan:
        """The part of the options that pulls need."""
        return cls(
            connection,
            settings.read_group,
            settings.sub_expression,
            settings.filter_type,
            settings.pull_batch_size,
            settings.retry_timeout,
            settings.fail_on_data_loss,
        )


@attrs.frozen
class Piece:
    """Records of one queue in a row; those outside of [begin, end) are not meant.

    `count` is how many are meant, where the read asks for every message, else None;
    `covers` are the offsets that were pulled for it. `starts` are the `record_starts`
    of `records`, where they are known.
    """

    queue: QueueKey
    begin: int
    end: int
    records: bytes
    offset_delta: int = 0
    count: int | None = None
    covers: tuple[int, int] = (0, 0)
    starts: array[int] | None = None


async def pull_ranges(
    put: Callable[[Sequence[Piece]], Awaitable[None]], plan: PullPlan, ranges: Sequence[Range]
) -> None:
    """Hand on the records of ranges in order of their offsets, queues taking turns.

    Raises what ends the task.
    """
    async with bridge.client(plan.connection) as client, side_by_side() as nursery:
        waiting: deque[tuple[int, trio.MemoryReceiveChannel[Piece]]] = deque()
        budget, learned = Budget(BUDGET), defaultdict[QueueKey, _Learned](_Learned)
        bundle = _Bundle(put, budget)
        in_flight = 0
        for number, (queue, begin, end) in enumerate(_pieces(ranges)):
            while len(waiting) == MOST_IN_FLIGHT or (
                len(waiting) >= IN_FLIGHT and in_flight + end - begin > IN_FLIGHT * PIECE
            ):
                size, pieces = waiting.popleft()
                in_flight -= size
                await bundle.take(pieces)
            send, receive = trio.open_memory_channel[Piece](2)
            share = Share(budget, number)
            puller = _Puller(client, plan, queue, share, learned[queue])
            nursery.start_soon(puller.pull, begin, end, send)
            waiting.append((end - begin, receive))
            in_flight += end - begin
        for _, pieces in waiting:
            await bundle.take(pieces)
        await bundle.hand_on()


class _Bundle:
    """Pieces that are handed on together."""

    def __init__(self, put: Callable[[Sequence[Piece]], Awaitable[None]], budget: Budget) -> None:
        self._put = put
        self._budget = budget
        self._pieces: list[Piece] = []
        self._size = 0

    async def take(self, pieces: trio.MemoryReceiveChannel[Piece]) -> None:
        """Add pieces as they come; hand them on when they are enough."""
        async with pieces:
            async for piece in pieces:
                self._pieces.append(piece)
                self._size += len(piece.records)
                if self._size >= BUNDLE_BYTES:
                    await self.hand_on()
        self._budget.next_in_turn()

    async def hand_on(self) -> None:
        """Hand on what is there."""
        if self._pieces:
            pieces, size = self._pieces, self._size
            self._pieces, self._size = [], 0
            await self._put(pieces)
            self._budget.give_back(size)


def joined(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Pieces to be decoded, where small ones of a broker become one.

    All records of a joined piece count; records name their topic and queue themselves.
    """
    if len(pieces) == 1:
        yield pieces[0]
        return
    whole = _Whole(pieces[0])
    for piece in pieces:
        if not whole.takes(piece):
            yield from whole.pieces()
            whole = _Whole(piece)
        if not whole.add(piece):
            yield from whole.pieces()
            yield piece
            whole = _Whole(piece)
    yield from whole.pieces()


class _Whole:
    """Pieces of one broker that become one; their records are walked over once."""

    def __init__(self, first: Piece) -> None:
        self._first = first
        self._records: list[bytes] = []
        self._starts = array("i", [0])
        self._count = 0

    def takes(self, piece: Piece) -> bool:
        """Whether a piece is of the same kind."""
        kinds = {(each.queue.broker, each.offset_delta) for each in (self._first, piece)}
        return len(kinds) == 1

    def add(self, piece: Piece) -> bool:
        """Add what is meant of a piece; False for one that must be decoded alone."""
        delta, at = piece.offset_delta, self._starts[-1]
        cut = cut_to(piece.records, piece.begin - delta, piece.end - delta, at=at)
        if cut is None:
            return False
        self._records.append(cut.records)
        self._starts[-1:] = cut.starts
        self._count += piece.count or 0
        return True

    def pieces(self) -> Iterator[Piece]:
        """What was added, as one piece; nothing where nothing was."""
        if self._records:
            yield Piece(
                self._first.queue,
                -1,
                ALL_OFFSETS,
                b"".join(self._records),
                self._first.offset_delta,
                None if self._first.count is None else self._count,
                starts=self._starts,
            )


def _pieces(ranges: Sequence[Range]) -> Iterator[tuple[QueueKey, int, int]]:
    """Cut ranges; the queues take turns, so that several brokers have work."""
    left = deque((item.queue, item.begin, item.end) for item in ranges)
    while left:
        queue, begin, end = left.popleft()
        stop = min(end, begin + PIECE)
        yield queue, begin, stop
        if stop < end:
            left.append((queue, stop, end))


@attrs.define
class _Learned:
    """What the pieces of a queue know from those before them."""

    template: Together | None = None
    stride: int = 0
    """Messages of an answer, where all are asked for and there are more.

    0 when that is not known, or was not so for some.
    """


class _Puller:
    """Pulls one piece of one queue."""

    def __init__(
        self, client: Client, plan: PullPlan, queue: QueueKey, share: Share, learned: _Learned
    ) -> None:
        self._client = client
        self._plan = plan
        self._queue = queue
        self._share = share
        self._topic = client.namespace.wrap(queue.topic)
        self._group = read_group(client, plan.group)
        self._learned = learned
        self._stride = 0

    async def pull(self, begin: int, end: int, send: trio.MemorySendChannel[Piece]) -> None:
        """Hand on [begin, end) in as few pieces as its bytes allow."""
        parts: list[bytes] = []
        size, delta, offset = 0, 0, begin
        first, count = begin, 0

        def piece() -> Piece:
            counted = count if self._plan.unfiltered else None
            return Piece(self._queue, begin, end, b"".join(parts), delta, counted, (first, offset))

        self._stride = self._learned.stride
        async with send:
            while offset < end:
                for found, further in await self._pulled(offset, end):
                    body = found.records
                    if body and (
                        parts and (found.offset_delta != delta or size + len(body) > PIECE_BYTES)
                    ):
                        await send.send(piece())
                        parts, size, first, count = [], 0, offset, 0
                    if body:
                        parts.append(body)
                        size, delta = size + len(body), found.offset_delta
                        count += min(further, end) - offset
                    offset = further
            if parts:
                await send.send(piece())

    async def _pulled(self, offset: int, end: int) -> Sequence[tuple[PulledRecords, int]]:
        """What the next pulls brought, in order, each with the next offset."""
        stride, left = self._stride, end - offset
        number = 1
        if 0 < stride < left:
            fitting = TOGETHER_BYTES // max(1, self._share.guess)
            number = min(-(-left // stride), TOGETHER, max(1, fitting))
        if number > 1:
            return await self._several(range(offset, offset + number * stride, stride), end)
        alone = await self._alone(offset, end, end)
        found, further = alone
        if not found.records or not self._plan.unfiltered:
            self._stride = 0
        elif further < end:  # else it would have brought more
            self._stride = self._learned.stride = further - offset
        return [alone]

    async def _alone(self, offset: int, stop: int, end: int) -> tuple[PulledRecords, int]:
        """One pull of what is in front of `stop`, for a piece that ends at `end`."""
        await self._share.ask()
        found, further = await self._next(offset, stop, end)
        self._share.take(len(found.records))
        return found, further

    async def _several(self, starts: range, end: int) -> Sequence[tuple[PulledRecords, int]]:
        """Pulls that leave together, as the last one told how much an answer brings.

        Where one brings less, the rest is asked for alone; so is what has no answer, or
        another one than messages, as that has to be judged.
        """
        await self._share.ask(len(starts))
        answers = await self._ask_together(starts, end)
        brought = [answer for answer in answers if answer is not None]
        self._share.take(sum(len(each.records) for each in brought), max(1, len(brought)))
        if len(brought) < len(answers):
            self._stride = self._learned.stride = 0
        result: list[tuple[PulledRecords, int]] = []
        offset = starts[0]
        for start, answer in zip(starts, answers, strict=True):
            while offset < start:
                result.append(await self._alone(offset, start, end))
                offset = result[-1][1]
            if answer is None:
                continue
            if offset > start:  # what was asked for alone went on behind it
                self._share.drop(len(answer.records))
                continue
            offset = answer.next_begin_offset
            if offset < end and offset - start < self._stride:
                self._stride, self._learned.stride = offset - start, 0
            result.append((answer, offset))
        return result or [await self._alone(offset, end, end)]

    async def _ask_together(self, starts: range, end: int) -> list[PulledRecords | None]:
        """The answers that brought what was asked for, or its beginning."""
        nothing: list[PulledRecords | None] = [None] * len(starts)
        address = self._client.broker_address(self._queue.broker)
        if address is None:
            return nothing
        header = self._header(starts[0], end)
        if self._learned.template is None:
            fields = ("queueOffset", "maxMsgNums")
            self._learned.template = Together(self._client, pull_request(header), fields)
        asked = [min(starts.step, end - start) for start in starts]
        values = [(str(start), str(most)) for start, most in zip(starts, asked, strict=True)]
        answers = await self._learned.template.ask(address, values, _PULL_TIMEOUT)
        for number, answer in enumerate(answers):
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                found = pulled_records(answer, address, header)
                if 0 < found.next_begin_offset - starts[number] <= asked[number]:
                    nothing[number] = found
        return nothing

    async def _next(self, offset: int, stop: int, end: int) -> tuple[PulledRecords, int]:
        """What one pull brought, and the next offset, which is further."""
        found, judgement = await persistently(
            f"pulling from queue {self._queue} at offset {offset}",
            self._plan.retry_timeout,
            lambda: self._pull(offset, stop),
            refresh=self._refresh,
        )
        if judgement.answer is Answer.EXPIRED:
            self._lost(DataLossError(self._queue, offset, judgement.next_offset))
        elif judgement.answer is Answer.SHRUNK:
            self._lost(GoneError(self._queue, end, judgement.next_offset))
            return found, end
        return found, judgement.next_offset

    def _lost(self, error: DataLossError | GoneError) -> None:
        if self._plan.fail_on_data_loss:
            raise error
        logger.warning("failOnDataLoss is false: %s", error)

    async def _refresh(self) -> None:
        await self._client.route(self._topic, refresh=True)

    async def _pull(self, offset: int, end: int) -> tuple[PulledRecords, Judgement]:
        """Ask once.

        Raises `NotThereYetError` when the broker should have the message, but does not:
        the plan has seen it, so a slave that answers lags behind its master.
        """
        broker = self._queue.broker
        address = await broker_address(self._client, broker, self._topic)
        if address is None:
            raise RouteError(f"no route names the broker {broker!r} of topic {self._topic!r}")
        found = await pull_records(self._client, address, self._header(offset, end), _PULL_TIMEOUT)
        judgement = judged(
            found,
            offset,
            unfiltered=self._plan.unfiltered,
            from_master=address == self._client.broker_address(broker),
        )
        if judgement.answer is Answer.LATER:
            raise NotThereYetError(self._queue, offset, found.max_offset, address)
        return found, judgement

    def _header(self, offset: int, end: int) -> PullMessageRequestHeader:
        return PullMessageRequestHeader(
            consumer_group=self._group,
            topic=self._topic,
            queue_id=self._queue.queue_id,
            queue_offset=offset,
            max_msg_nums=min(self._plan.batch_size, end - offset),
            sys_flag=PullSysFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=self._plan.expression,
            sub_version=0,
            expression_type=self._plan.expression_type,
            bname=self._queue.broker,
        )
