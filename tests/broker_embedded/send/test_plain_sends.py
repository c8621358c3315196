"""Sends that arrive together do the same as one by one, and get the same answers.

So do half messages, and mixtures of both.
"""

from __future__ import annotations

import random
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.send.properties import PlainProperties
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.tables.figures import Figures
from rocketmq_sdk.broker_embedded.transactions.ready import Ready
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import MANY
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, HeaderEncoding
from rocketmq_sdk.protocol.frame import decode_frame, encode_frame
from rocketmq_sdk.protocol.message_id import UniqueIdGenerator
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from rocketmq_sdk.testing.interception import intercept, passed_on
from support.broker import open_on, pull_request, send_request
from support.chunks import exchange, frames_of
from support.transactions import begun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.messages import Arrival, MessageToStore, PutResult
    from support.broker import Peer

SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 64 * 1024, "max_message_size": 20_000}


class SameTime(TrioClock):
    """Time that begins alike in each run."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(trio.current_time() * 1000)


class Outcome(NamedTuple):
    """What requests did to a broker, and its answers."""

    answers: dict[int, bytes]
    log: bytes
    queues: dict[tuple[str, int], tuple[bytes, int]]
    """Their units, and where their last records end."""
    index: list[bytes]
    counts: dict[str, list[tuple[int, int, int, int]]]
    totals: tuple[int, int, int]
    arrivals: list[tuple[str, int, int, int, int, str]]
    kinds: dict[tuple[str, str], tuple[int, int, list[int], float]]
    """What metrics say of messages by topic and kind."""
    transactions: list[tuple[object, ...]]
    """The open ones, with what is kept of their half messages."""


def open_transactions(broker: EmbeddedBroker) -> list[tuple[object, ...]]:
    table = broker.parts.transactions.table
    found: list[tuple[object, ...]] = []
    for half in table._halves.values():
        ready = table.ready(half.offset)
        kept = None if ready is None else [getattr(ready, name) for name in Ready.__slots__]
        found.append((half.key, half.offset, half.physical_offset, half.size, kept))
    return found


async def outcome_of(
    chunks: Sequence[Sequence[Command]],
    *,
    heard: bool = False,
    sync: bool = False,
    files: FileSystem | None = None,
) -> Outcome:
    """What a new broker does with chunks of requests, perhaps with SYNC_FLUSH."""
    random.seed(1)
    files = files or MemoryFileSystem(write_through=True)
    settings = {**SMALL, "flush_disk_type": "SYNC_FLUSH"} if sync else SMALL
    async with open_on(files, clock=SameTime(), **settings) as (broker, peer):
        core, store = broker.core, broker.store
        core.stats.figures = figures = Figures(100)
        for topic in ("plain", "other"):
            core.topics.put(TopicConfig(topic))
        core.topics.put(TopicConfig("tagged", topic_filter_type="MULTI_TAG"))
        for name, attributes in (
            ("transactions", {"message.type": "TRANSACTION"}),
            ("compacted", {"cleanup.policy": "COMPACTION"}),
        ):
            core.topics.put(TopicConfig(name, attributes=attributes))
        sends = broker.parts.send._sends
        sends._ids = UniqueIdGenerator(b"\x7f\x00\x00\x01", 1, SameTime(), incarnation=7)
        for queue_id in (0, 1):  # topics are checked, queues are there
            await peer.send("plain", b"first", queue_id=queue_id)
        await begun(peer, b"first", topic="plain")
        arrivals: list[Arrival] = []
        if heard:
            store.listen(arrivals.append, topic="plain")
        answers = await exchange(broker, chunks)
        await store._index.drain_in_slices()
        table = store._table.queues
        return Outcome(
            answers,
            b"".join(
                bytes(
                    store._log.read(file.start, min(file.end, store._log.position) - file.start)
                    or b""
                )
                for file in store._log.chain.files
            ),
            {
                (topic, queue_id): (bytes(queue.units(0, queue.end)), queue.max_physical)
                for topic, queues in table.items()
                for queue_id, queue in queues.items()
            },
            [bytes(file._tail) for file in store._index.files],
            {
                topic: sorted(
                    (queue_id, counts.times, counts.messages, counts.bytes)
                    for queue_id, counts in queues.items()
                )
                for topic, queues in core.stats._topics.items()
            },
            (core.stats.put_times, core.stats.put_messages, core.stats.put_failed),
            [
                (a.topic, a.queue_id, a.queue_offset, a.physical_offset, a.size, a.properties)
                for a in arrivals
            ],
            {
                key: (found.messages, found.bytes, found.sizes.counts, found.sizes.total)
                for key, found in figures.incoming.items()
            },
            open_transactions(broker),
        )


def run(chunks: Sequence[Sequence[Command]], **options: Any) -> Outcome:
    async def main() -> Outcome:
        return await outcome_of(chunks, **options)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def together(requests: Sequence[Command], **options: Any) -> Outcome:
    """What requests do that arrive together, behind others: many are cut."""
    return run([opening(), requests], **options)


def alone(requests: Sequence[Command], **options: Any) -> Outcome:
    """What the same requests do one by one."""
    return run([[request] for request in [*opening(), *requests]], **options)


TRANSACTIONAL = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
ID = "7F000001000000000000000000{:06X}"
PIECES = [
    *(f"UNIQ_KEY\x01{ID.format(number)}\x02" for number in range(3)),
    "UNIQ_KEY\x01with-hyphen\x02",
    "UNIQ_KEY\x01ключ\x02",
    "UNIQ_KEY\x01\x02",
    "UNIQ_KEY\x01lastone",
    "XUNIQ_KEY\x01abc\x02",
    "WAIT\x01true\x02",
    "WAIT\x01false\x02",
    "TAGS\x01TagA\x02",
    "TAGS\x01\x02",
    "KEYS\x01k1 k2\x02",
    "KEYS\x01\x02",
    "KEYS\x01TIMER_1 k3\x02",
    "KEYS\x01k\x01TRAN_MSG\x01true\x02",
    "XKEYS\x01k4\x02",
    "KEYS\x01k5\x02" * 1000,
    f"traceparent\x0100-{7:032x}-{7:016x}-01\x02" * 400,
    "user\x01значение\x02",
    "user\x01\ud800\x02",
    "MSG_REGION\x01mine\x02",
    "CLUSTER\x01c\x02",
    "DELAY\x013\x02",
    "DELAY\x01x\x02",
    "TIMER_DELAY_SEC\x015\x02",
    "TRAN_MSG\x01true\x02",
    "TRAN_MSG\x01TRUE\x02",
    "TRAN_MSG\x01false\x02",
    "REAL_TOPIC\x01other\x02",
    "REAL_QID\x017\x02",
    "__transactionId__\x01id\x02",
    "PGROUP\x01another\x02",
    "CHECK_IMMUNITY_TIME_IN_SECONDS\x015\x02",
    "_SYS_MSG_PRIORITY_\x011\x02",
    "__SHARDINGKEY\x01s\x02",
    "__SHARDINGKEY\x01\x02",
    "X__SHARDINGKEY\x01s\x02",
    "__STARTDELIVERTIME\x015\x02",
    "long\x01" + "v" * 33_000 + "\x02",
    "\x02",
    "broken",
]


TOPICS = [
    "plain",
    "other",
    "tagged",
    "new",
    "bad topic!",
    "%RETRY%CG",
    "transactions",
    "compacted",
    "t" * 128,
    "RMQ_SYS_TRANS_HALF_TOPIC",
]
BODIES = [b"", b"x" * 17_000, b"x" * 20_001, b"y"]
ODD = [
    *("0", "1", "3", "7", "8", "32", "-1", "01", "+1", "1_0", " 2", "4294967296", "9" * 20, "٣"),
    *("x", "", "true"),
]


@st.composite
def special(draw: st.DrawFn) -> Command:
    """A send whose fields may be anything."""
    batch = draw(st.sampled_from([False, False, False, True]))
    body = draw(st.sampled_from(BODIES))
    if batch:
        count = draw(st.integers(0, 3))
        items = [(0, b"in a batch", b"UNIQ_KEY\x01abc\x02TAGS\x01B\x02")] * count
        body = draw(st.sampled_from([encode_batch(items), b"no batch"]))
    command = send_request(
        draw(st.sampled_from(TOPICS)),
        body,
        reconsume_times=0,
        batch=False,
        properties="".join(draw(st.lists(st.sampled_from(PIECES), max_size=4))),
    )
    for name in draw(st.lists(st.sampled_from("efghj"), max_size=2, unique=True)):
        command.ext_fields[name] = draw(st.sampled_from(ODD))
    for name in draw(st.lists(st.sampled_from("beghijm"), max_size=1)):
        command.ext_fields.pop(name, None)
    if batch:
        command.ext_fields["m"] = "true"
    return command


@st.composite
def plain(draw: st.DrawFn) -> Command:
    """A send as most are."""
    return send_request(
        draw(st.sampled_from(["plain", "plain", "other"])),
        b"x" * draw(st.sampled_from([1, 100, 3000])),
        queue_id=draw(st.integers(0, 1)),
        flag=draw(st.sampled_from([0, 5])),
        sys_flag=draw(st.sampled_from([0, 1])),
        reconsume_times=0,
        batch=False,
        properties=draw(st.sampled_from(["", "KEYS\x01order7\x02"]))
        + f"UNIQ_KEY\x01{ID.format(draw(st.integers(0, 99)))}\x02"
        + draw(st.sampled_from(["WAIT\x01true\x02", "WAIT\x01true\x02TAGS\x01TagA\x02", ""])),
    )


@st.composite
def half(draw: st.DrawFn) -> Command:
    """A half message as most are."""
    command = draw(plain())
    fields = command.ext_fields
    fields["b"] = draw(st.sampled_from(["plain", "other", "transactions"]))
    fields["f"] = draw(st.sampled_from(["4", "4", "5", "12"]))
    fields["i"] += TRANSACTIONAL + draw(
        st.sampled_from(["", "", "CHECK_IMMUNITY_TIME_IN_SECONDS\x0130\x02"])
    )
    return command


@st.composite
def spoilt(draw: st.DrawFn) -> Command:
    """A plain send with one thing about it that is not plain, or might be taken so."""
    command = draw(st.one_of(plain(), half()))
    fields = command.ext_fields
    what = draw(st.integers(0, 5))
    if what < 3:
        before, unique, behind = fields["i"].partition("UNIQ_KEY")
        if draw(st.booleans()):
            before += draw(st.sampled_from(PIECES))
        else:
            behind += draw(st.sampled_from(PIECES))
        fields["i"] = before + unique + behind
    elif what == 3:
        fields[draw(st.sampled_from("efghjm"))] = draw(st.sampled_from(ODD))
    elif what == 4:
        fields["b"] = draw(st.sampled_from(TOPICS))
    else:
        command.body = draw(st.sampled_from(BODIES))
    return command


OTHERS = st.sampled_from(
    [
        pull_request("plain", 0),
        pull_request("plain", 1, queue_id=1),
        Command(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "plain", "queueId": "0"}),
        Command(4711),
    ]
)


@st.composite
def chunk(draw: st.DrawFn) -> list[Command]:
    """Requests that arrive together."""
    most = draw(st.sampled_from([plain, half]))
    kinds = st.one_of(most(), most(), most(), half(), spoilt(), spoilt(), special(), OTHERS)
    requests = []
    for number in range(1, draw(st.integers(2, 30)) + 1):
        drawn = draw(kinds)
        command = Command(drawn.code, ext_fields=dict(drawn.ext_fields), body=drawn.body)
        command.opaque = number
        command.flag = draw(st.sampled_from([0, 0, 0, 0, 0, 0, FLAG_ONEWAY]))
        command.encoding = draw(
            st.sampled_from([HeaderEncoding.JSON] * 9 + [HeaderEncoding.ROCKETMQ])
        )
        requests.append(command)
    return requests


@settings(max_examples=30, deadline=None)
@given(chunk(), st.booleans(), st.booleans())
def test_a_chunk_does_the_same_as_its_requests_one_by_one(
    requests: list[Command], heard: bool, sync: bool
) -> None:
    if sync:  # what was sent just before is not on the disk yet: reads would tell
        requests = [request for request in requests if request.code == 310]
    outcome = together(requests, heard=heard, sync=sync)
    assert outcome == alone(requests, heard=heard, sync=sync)


def numbered(number: int, body: bytes = b"plain", *, is_half: bool = False) -> Command:
    """A plain send, or a half message; its opaque is the number."""
    command = send_request(
        "plain",
        body,
        queue_id=number % 2,
        reconsume_times=0,
        batch=False,
        sys_flag=4 if is_half else 0,
        properties=f"UNIQ_KEY\x01{ID.format(number)}\x02WAIT\x01true\x02" + TRANSACTIONAL * is_half,
    )
    command.opaque = number
    return command


def opening() -> list[Command]:
    """So many that came together that more are expected."""
    numbers = range(2 * MANY + 2)
    return [numbered(100_000 + number, is_half=number > MANY) for number in numbers]


def each_spoilt(*, is_half: bool) -> Iterator[Command]:
    """Plain sends with one thing about each that is not plain, or might be taken so."""
    numbers = count(2, 2)
    for piece in PIECES:
        for behind in (False, True):
            command = numbered(next(numbers), is_half=is_half)
            text = command.ext_fields["i"]
            command.ext_fields["i"] = text + piece if behind else piece + text
            yield command
            command = numbered(next(numbers), is_half=is_half)
            command.ext_fields["i"] = piece
            yield command
    for name in "efghjm":
        for odd in ODD:
            command = numbered(next(numbers), is_half=is_half)
            command.ext_fields[name] = odd
            yield command
    for name in "abcdefghijkm":
        command = numbered(next(numbers), is_half=is_half)
        command.ext_fields.pop(name, None)
        yield command
    for topic in TOPICS:
        command = numbered(next(numbers), is_half=is_half)
        command.ext_fields["b"] = topic
        yield command
    for body in BODIES:
        yield numbered(next(numbers), body, is_half=is_half)


@pytest.mark.parametrize("is_half", [False, True])
def test_whatever_is_special_about_a_send_between_plain_ones(is_half: bool) -> None:
    requests = []
    for command in each_spoilt(is_half=is_half):
        requests += [numbered(command.opaque - 1, is_half=is_half), command]
    assert together(requests) == alone(requests)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("is_half", [False, True])
def test_sends_that_are_all_special_in_one_way(piece: str, behind: bool, is_half: bool) -> None:
    requests = [numbered(number, is_half=is_half) for number in range(1, 8)]
    for command in requests[2:]:
        text = command.ext_fields["i"]
        command.ext_fields["i"] = text + piece if behind else piece + text
    assert together(requests) == alone(requests)


@pytest.mark.parametrize("size", [1, 900, 3000, 15_000])
@pytest.mark.parametrize("is_half", [False, True])
def test_a_chunk_goes_over_the_ends_of_log_files(size: int, is_half: bool) -> None:
    requests = [numbered(number, b"x" * size, is_half=is_half) for number in range(1, 130)]
    outcome = together(requests)
    assert outcome == alone(requests)
    assert len(outcome.answers) == 129 + len(opening())


async def served(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, count: int
) -> tuple[dict[int, Command], int]:
    """Send plain messages together; the answers, and how many were put alone."""
    alone = 0
    store = broker.store
    put = store.put

    def counted(message: MessageToStore) -> PutResult:
        nonlocal alone
        alone += 1
        return put(message)

    monkeypatch.setattr(broker.parts.send._sends, "_put", counted)
    answers = await exchange(broker, [[numbered(number) for number in range(1, count + 1)]])
    found = {opaque: decode_frame(frame[4:]) for opaque, frame in answers.items()}
    return found, alone


async def prepare(broker: EmbeddedBroker, peer: Peer) -> None:
    broker.core.topics.put(TopicConfig("plain"))
    for queue_id in (0, 1):
        await peer.send("plain", b"first", queue_id=queue_id)


async def test_plain_sends_are_put_together(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        await prepare(broker, peer)
        answers, alone = await served(broker, monkeypatch, 100)
        assert (len(answers), alone) == (100, 0)
        assert {answer.code for answer in answers.values()} == {0}
        assert broker.store.max_offset("plain", 0) == broker.store.max_offset("plain", 1) == 51


async def test_answers_follow_the_sync_of_all_that_came_together(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFileSystem()
    async with open_on(files, flush_disk_type="SYNC_FLUSH") as (broker, peer):
        await prepare(broker, peer)
        with files.faults.slow(Operation.SYNC, "*", delay=0.5) as syncs:
            begin = trio.current_time()
            answers, alone = await served(broker, monkeypatch, 100)
            assert trio.current_time() - begin >= 0.5
        assert (len(answers), alone) == (100, 0)
        assert {answer.code for answer in answers.values()} == {0}
        assert 1 <= syncs.hits <= 4
        assert broker.store.max_offset("plain", 0) == broker.store.max_offset("plain", 1) == 51
        assert broker.core.put_times.longest_put_ms >= 500


async def test_sends_that_are_not_durable_in_time_or_never_say_so(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFileSystem()
    async with open_on(files, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=200) as (
        broker,
        peer,
    ):
        await prepare(broker, peer)
        with files.faults.slow(Operation.SYNC, "*", delay=0.5):
            late, alone = await served(broker, monkeypatch, 20)
        assert ({answer.code for answer in late.values()}, alone) == (
            {ResponseCode.FLUSH_DISK_TIMEOUT},
            0,
        )
        await trio.sleep(1)
        before = broker.store.max_offset("plain", 0)
        files.faults.fail(Operation.SYNC)
        lost, _alone = await served(broker, monkeypatch, 20)
        assert len(lost) == 20
        assert {answer.code for answer in lost.values()} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert broker.store.max_offset("plain", 0) == before  # nobody sees them


async def test_an_interceptor_sees_each_send(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        await prepare(broker, peer)
        with intercept(broker, RequestCode.SEND_MESSAGE_V2, by=passed_on) as sends:
            answers, alone = await served(broker, monkeypatch, 20)
        assert (len(answers), alone, len(sends.requests)) == (20, 20, 20)
        monkeypatch.undo()
        answers, alone = await served(broker, monkeypatch, 20)
        assert (len(answers), alone) == (20, 0)


@pytest.mark.parametrize(("number", "writes"), [(150, [64, 64, 22]), (140, [64, 76])])
async def test_the_first_answers_leave_while_the_rest_of_a_chunk_is_served(
    autojump_clock: MockClock, number: int, writes: list[int]
) -> None:
    """Each write has the answers to all that is stored by then."""
    seen: list[tuple[int, int]] = []
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        await prepare(broker, peer)
        before = broker.store.statistics()["puts"]

        def send_now(data: bytes) -> int:
            answers = len(frames_of(bytearray(data)))
            seen.append((answers, broker.store.statistics()["puts"] - before))
            return len(data)

        near, far = trio.testing.memory_stream_pair()
        vars(far).update(sends_now=True, send_now=send_now)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.server._serve_stream, far, {})
            await near.send_all(b"".join(encode_frame(numbered(at)) for at in range(number)))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert [answers for answers, _stored in seen] == writes
    assert [stored for _answers, stored in seen] == list(accumulate(writes))


async def test_what_could_not_be_written_is_not_acknowledged(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFileSystem()
    async with open_on(files) as (broker, peer):
        await prepare(broker, peer)
        files.faults.fail(Operation.WRITE, times=1)
        answers, _alone = await served(broker, monkeypatch, 100)
        assert len(answers) == 100
        assert 0 not in {answer.code for answer in answers.values()}


async def test_a_failure_over_sends_together_answers_each_with_an_error(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        await prepare(broker, peer)

        def fail(_run: object, _host: bytes) -> int:
            raise LookupError("as the test wants it")

        monkeypatch.setattr(broker.store, "put_run", fail)
        answers, _alone = await served(broker, monkeypatch, 10)
        assert {answer.code for answer in answers.values()} == {ResponseCode.SYSTEM_ERROR}
        assert len(answers) == 10
        assert "as the test wants it" in caplog.text


def test_what_is_remembered_of_properties_is_bounded() -> None:
    """Long texts that no second message has would take megabytes."""
    properties = PlainProperties()
    for filler in ("x" * 5000, ""):
        for number in range(3000):
            text = f"UNIQ_KEY\x01U{number}\x02a\x01{number}{filler}\x02"
            assert properties.look(text) == (f"U{number}", 0)
    for number in range(3000):  # the contexts of traces differ, too
        parent = f"00-{number:032x}-{number:016x}-01"
        text = f"UNIQ_KEY\x01U{number}\x02TAGS\x01a\x02traceparent\x01{parent}\x02WAIT\x01true\x02"
        assert properties.look(text) == (f"U{number}", 97)
        assert properties.look(text.replace("TAGS", "DELAY")) is None
    assert properties.look(f"UNIQ_KEY\x01U\x02traceparent\x01{parent}\x02DELAY\x013\x02") is None
    assert sum("traceparent" in text for text in properties._texts) == 0
    assert 0 < len(properties._texts) <= 1024
    assert max(map(len, properties._texts)) < 1000
