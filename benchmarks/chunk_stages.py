"""Where the processor time of sends goes that leave and arrive with others.

Each stage has what many requests of one chunk cost together, for one of them. The way
from the producer to the store and back is gone whole, chunk by chunk, without a socket.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, cast

import trio
import trio.testing

from benchmarks.append import message
from benchmarks.sending import BODY
from rocketmq_sdk import EmbeddedBroker, Message, Producer
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.protocol.frame_template import frame_of
from rocketmq_sdk.protocol.message_id import UniqueIdGenerator
from rocketmq_sdk.protocol.shapes.headers import CutCommand
from rocketmq_sdk.remoting.call_table import CallTable
from rocketmq_sdk.remoting.channel import TOGETHER, ChannelLimits
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.form_requests import begin_requests
from rocketmq_sdk.remoting.stream import LOOPBACK_HOST, StreamChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.harness import Report
    from rocketmq_sdk.remoting.channel import Channel, FormRequest, PendingCall
    from rocketmq_sdk.remoting.queued_frames import Piece

TOPIC: Final = "chunks"
QUEUES: Final = 4
WARM: Final = 8
"""Chunks that are not counted: shapes are learned, and what is remembered fills."""
JAVA: Final = (
    '{"code":310,"extFields":{"a":"bench","b":"%s","c":"TBW102","d":"4","e":"%d","f":"0",'
    '"g":"%d","h":"0","i":"UNIQ_KEY\\u0001%s\\u0002WAIT\\u0001true\\u0002","j":"0","k":"false",'
    '"l":"0","m":"false","n":"broker-a"},"flag":0,"language":"JAVA","opaque":%d,'
    '"serializeTypeCurrentRPC":"JSON","version":493}'
)
"""The header of a request as Apache's client writes it."""


class Laps:
    """Processor time of stages that follow each other, over many chunks."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._begin = 0.0

    def begin(self) -> None:
        """What comes now belongs to the next stage."""
        self._begin = time.process_time()

    def over(self, stage: str) -> None:
        """A stage is over, and the next one begins."""
        self._spent[stage] = self._spent.get(stage, 0.0) + time.process_time() - self._begin
        self._begin = time.process_time()

    def tell(self, report: Report, messages: int) -> None:
        """Report each stage for one of so many messages."""
        for stage, seconds in self._spent.items():
            report.add(f"stage: chunk, {stage}", "us", seconds / messages * 1e6)


class _Wire:
    """Stands for the producer's connection: writes requests, and waits for answers."""

    in_process = False

    def __init__(self) -> None:
        self.limits = ChannelLimits()
        self.calls = CallTable(self.limits.max_in_flight, "bench", 0, lambda _number, _moment: None)
        self.frames: list[Piece] = []

    def submit_forms(
        self, requests: Iterable[FormRequest], on_done: Callable[[PendingCall], None]
    ) -> list[PendingCall]:
        frames, found, _unsent = begin_requests(self.calls, requests, on_done, self.limits, 0)
        self.frames += frames
        return found


class _Served:
    """A broker's side of one connection, without the connection."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        stream, _other = trio.testing.memory_stream_pair()
        self._channel = StreamChannel(stream, Dispatcher())
        self._part = broker.parts.send
        self._later: list[Callable[[], None]] = []
        self.plain, self.store = self._part._plain, broker.store
        self.turn = broker.core.put_times
        self.connection = Connection()
        self.alone = 0
        """Messages that were served alone."""
        self.store.put_off(answered=lambda _call: False, idle=self._put_off)

    def _put_off(self, call: Callable[[], None]) -> bool:
        self._later.append(call)
        return True

    def serve(self, requests: Sequence[Command]) -> bytes:
        """Serve a chunk; gives its answers.

        A message for which the log has to grow is served alone, one of some thousands.
        """
        channel, part, answers = self._channel, self._part, list[bytes]()
        while requests:
            some = part._serve_together(channel, requests)
            answers += [answer for answer in some if type(answer) is bytes]
            requests = requests[len(some) :]
            if requests:
                answer = part._sends.send_v2(channel, requests[0])
                if isinstance(answer, Command):
                    answer.opaque = requests[0].opaque
                    answers.append(encode_frame(answer))
                requests = requests[1:]
                self.alone += 1
        return b"".join(answers)

    def catch_up(self) -> None:
        """Do what was put off: the entries of the key index."""
        later, self._later = self._later, []
        for call in later:
            call()


def _check(served: _Served, alone: int, messages: int, *cut: Command) -> None:
    """Raise `RuntimeError` where messages did not go the way that is measured."""
    if alone * TOGETHER > messages:
        raise RuntimeError(f"{alone} of {messages} messages were stored alone")
    if not all(isinstance(command, CutCommand) for command in cut):
        raise RuntimeError("the commands of a chunk are not cut")
    if (waiting := served.store._index.pending) > TOGETHER:
        raise RuntimeError(f"{waiting} messages are not indexed with their chunks")


async def _measure_producer(
    report: Report, served: _Served, producer: Producer, chunks: int
) -> None:
    """The way of this package's own messages, there and back."""
    assert producer._loop is not None
    outbox, wire, cut = producer._loop._outbox, _Wire(), Connection()
    outbox._channel_of = lambda _address: cast("Channel", wire)
    cut.expect_alike()
    for number in range(WARM + chunks):
        if number in (0, WARM):
            laps = Laps()
        messages = [Message(TOPIC, BODY) for _ in range(TOGETHER)]
        laps.begin()
        handles = [producer.submit(one) for one in messages]
        laps.over("client: submit")
        outbox.empty()
        laps.over("client: outbox to frames")
        chunk = b"".join(wire.frames)
        wire.frames.clear()
        served.turn.begin()
        laps.begin()
        requests = served.connection.receive_commands(chunk)
        laps.over("broker: cut the requests")
        answers = served.serve(requests)
        laps.over("broker: serve plain sends")
        served.turn.end()
        laps.begin()
        served.catch_up()
        laps.over("broker: index entries")
        responses = cut.receive_commands(answers)
        laps.over("client: cut the answers")
        wire.calls.answer_from(responses, 0)
        laps.over("client: sweep the answers")
        for handle in handles:
            if not handle.done:
                raise RuntimeError("a message has no answer")
            await handle  # raises what it has failed by
    _check(served, served.alone, chunks * TOGETHER, requests[-1], responses[0])
    laps.tell(report, chunks * TOGETHER)


def _java_chunk(ids: UniqueIdGenerator, number: int) -> bytes:
    first = number * TOGETHER
    return b"".join(
        frame_of(
            (JAVA % (TOPIC, opaque % QUEUES, 1_700_000_000_000 + number, unique, opaque)).encode(),
            BODY,
        )
        for opaque, unique in enumerate(ids.next_ids(TOGETHER), first)
    )


def _measure_java(report: Report, served: _Served, chunks: int) -> None:
    """What the broker does with requests of Java's client, in smaller stages."""
    ids = UniqueIdGenerator(b"\x7f\x00\x00\x01", 1, TrioClock())
    connection, plain, store = Connection(), served.plain, served.store
    for number in range(WARM + chunks):
        if number in (0, WARM):
            laps, stored, cut_short = Laps(), 0, 0
        chunk = _java_chunk(ids, number)
        laps.begin()
        requests = connection.receive_commands(chunk)
        laps.over("broker: cut Java's requests")
        run = store.begin_run()
        assert run is not None
        asked = plain._admit(run, requests, waits=False)
        laps.over("broker: admit plain sends to a run")
        stored += store.put_run(run, LOOPBACK_HOST)
        laps.over("broker: put a run into the store")
        plain._answers(run, asked)
        laps.over("broker: frames of the answers")
        served.catch_up()
        if len(run.positions) < TOGETHER:
            store.put(message())  # the log grows
            cut_short += 1
    _check(served, cut_short, stored, requests[-1])
    laps.tell(report, stored)


async def measure(report: Report, count: int) -> None:
    """All stages, with about so many messages each."""
    chunks = max(1, count // TOGETHER)
    async with (
        EmbeddedBroker(memory_limit=2 * 1024**3) as broker,
        Producer("bench", namesrv=broker) as producer,
    ):
        for _ in range(2 * QUEUES):  # the topic is checked, and its queues are there
            await producer.send(Message(TOPIC, BODY))
        served = _Served(broker)
        await _measure_producer(report, served, producer, chunks)
        _measure_java(report, served, chunks)
