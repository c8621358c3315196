"""What one pull means: where to go on, what is lost, and that no pull waits or reads
beyond the end of its range.
"""

from __future__ import annotations

import logging
from array import array
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk import Admin, Client, EmbeddedBroker, Message, Producer
from rocketmq_sdk.client.together import Together
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.headers.pull import PullMessageResponseHeader
from rocketmq_sdk.protocol.message_codec import encode_record
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.retry import UnreachableError
from rocketmq_sdk.spark.plan.loss import DataLossError, GoneError
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.plan.ranges import Range
from rocketmq_sdk.spark.read.gaps import first_gap, report_gaps
from rocketmq_sdk.spark.read.pulls import Piece, PullPlan, joined, pull_ranges
from rocketmq_sdk.spark.rows.records import Record, cut_to, read_records, record_starts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from trio.testing import MockClock

PLAN = PullPlan(ClusterAccess("unused:1"), "TOOLS_CONSUMER", "*", "TAG", 32, 20.0, True)
OFFSET = Record._fields.index("queue_offset")


def rows_of(data: bytes, offset_delta: int = 0) -> list[tuple[object, ...]]:
    return read_records(data, record_starts(data), offset_delta=offset_delta)


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
            response.code, response.ext_fields, response.body = (
                self.answer.code,
                self.answer.ext_fields,
                self.answer.body,
            )
            self.answer = None


@asynccontextmanager
async def queues(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[list[QueueKey], Watched]]:
    """A topic of two queues with `count` messages in each."""
    watched = Watched()
    async with EmbeddedBroker() as broker, Client(broker, interceptors=[watched]) as client:
        async with Producer("filler", client=client) as producer:
            await Admin(client=producer.client).topics.create("T", queues=2)
            for queue in await producer.publish_queues("T"):
                for begin in range(0, count, 100):
                    part = [
                        Message("T", b"%d" % number, tags="AB"[number % 2])
                        for number in range(begin, min(begin + 100, count))
                    ]
                    await producer.send_batch(part, queue=queue)
            found = [
                QueueKey("T", queue.broker_name, queue.queue_id)
                for queue in await producer.publish_queues("T")
            ]

        @asynccontextmanager
        async def lent(_connection: ClusterAccess) -> AsyncIterator[Client]:
            yield client

        monkeypatch.setattr(bridge, "client", lent)
        yield sorted(found), watched


async def pulled(plan: PullPlan, ranges: list[Range]) -> list[Piece]:
    pieces: list[Piece] = []

    async def put(bundle: Sequence[Piece]) -> None:
        pieces.extend(bundle)

    with trio.fail_after(1000):
        await pull_ranges(put, plan, ranges)
    return pieces


def offsets(pieces: list[Piece], queue: QueueKey) -> list[object]:
    """The offsets that count: a filtered pull may bring messages behind the end of its
    piece.
    """
    found: list[object] = []
    for piece in pieces:
        if piece.queue == queue:
            found += (
                row[OFFSET]
                for row in rows_of(piece.records)
                if row[OFFSET] in range(piece.begin, piece.end)
            )
    return found


async def test_ranges_are_pulled_whole_in_order_and_not_beyond(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queues(300, monkeypatch) as ((first, second), watched):
        pieces = await pulled(PLAN, [Range(first, 10, 260), Range(second, 0, 3)])
        assert offsets(pieces, first) == list(range(10, 260))
        assert offsets(pieces, second) == [0, 1, 2]
        ends = {str(first.queue_id): 260, str(second.queue_id): 3}
        assert all(
            int(pull["queueOffset"]) + int(pull["maxMsgNums"]) <= ends[pull["queueId"]]
            for pull in watched.pulls
        )
        assert {pull["suspendTimeoutMillis"] for pull in watched.pulls} == {"0"}


async def test_pulls_of_a_piece_leave_together_when_it_is_known_what_an_answer_brings(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that brings less than those before, has no answer or another one is made up
    for alone; what comes behind it is not asked for again.
    """
    async with queues(300, monkeypatch) as ((first, _), watched):
        asked: list[int] = []

        ask = Together.ask

        async def seen(*given: Any) -> list[Command | None]:
            answers = await ask(*given)
            asked.append(len(answers))
            for number, change in changes.items():
                answers[number] = change(answers[number])
            return answers

        def shorter(answer: Command | None) -> Command:
            assert answer is not None
            begin = int(answer.ext_fields["nextBeginOffset"]) - 12
            starts = record_starts(answer.body)
            assert starts is not None
            fields = {**answer.ext_fields, "nextBeginOffset": str(begin)}
            return Command(answer.code, ext_fields=fields, body=answer.body[: starts[20]])

        def refused(_: Command | None) -> Command:
            return Command(ResponseCode.SYSTEM_BUSY, remark="busy")

        monkeypatch.setattr(Together, "ask", seen)
        changes: dict[int, Callable[[Command | None], Command | None]] = {}
        cases: list[tuple[dict[int, Callable[[Command | None], Command | None]], int]] = [
            ({}, 1),
            ({1: shorter, 3: shorter}, 3),
            ({0: refused, 4: lambda _: None}, 3),
            (dict.fromkeys(range(8), refused), 9),
        ]
        for changed, pulled_alone in cases:
            changes.clear()
            changes.update(changed)
            asked.clear()
            watched.pulls.clear()
            brought = await pulled(PLAN, [Range(first, 10, 290)])
            assert offsets(brought, first) == list(range(10, 290))
            assert sum(asked) == 8
            assert len(watched.pulls) == 8 + pulled_alone
            assert max(int(pull["maxMsgNums"]) for pull in watched.pulls) == 32
            assert sum(piece.count or 0 for piece in brought) == 280


async def test_a_filter_ends_a_range_by_its_offsets(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queues(100, monkeypatch) as ((first, _), _watched):
        assert offsets(
            await pulled(attrs.evolve(PLAN, expression="B"), [Range(first, 0, 50)]), first
        ) == list(range(1, 50, 2))
        assert await pulled(attrs.evolve(PLAN, expression="nothing"), [Range(first, 0, 100)]) == []


async def test_what_an_answer_brings_is_known_to_the_next_pieces(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not what the end of a piece has cut off."""
    monkeypatch.setattr("rocketmq_sdk.spark.read.pulls.PIECE", 100)
    monkeypatch.setattr("rocketmq_sdk.spark.read.pulls.MOST_IN_FLIGHT", 1)
    together: list[int] = []
    ask = Together.ask

    async def seen(self: Together, address: str, values: Any, timeout: float) -> Any:
        together.append(len(values))
        return await ask(self, address, values, timeout)

    monkeypatch.setattr(Together, "ask", seen)
    async with queues(300, monkeypatch) as ((first, _), watched):
        pieces = await pulled(PLAN, [Range(first, 0, 300)])
        assert offsets(pieces, first) == list(range(300))
        assert together == [3, 4, 4]  # the first pull of all was alone
        assert [int(pull["maxMsgNums"]) for pull in watched.pulls] == [32, 32, 32, 4] * 3


async def test_large_ranges_take_turns(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_sdk.spark.read.pulls.PIECE", 50)
    async with queues(200, monkeypatch) as ((first, second), _watched):
        pieces = await pulled(PLAN, [Range(first, 0, 200), Range(second, 0, 200)])
        assert [piece.queue for piece in pieces] == [first, second] * 4
        assert offsets(pieces, first) == offsets(pieces, second) == list(range(200))


async def test_small_pieces_of_many_ranges_come_together(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundles: list[list[Piece]] = []

    async def put(bundle: Sequence[Piece]) -> None:
        bundles.append(list(bundle))

    async with queues(100, monkeypatch) as ((first, second), watched):
        ranges = [
            Range(queue, begin, begin + 2) for begin in range(0, 40, 2) for queue in (first, second)
        ]
        await pull_ranges(put, PLAN, ranges)
        assert [
            Range(piece.queue, piece.begin, piece.end) for bundle in bundles for piece in bundle
        ] == ranges
        assert len(bundles) == 1
        assert len(watched.pulls) == 40
        monkeypatch.setattr("rocketmq_sdk.spark.read.pulls.BUNDLE_BYTES", 1)
        bundles.clear()
        await pull_ranges(put, PLAN, ranges)
        assert len(bundles) == 40


async def test_only_so_many_offsets_are_pulled_at_the_same_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_sdk.spark.read.pulls.PIECE", 30)
    for size, most in ((30, 3), (1, 8), (20, 4)):
        under_way, seen = 0, 0

        async def pull(
            _self: object, _begin: int, _end: int, send: trio.MemorySendChannel[Piece]
        ) -> None:
            nonlocal under_way, seen
            async with send:
                under_way += 1
                seen = max(seen, under_way)
                await trio.sleep(1)
                under_way -= 1

        async with queues(1, monkeypatch) as ((first, _), _watched):
            with monkeypatch.context() as patched:
                patched.setattr("rocketmq_sdk.spark.read.pulls._Puller.pull", pull)
                assert (
                    await pulled(PLAN, [Range(first, begin, begin + size) for begin in range(20)])
                    == []
                )
        assert seen == most


def stored(offset: int, *, sys_flag: int = 0, queue: int = 0) -> bytes:
    return encode_record(
        b"T",
        b"%d" % offset,
        b"",
        queue_id=queue,
        flag=0,
        queue_offset=offset,
        physical_offset=offset,
        sys_flag=sys_flag,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=1,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_offset=0,
    )


def piece(
    queue: QueueKey,
    offsets: Sequence[int],
    begin: int,
    end: int,
    *,
    delta: int = 0,
    odd: bool = False,
) -> Piece:
    flag = SysFlag.INNER_BATCH if odd else 0
    return Piece(
        queue,
        begin,
        end,
        b"".join(stored(offset, sys_flag=flag, queue=queue.queue_id) for offset in offsets),
        delta,
    )


A0, A1, B0 = QueueKey("T", "a", 0), QueueKey("T", "a", 1), QueueKey("T", "b", 0)


def as_one(pieces: Sequence[Piece]) -> list[tuple[str, list[object]]]:
    return [
        (
            item.queue.broker,
            [
                row[OFFSET]
                for row in read_records(
                    item.records, record_starts(item.records), offset_delta=item.offset_delta
                )
            ],
        )
        for item in joined(pieces)
        if item.starts in (None, record_starts(item.records) or array("i", [0]))
    ]


def test_small_pieces_are_decoded_as_one_without_what_is_not_meant() -> None:
    assert as_one(
        [piece(A0, range(5), 1, 3), piece(A1, range(7, 9), 0, 100), piece(B0, [3], 3, 4)]
    ) == [("a", [1, 2, 7, 8]), ("b", [3])]
    assert as_one([piece(A0, range(5), 101, 103, delta=100), piece(A1, range(2), 0, 2)]) == [
        ("a", [101, 102]),
        ("a", [0, 1]),
    ]
    assert as_one([piece(A0, [1], 5, 6), piece(A1, [], 5, 6)]) == [("a", [])]


def test_pieces_with_inner_batches_are_decoded_alone_and_in_their_turn() -> None:
    odd = piece(A0, [2], 0, 9, odd=True)
    found = list(
        joined(
            [
                piece(A0, [1], 0, 9),
                odd,
                piece(A0, [3], 0, 9),
                attrs.evolve(odd, records=odd.records[:-1]),
            ]
        )
    )
    assert [item.records for item in found] == [stored(1), odd.records, stored(3), odd.records[:-1]]
    assert found[1] is odd


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(0, 10), st.integers(0, 10), st.data())
def test_records_are_cut_to_a_range_or_left_to_the_decoder(
    offsets: list[int], begin: int, end: int, data: st.DataObject
) -> None:
    records = b"".join(map(stored, offsets))
    meant = [offset for offset in offsets if begin <= offset < end]
    cut = cut_to(records, begin, end)
    if cut is not None:
        assert [row[OFFSET] for row in rows_of(cut.records)] == meant
        assert cut.starts == (record_starts(cut.records) or array("i", [0]))
    else:
        assert offsets != sorted(offsets), (
            "usual records in the order of their offsets are always cut"
        )
    if records:
        torn = records[: data.draw(st.integers(1, len(records)))]
        assert len(torn) % len(stored(0)) == 0 or cut_to(torn, begin, end) is None


def moved(begin: int, end: int) -> Command:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=begin, min_offset=begin, max_offset=end
    )
    return Command(ResponseCode.PULL_OFFSET_MOVED, ext_fields=header.to_ext())


async def test_expired_messages(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with queues(100, monkeypatch) as ((first, _), watched):
        watched.answer = moved(40, 100)
        with pytest.raises(
            DataLossError,
            match=f"the queue {first} should be read from offset 0 on, but the broker's messages "
            "begin at 40",
        ):
            await pulled(PLAN, [Range(first, 0, 100)])
        watched.answer = moved(40, 100)
        with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
            assert offsets(
                await pulled(attrs.evolve(PLAN, fail_on_data_loss=False), [Range(first, 0, 100)]),
                first,
            ) == list(range(40, 100))
        assert "begin at 40" in caplog.text


async def test_a_queue_that_ends_too_early(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queues(100, monkeypatch) as ((first, _), _watched):
        with pytest.raises(
            GoneError, match=f"the queue {first} should be read up to offset 150, but ends at 100"
        ):
            await pulled(PLAN, [Range(first, 50, 150)])
        assert offsets(
            await pulled(attrs.evolve(PLAN, fail_on_data_loss=False), [Range(first, 50, 150)]),
            first,
        ) == list(range(50, 100))


def answer(code: int, begin: int, least: int, most: int, body: bytes = b"") -> Command:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=begin, min_offset=least, max_offset=most
    )
    return Command(code, ext_fields=header.to_ext(), body=body)


REMOVED = ResponseCode.PULL_RETRY_IMMEDIATELY
"""What Apache answers for a message in a file that has been removed, as if a filter had
not matched.
"""


async def test_messages_that_a_broker_passes_over_are_lost_where_no_filter_asks_for_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with queues(100, monkeypatch) as ((first, _), watched):
        watched.answer = answer(REMOVED, 40, 0, 100)
        with pytest.raises(DataLossError, match=r"from offset 0 on, but .* begin at 40"):
            await pulled(PLAN, [Range(first, 0, 100)])
        watched.answer = answer(REMOVED, 40, 0, 100)
        on = attrs.evolve(PLAN, fail_on_data_loss=False)
        assert offsets(await pulled(on, [Range(first, 0, 100)]), first) == list(range(40, 100))
        assert "begin at 40" in caplog.text
        filtered = attrs.evolve(PLAN, expression="A")
        watched.answer = answer(REMOVED, 40, 0, 100)
        assert offsets(await pulled(filtered, [Range(first, 0, 100)]), first) == list(
            range(40, 100, 2)
        )
        watched.answer = answer(REMOVED, 40, 30, 100)
        with pytest.raises(DataLossError, match=r"from offset 0 on, but .* begin at 30"):
            await pulled(filtered, [Range(first, 0, 100)])


async def test_a_message_that_is_not_there_yet_is_waited_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `failOnDataLoss` says: the plan has seen it, a lagging slave has not."""
    for fail in (True, False):
        plan = attrs.evolve(PLAN, fail_on_data_loss=fail)
        async with queues(100, monkeypatch) as ((first, _), watched):
            watched.answer = answer(ResponseCode.PULL_NOT_FOUND, 0, 0, 100)
            found = await pulled(plan, [Range(first, 0, 100)])
            assert offsets(found, first) == list(range(100))


async def test_what_a_slave_does_not_have_is_not_gone(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queues(100, monkeypatch) as ((first, _), watched):
        address = await looks_like_a_slave(first, monkeypatch)
        watched.answer = answer(ResponseCode.PULL_OFFSET_MOVED, 90, 0, 90)
        start = trio.current_time()
        found = await pulled(PLAN, [Range(first, 90, 100)])
        assert offsets(found, first) == list(range(90, 100))
        assert trio.current_time() > start
        with pytest.raises(UnreachableError, match=f"{address} does not have offset 100 .* at 100"):
            await pulled(attrs.evolve(PLAN, fail_on_data_loss=False), [Range(first, 90, 101)])


async def looks_like_a_slave(queue: QueueKey, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a queue's broker, which from now on is no master's."""
    async with bridge.client(PLAN.connection) as client:
        await client.route(queue.topic)
        address = client.broker_address(queue.broker)
    assert address is not None

    async def replica(*_: object) -> str:
        return address

    monkeypatch.setattr("rocketmq_sdk.spark.read.pulls.broker_address", replica)
    monkeypatch.setattr(Client, "broker_address", lambda *_: None)
    return address


@given(
    st.sets(st.integers(0, 19)),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(1, 3),
)
def test_the_first_gap_is_named(missing: set[int], begin: int, size: int, delta: int) -> None:
    end = begin + size
    present = [offset for offset in range(begin, end) if offset not in missing]
    made = attrs.evolve(
        piece(A0, present, begin, end),
        covers=(begin + delta, end + delta),
        offset_delta=delta,
    )
    gap = first_gap(made)
    lost = [offset for offset in range(begin, end) if offset in missing]
    if not lost:
        assert gap is None
    else:
        assert gap is not None
        after = next((offset for offset in present if offset > lost[0]), end)
        assert (gap.expected, gap.found) == (lost[0] + delta, after + delta)


async def test_gaps_end_a_task_or_are_told(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with queues(6, monkeypatch) as ((first, _), watched):
        body = stored(1) + stored(2) + stored(5)
        for plan in (PLAN, attrs.evolve(PLAN, fail_on_data_loss=False)):
            watched.answer = answer(ResponseCode.SUCCESS, 6, 0, 6, body)
            (brought,) = await pulled(plan, [Range(first, 1, 6)])
            assert (brought.count, brought.covers) == (5, (1, 6))
            if plan.fail_on_data_loss:
                with pytest.raises(DataLossError, match=r"from offset 3 on, but .* begin at 5"):
                    await report_gaps(plan, [brought])
            else:
                await report_gaps(plan, [brought])
                assert "failOnDataLoss is false" in caplog.text

        async def compacted(*_: object) -> TopicConfig:
            return TopicConfig("T", attributes={"cleanup.policy": "COMPACTION"})

        monkeypatch.setattr("rocketmq_sdk.spark.read.gaps.topic_config", compacted)
        await report_gaps(PLAN, [brought])
