"""Ends of transactions that arrive together do the same as one by one, and the same as
those whose half messages are read from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.log.record import BLANK_SIZE
from rocketmq_sdk.broker_embedded.tables.figures import Figures
from rocketmq_sdk.broker_embedded.transactions.ready import Ready, ReadyTable
from rocketmq_sdk.broker_embedded.transactions.table import op_message, op_offsets
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_OP_TOPIC
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, HeaderEncoding
from rocketmq_sdk.protocol.frame import decode_frame
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from rocketmq_sdk.testing.interception import intercept, passed_on
from support.broker import open_on
from support.chunks import exchange
from support.transactions import (
    COMMIT,
    ROLLBACK,
    begun,
    bodies_in,
    end_request,
    ended,
    half_request,
    messages_in,
    ops,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.broker_embedded.store.messages import Arrival
    from rocketmq_sdk.protocol.command import Command
    from support.broker import Peer

TOPICS = ("orders", "bills")
FIRST = "UNIQ_KEY\x01first\x02"
NOW = 1_700_000_000_000
HALVES: list[dict[str, Any]] = [
    {},
    {"properties": "TAGS\x01A\x02KEYS\x01k1 k2\x02", "flag": 7},
    {"topic": "bills", "queue_id": 1},
    {"sys_flag": 5},
    {"properties": "CHECK_IMMUNITY_TIME_IN_SECONDS\x0130\x02"},
    {"properties": "CHECK_IMMUNITY_TIME_IN_SECONDS\x011\x02", "born_timestamp": NOW - 60_000},
    {"born_timestamp": NOW - 60_000},
    {"properties": "DELAY\x011\x02"},
    {"queue_id": 3},
    {"body": b"x" * 20_000},
    {"group": "another"},
    {"properties": "user\x01значение\x02"},
]
"""What half messages differ in; of the last queue there is no message before."""


class SameTime(TrioClock):
    """Time that begins alike in each run."""

    def now_ms(self) -> int:
        return NOW + int(trio.current_time() * 1000)


class End(NamedTuple):
    """One end that is told: of which half message, and what is odd about it."""

    half: int
    outcome: int
    flag: int = 0
    changes: dict[str, str | None] = {}  # noqa: RUF012 - nobody changes it
    body: bytes = b""
    encoding: HeaderEncoding = HeaderEncoding.JSON


class Outcome(NamedTuple):
    """What ends did to a broker, and its answers."""

    answers: dict[int, bytes]
    stored: list[tuple[object, ...]]
    finished: list[int]
    """The half messages that op records name."""
    open: list[int]
    outcomes: dict[str, bool]
    counts: dict[str, list[tuple[int, int, int]]]
    totals: tuple[int, int]
    figures: tuple[object, ...]
    arrivals: list[tuple[str, int, int, str]]


def requests_of(ends: Sequence[End], halves: Sequence[Command]) -> list[Command]:
    requests = []
    for number, end in enumerate(ends, 1):
        group = HALVES[end.half].get("group", "PG")
        request = end_request(halves[end.half], COMMIT, group=group, topic="orders")
        fields = request.ext_fields
        fields["commitOrRollback"] = str(end.outcome)
        for name, text in end.changes.items():
            if text is None:
                fields.pop(name, None)
            else:
                fields[name] = text
        request.opaque, request.flag = number, end.flag
        request.body, request.encoding = end.body, end.encoding
        requests.append(request)
    return requests


async def outcome_of(ends: Sequence[End], *, together: bool, sync: bool) -> Outcome:
    options = {"flush_disk_type": "SYNC_FLUSH"} if sync else {}
    files = MemoryFileSystem(write_through=True)
    async with open_on(
        files, clock=SameTime(), mapped_file_size_commit_log=256 * 1024, **options
    ) as (broker, peer):
        core = broker.core
        core.stats.figures = figures = Figures(100)
        for topic in TOPICS:
            core.topics.put(TopicConfig(topic))
            for queue_id in (0, 1):
                await peer.send(topic, b"first", queue_id=queue_id, properties=FIRST)
        await ended(peer, await begun(peer, b"before", unique="before"), COMMIT)
        halves = [
            await peer.ask(half_of(number, **options)) for number, options in enumerate(HALVES)
        ]
        assert {half.code for half in halves} == {0}
        arrivals: list[Arrival] = []
        broker.store.listen(arrivals.append, topic="orders")
        requests = requests_of(ends, halves)
        answers = await exchange(
            broker, [requests] if together else [[request] for request in requests]
        )
        await trio.testing.wait_all_tasks_blocked()
        table = broker.parts.transactions.table
        return Outcome(
            answers,
            [
                (
                    *(message.topic, message.queue_id, message.offset, message.body),
                    *(message.sys_flag, message.flag, message.properties_bytes),
                    *(message.prepared_transaction_offset, message.born_timestamp),
                    *(message.born_host, message.store_host, message.reconsume_times),
                    message.store_timestamp,
                    (broker.store.queue_unit(topic, queue_id, message.offset) or (0, 0, 0))[2],
                )
                for topic in (*TOPICS, SCHEDULE_TOPIC)
                for queue_id in range(4)
                for message in messages_in(broker, topic, queue_id)
            ],
            sorted(offset for body in ops(broker) for offset in op_offsets(body)),
            table.open_offsets(),
            dict(table._outcomes),
            {
                topic: sorted(
                    (queue_id, counts.messages, counts.bytes) for queue_id, counts in queues.items()
                )
                for topic, queues in core.stats._topics.items()
            },
            (core.stats.put_messages, core.stats.put_failed),
            (
                figures.committed.values,
                figures.rolled_back.values,
                {
                    key: (found.counts, found.total)
                    for key, found in figures.finished.values.items()
                },
            ),
            [(a.topic, a.queue_id, a.queue_offset, a.properties) for a in arrivals],
        )


def half_of(number: int, *, topic: str = "orders", body: bytes = b"half", **more: Any) -> Command:
    fields = {"born_timestamp": NOW, "reconsume_times": 0, "batch": False, **more}
    group, sys_flag = fields.pop("group", "PG"), fields.pop("sys_flag", 4)
    request = half_request(topic, body, unique=f"U{number}", group=group, **fields)
    request.ext_fields["f"] = str(sys_flag)
    return request


def run(ends: Sequence[End], *, together: bool, sync: bool = False) -> Outcome:
    async def main() -> Outcome:
        return await outcome_of(ends, together=together, sync=sync)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def all_ways(ends: Sequence[End], *, sync: bool = False) -> Outcome:
    """What ends do together: the same as one by one, and with nothing at hand."""
    together = run(ends, together=True, sync=sync)
    assert together == run(ends, together=False, sync=sync)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReadyTable, "keep", lambda _table, _offset, _ready: None)
        assert together == run(ends, together=True, sync=sync)
    return together


ODD: list[dict[str, str | None]] = [
    {"producerGroup": "nobody"},
    {"producerGroup": None},
    *({"tranStateTableOffset": text} for text in ("", "x", "+1", "-1", "٣", "99", "9" * 20)),
    *({"commitLogOffset": text} for text in ("", "x", "0", "7", "9" * 20)),
    {"commitLogOffset": None},
    *({"commitOrRollback": text} for text in ("0", "5", "", "+8", "08", "x")),
    *({"fromTransactionCheck": text} for text in ("true", "TRUE", "no", "")),
    {"fromTransactionCheck": None},
    {"msgId": None},
    {"transactionId": None},
    {"topic": "bills"},
    {"topic": None},
    {"unknown": "text"},
    {"msgId": "m" * 5000},
    {"unknown": "u" * 5000},
    {"nsd": "x", "oway": "true"},
]


def test_all_that_may_be_odd_about_an_end_between_plain_ones() -> None:
    for first in range(0, len(ODD), 5):
        some = [
            End(half, COMMIT, changes=changes)
            for half, changes in zip((1, 3, 6, 8, 11), ODD[first : first + 5], strict=False)
        ]
        all_ways([End(0, COMMIT), *some, End(2, COMMIT), End(4, ROLLBACK)])


@pytest.mark.parametrize("sync", [False, True])
def test_each_half_message_is_ended_in_each_way(sync: bool) -> None:
    for outcome in (COMMIT, ROLLBACK):
        found = all_ways([End(half, outcome) for half in range(len(HALVES))], sync=sync)
        assert len(found.answers) == len(HALVES)
        assert found.open == [6]  # one was too late, and is left to the check
    mixed = [End(half, (COMMIT, ROLLBACK)[half % 2]) for half in range(len(HALVES))]
    all_ways([*mixed, *mixed], sync=sync)


ENDS = st.builds(
    End,
    st.integers(0, len(HALVES) - 1),
    st.sampled_from([COMMIT, COMMIT, COMMIT, ROLLBACK, 0]),
    st.sampled_from([0, 0, 0, FLAG_ONEWAY]),
    st.sampled_from([{}, {}, {}, {}, {}, *ODD]),
    st.sampled_from([b"", b"", b"", b"", b"body"]),
    st.sampled_from([HeaderEncoding.JSON] * 5 + [HeaderEncoding.ROCKETMQ]),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(ENDS, min_size=2, max_size=16), st.booleans())
def test_a_chunk_does_the_same_as_its_requests_one_by_one(ends: list[End], sync: bool) -> None:
    all_ways(ends, sync=sync)


async def prepare(
    broker: EmbeddedBroker, peer: Peer, number: int, *, size: int = 0
) -> list[Command]:
    """The ends of new half messages; the first of all transactions is over."""
    broker.core.topics.put(TopicConfig("orders", 1, 1))
    await ended(peer, await begun(peer, b"first", unique="first"), COMMIT)
    requests = []
    for at in range(number):
        answer = await begun(peer, b"%d" % at + b"x" * size, unique=f"U{at}")
        request = end_request(answer, COMMIT)
        request.opaque = at
        requests.append(request)
    return requests


def codes(answers: dict[int, bytes]) -> set[int]:
    return {decode_frame(frame[4:]).code for frame in answers.values()}


async def test_ends_that_come_together_have_one_op_record(autojump_clock: MockClock) -> None:
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        requests = await prepare(broker, peer, 50)
        answers = await exchange(broker, [requests])
        assert (len(answers), codes(answers)) == (50, {0})
        listed = b"".join(b"%d," % offset for offset in range(1, 51))
        assert ops(broker) == [b"0,", listed]
        assert bodies_in(broker, "orders")[1:] == [b"%d" % at for at in range(50)]
        assert len(broker.parts.transactions.table) == 0
        assert len(broker.parts.transactions.table._ready) == 0
    assert codes(answers) == {0}


async def test_half_messages_that_come_together_are_refused_as_one_alone(
    autojump_clock: MockClock,
) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_on(files) as (broker, peer):
        await prepare(broker, peer, 0)  # there is a queue of half messages
    async with open_on(files, reject_transaction_message=True) as (broker, peer):
        await peer.send("orders", b"plain", queue_id=0)
        halves = [half_of(number) for number in range(10)]
        for number, request in enumerate(halves):
            request.opaque = number
        assert codes(await exchange(broker, [halves])) == {ResponseCode.NO_PERMISSION}
        assert len(broker.parts.transactions.table) == 0


async def test_no_run_commits_into_the_topic_of_timers(autojump_clock: MockClock) -> None:
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        await prepare(broker, peer, 0)
        await peer.send("orders", b"later", properties="TIMER_DELAY_SEC\x01900\x02")
        stored = broker.store.max_offset(TIMER_TOPIC, 0)
        assert stored
        halves = [half_of(number, topic=TIMER_TOPIC) for number in range(6)]
        for number, request in enumerate(halves):
            request.opaque = number
        answers = await exchange(broker, [halves[:1], halves[1:]])
        assert codes(answers) == {0}
        ends = [end_request(decode_frame(frame[4:]), COMMIT) for frame in answers.values()]
        for number, request in enumerate(ends):
            request.opaque = number
        assert codes(await exchange(broker, [ends])) == {ResponseCode.SYSTEM_ERROR}
        assert broker.store.max_offset(TIMER_TOPIC, 0) == stored


async def test_an_op_record_is_read_as_long_as_one_of_its_transactions_needs_it(
    autojump_clock: MockClock,
) -> None:
    """A roll-back leaves no other trace from which a start knows of it."""
    files = MemoryFileSystem(write_through=True)
    async with open_on(files, transaction_check_interval=10_000_000) as (broker, peer):
        requests = await prepare(broker, peer, 6)
        first, last = requests[0], requests[-1]
        for request in (first, last):
            request.ext_fields["commitOrRollback"] = str(ROLLBACK)
        assert codes(await exchange(broker, [[first, last]])) == {0}
        assert ops(broker)[1:] == [b"1,6,"]
        await trio.sleep(30)  # the progress of both queues is written
    async with open_on(files) as (broker, _peer):
        assert broker.parts.transactions.table.open_offsets() == [2, 3, 4, 5]


async def test_of_copies_of_a_half_message_only_the_last_is_at_hand(
    autojump_clock: MockClock,
) -> None:
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        requests = await prepare(broker, peer, 3)
        requests += [
            end_request(await begun(peer, b"0", unique="U0"), COMMIT, msg_id="another")
            for _ in range(2)
        ]
        assert len(broker.parts.transactions.table._ready) == 3
        for number, request in enumerate(requests):
            request.opaque = number
        assert codes(await exchange(broker, [requests])) == {0}
        assert sorted(bodies_in(broker, "orders")[1:]) == [b"0", b"1", b"2"]
        assert len(broker.parts.transactions.table._ready) == 0


async def test_each_message_keeps_the_host_that_sent_it(autojump_clock: MockClock) -> None:
    """A producer may end what another one of its group has begun."""
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        requests = await prepare(broker, peer, 9)
        ready = broker.parts.transactions.table.ready
        hosts = [bytes((10, 0, 0, at // 3, 0, 0, 0, 80)) for at in range(9)]
        for offset, host in enumerate(hosts, 1):
            half = ready(offset)
            assert half is not None
            half.born_host = host
        assert codes(await exchange(broker, [requests])) == {0}
        stored = [message.born_host for message in messages_in(broker, "orders")[1:]]
        assert stored == hosts
        assert 3 <= len(ops(broker)) < 9


async def test_a_run_of_large_messages_ends_so_that_others_have_their_turn(
    autojump_clock: MockClock,
) -> None:
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        requests = await prepare(broker, peer, 4, size=300 * 1024)
        requests += await prepare(broker, peer, 20, size=100 * 1024)
        for number, request in enumerate(requests):
            request.opaque = number
        answers = await exchange(broker, [requests])
        assert (len(answers), codes(answers)) == (24, {0})
        assert len(bodies_in(broker, "orders")) == 26
        finals = messages_in(broker, "orders")
        sizes = [[len(finals[offset].body) for offset in op_offsets(body)] for body in ops(broker)]
        assert {*map(len, sizes)} >= {1, 3}
        assert max(sum(some[:-1]) for some in sizes) < 256 * 1024


async def test_ends_go_over_the_ends_of_log_files(autojump_clock: MockClock) -> None:
    """A run is one write, within one file: what does not fit is ended alone."""
    files = MemoryFileSystem(write_through=True)
    async with open_on(files, mapped_file_size_commit_log=8 * 1024) as (broker, peer):
        requests = await prepare(broker, peer, 150)
        answers = await exchange(broker, [requests])
        assert (len(answers), codes(answers)) == (150, {0})
        assert bodies_in(broker, "orders")[1:] == [b"%d" % at for at in range(150)]
        listed = [offset for body in ops(broker) for offset in op_offsets(body)]
        assert listed == list(range(151))
        finals = messages_in(broker, "orders")
        for op in messages_in(broker, TRANSACTION_OP_TOPIC):
            for final in (finals[offset] for offset in op_offsets(op.body)):
                assert final.commit_log_offset // 8192 == op.commit_log_offset // 8192
                assert final.commit_log_offset < op.commit_log_offset


async def test_a_run_fits_its_log_file_with_its_op_record_or_is_not_put(
    autojump_clock: MockClock,
) -> None:
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        await prepare(broker, peer, 0)
        host = broker.core.store_host

        def size_within(limit: int) -> int:
            run = broker.store.begin_run()
            assert run is not None
            orders, op = run.lane("orders", 0), run.lane(TRANSACTION_OP_TOPIC, 0)
            assert orders is not None
            assert op is not None
            run.messages += [(orders, b"x", b"", 0, (0, COMMIT, 0, 0), 0)] * 2
            run.end_with(op, op_message(1, 2, now_ms=0, host=host))
            return len(
                run.encode(1000, limit=limit, most=100, born_host=host, store_host=host, now=0)
            )

        whole = size_within(10_000)
        least = 1000 + whole + BLANK_SIZE  # behind it, what ends a file has room
        sizes = [size_within(limit) for limit in range(least - whole, least + 2)]
        assert sizes == [0] * whole + [whole] * 2


async def test_answers_follow_the_sync_of_all_that_came_together(
    autojump_clock: MockClock,
) -> None:
    files = FaultyFileSystem()
    async with open_on(files, flush_disk_type="SYNC_FLUSH") as (broker, peer):
        requests = await prepare(broker, peer, 50)
        with files.faults.slow(Operation.SYNC, "*", delay=0.5) as syncs:
            begin = trio.current_time()
            answers = await exchange(broker, [requests])
            assert trio.current_time() - begin >= 0.5
        assert (len(answers), codes(answers)) == (50, {0})
        assert syncs.hits <= 4
        assert len(bodies_in(broker, "orders")) == 51


async def test_ends_that_cannot_be_written_leave_their_transactions_open(
    autojump_clock: MockClock,
) -> None:
    files = FaultyFileSystem()
    async with open_on(files, transaction_check_interval=10_000_000) as (broker, peer):
        requests = await prepare(broker, peer, 20)
        files.faults.fail(Operation.SYNC)
        broker.store._state.disk_full = True
        answers = await exchange(broker, [requests])
        assert codes(answers) == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert len(broker.parts.transactions.table) == 20
        broker.store._state.disk_full = False
        files.faults.clear()
        assert codes(await exchange(broker, [requests])) == {0}
        assert len(bodies_in(broker, "orders")) == 21


async def test_an_interceptor_sees_each_end(autojump_clock: MockClock) -> None:
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        requests = await prepare(broker, peer, 10)
        with intercept(broker, RequestCode.END_TRANSACTION, by=passed_on) as ends:
            answers = await exchange(broker, [requests])
        assert (len(answers), len(ends.requests), codes(answers)) == (10, 10, {0})


@pytest.mark.parametrize("torn", range(8))
async def test_a_log_that_ends_within_a_run_ends_each_transaction_once(
    autojump_clock: MockClock, torn: int
) -> None:
    """What the log has is committed; of the others the producer says it once more."""
    files = FaultyFileSystem()
    async with open_on(files, transaction_check_interval=10_000_000) as (broker, peer):
        requests = await prepare(broker, peer, 6)
        for request in requests[4:]:
            request.ext_fields["commitOrRollback"] = str(ROLLBACK)
        await exchange(broker, [requests])
        ends = [message.commit_log_offset for message in messages_in(broker, "orders")[1:]]
        ends += [messages_in(broker, TRANSACTION_OP_TOPIC)[-1].commit_log_offset]
        end = broker.store.max_physical_offset
        ends += [end - 10, end]
        files.halt()
    files.kill()
    start = ends[min(torn, len(ends) - 1)]
    if start < end:
        files.open("commitlog/00000000000000000000").pwrite(bytes(end - start), start)
    for _ in range(2):
        async with open_on(files, transaction_check_interval=10_000_000) as (broker, peer):
            await trio.sleep(1)
            assert codes(await exchange(broker, [requests])) == {0}
            assert sorted(bodies_in(broker, "orders")) == [b"0", b"1", b"2", b"3", b"first"]
            assert not broker.parts.transactions.table
            listed = [
                offset
                for op in messages_in(broker, TRANSACTION_OP_TOPIC)
                if op.tags == "d"  # else it is torn
                for offset in op_offsets(op.body)
            ]
            assert sorted(listed) == list(range(7))


def test_what_is_at_hand_is_bounded() -> None:
    def ready(size: int) -> Ready:
        return Ready(
            "t",
            0,
            bytes(size),
            b"",
            numbers=(0, 0, 0),
            born_timestamp=0,
            born_host=bytes(8),
            tags_code=0,
            group="g",
            immunity=None,
        )

    table = ReadyTable(most=10 * ready(1000).size)
    for offset in range(100):
        table.keep(offset, ready(1000))
        if offset % 2:
            table.drop(offset)
    assert len(table) in (9, 10)
    assert table.get(98) is not None
    assert table.get(0) is None
    for offset in range(100):
        table.drop(offset)
    assert (len(table), table._bytes) == (0, 0)
    table.keep(1, ready(1_000_000))
    assert (len(table), table._bytes) == (0, 0)
