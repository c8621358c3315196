"""Extreme requests to a broker and its name server, beside well-behaved clients."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import attrs
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.source import TcpChannelSource
from support.broker import pull_request, send_request
from support.extreme_requests import Extremes, Made
from support.hostile import assert_sensible, processor_seconds, resident_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.broker_embedded.request import Request
    from support.processes import BrokerProcess

GOOD_TOPIC, GOOD_GROUP = "WellBehaved", "WellBehavedGroup"
PATIENCE = 30.0
"""Seconds within which a machine under load answers a batch."""
LONGEST_WORK = 1.0
"""Seconds of processor time of the broker within which it answers a good call."""
LONGEST = 10.0
"""Seconds within which it does on a machine that works for others meanwhile."""
BATCH = 25
HOLDS = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
        # Asked from clients that may not answer.
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    }
)
"""Requests that may wait; their answers are not waited for."""


@attrs.define
class Report:
    """What was seen."""

    requests: int = 0
    answers: int = 0
    codes: dict[int, int] = attrs.field(factory=dict)
    failures: list[str] = attrs.field(factory=list)
    good_calls: int = 0
    sent: int = 0
    """Messages that the good client has sent and committed."""
    times: list[float] = attrs.field(factory=list)
    most_resident: int = 0
    cut_off: int = 0

    def percentile(self, share: float) -> float:
        """Seconds within which this share of the good calls was answered."""
        times = sorted(self.times)
        return times[min(len(times) - 1, math.floor(len(times) * share))] if times else 0.0

    def __str__(self) -> str:
        codes = ", ".join(f"{code}: {count}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.requests} requests, {self.answers} answers (codes {codes}); "
            f"{self.good_calls} good calls, p50 {self.percentile(0.5) * 1e3:.1f} ms, "
            f"p99 {self.percentile(0.99) * 1e3:.1f} ms, slowest {self.percentile(1) * 1e3:.0f} ms; "
            f"at most {self.most_resident / 1e6:.0f} MB; {self.cut_off} silent brokers cut off; "
            f"{len(self.failures)} failures"
        )


async def rows() -> tuple[list[Request], list[Request]]:
    """The rows of broker and name server."""
    async with EmbeddedBroker() as broker:
        return list(broker.requests), list(broker.namesrv.requests)


class _Hostile:
    """One connection that sends extreme requests."""

    def __init__(self, stream: trio.SocketStream, report: Report) -> None:
        self._stream = stream
        self._connection = Connection()
        self._report = report
        self._registered = False
        self.open = True

    async def send(self, made: list[Made]) -> None:
        """Send some requests, and take their answers.

        A name server closes the connection of a broker that it does not hear of in
        the time that its registration named (Apache's `RouteInfoManager
        .scanNotActiveBroker`): that is counted, any other end is a failure.
        """
        waiting: dict[int, str] = {}
        frames: list[bytes] = []
        for opaque, (command, what) in enumerate(made, 1 + self._report.requests):
            command.opaque = opaque
            self._registered |= command.code == RequestCode.REGISTER_BROKER
            frames.append(encode_frame(command))
            if command.code not in HOLDS:
                waiting[opaque] = what
        self._report.requests += len(made)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, b"".join(frames))
            with trio.move_on_after(PATIENCE):
                while waiting:
                    data = await self._receive()
                    if not data and self._registered:
                        self._report.cut_off += 1
                        self.open = False
                        return
                    if not data:
                        self.open = False
                        self._report.failures.append(f"cut off during {waiting}"[:3000])
                        return
                    for answer in self._connection.receive_commands(data):
                        self._take(answer, waiting)
        for what in waiting.values():
            self._report.failures.append(f"no answer within {PATIENCE:g} s: {what}")

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(1 << 20))
        except trio.BrokenResourceError:
            return b""

    async def _write(self, data: bytes) -> None:
        # The reader tells of a connection that is cut off meanwhile.
        with suppress(trio.BrokenResourceError):
            await self._stream.send_all(data)

    def _take(self, answer: Command, waiting: dict[int, str]) -> None:
        if not answer.is_response:
            return
        report = self._report
        report.answers += 1
        report.codes[answer.code] = report.codes.get(answer.code, 0) + 1
        what = waiting.pop(answer.opaque, "a held request")
        try:
            assert_sensible(answer, what)
        except AssertionError as error:
            report.failures.append(str(error)[:3000])


async def attack(
    address: str, rows: list[Request], report: Report, *, requests: int, seed: int
) -> None:
    """Send so many requests over a few connections, one after the other."""
    extremes = Extremes(rows, seed, others=True)
    host, port = address.rsplit(":", 1)
    left = requests
    while left > 0 and len(report.failures) < 20:
        stream = await trio.open_tcp_stream(host, int(port))
        hostile = _Hostile(stream, report)
        try:
            for _ in range(20):
                if left <= 0 or not hostile.open:
                    break
                await hostile.send([extremes.make() for _ in range(min(BATCH, left))])
                left -= BATCH
        finally:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def well_behaved(broker: BrokerProcess, report: Report) -> AsyncIterator[None]:
    """A client that sends, pulls, commits and asks for its route all the time."""
    async with trio.open_nursery() as nursery:
        source = TcpChannelSource()
        to_broker = await source.open_channel(broker.address, Dispatcher(), nursery)
        to_name_server = await source.open_channel(broker.namesrv, Dispatcher(), nursery)

        assert broker.process is not None
        pid = broker.process.pid

        async def work() -> None:
            number = 0
            while True:
                place = {"consumerGroup": GOOD_GROUP, "topic": GOOD_TOPIC, "queueId": "0"}
                for channel, command in (
                    (to_broker, send_request(GOOD_TOPIC, b"x" * 1000)),
                    (to_broker, pull_request(GOOD_TOPIC, number, group=GOOD_GROUP)),
                    (
                        to_broker,
                        Command(
                            RequestCode.UPDATE_CONSUMER_OFFSET,
                            ext_fields={**place, "commitOffset": str(number + 1)},
                        ),
                    ),
                    (
                        to_name_server,
                        Command(
                            RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": GOOD_TOPIC}
                        ),
                    ),
                ):
                    began, worked = trio.current_time(), processor_seconds(pid)
                    answer = await channel.call(command, PATIENCE)
                    report.times.append(trio.current_time() - began)
                    worked = processor_seconds(pid) - worked
                    if worked > LONGEST_WORK or report.times[-1] > LONGEST:
                        report.failures.append(
                            f"{report.times[-1]:.1f} s, {worked:.1f} s of them at work, "
                            f"for a good {command}"
                        )
                    report.good_calls += 1
                    if answer.code != 0:
                        report.failures.append(f"a good call failed: {command} {answer}")
                number += 1
                report.sent = number
                await trio.sleep(0.01)

        async def watch_memory() -> None:
            while True:
                report.most_resident = max(report.most_resident, resident_bytes(pid))
                await trio.sleep(0.05)

        nursery.start_soon(work)
        nursery.start_soon(watch_memory)
        yield
        before = report.good_calls
        with trio.fail_after(PATIENCE):
            while report.good_calls < before + 8:
                await trio.sleep(0.02)
        nursery.cancel_scope.cancel()


async def run(
    broker: BrokerProcess, *, requests: int, seed: int, connections: int = 4, after: float = 0.0
) -> Report:
    """Attack broker and name server, and look on for `after` seconds more; the report
    says what happened.
    """
    report = Report()
    of_broker, of_name_server = await rows()
    async with well_behaved(broker, report):
        async with trio.open_nursery() as nursery:
            share = requests // (connections + 1)
            for number in range(connections):
                nursery.start_soon(_attack(share, seed + number, broker.address, of_broker, report))
            nursery.start_soon(
                _attack(share, seed + connections, broker.namesrv, of_name_server, report)
            )
        await trio.sleep(after)
    return report


async def what_is_kept(broker: BrokerProcess, report: Report) -> list[str]:
    """What of the good client's is not there any more in a broker that was started
    again.
    """
    wrong: list[str] = []
    place = {"consumerGroup": GOOD_GROUP, "topic": GOOD_TOPIC, "queueId": "0"}
    async with trio.open_nursery() as nursery:
        source = TcpChannelSource()
        for address, code, fields in (
            (broker.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": GOOD_TOPIC}),
            (broker.address, RequestCode.GET_MAX_OFFSET, place),
            (broker.address, RequestCode.QUERY_CONSUMER_OFFSET, place),
        ):
            channel = await source.open_channel(address, Dispatcher(), nursery)
            answer = await channel.call(Command(code, ext_fields=dict(fields)), PATIENCE)
            if answer.code != 0:
                wrong.append(f"{code.name} after a restart: {answer}")
            elif "offset" in answer.ext_fields and int(answer.ext_fields["offset"]) < report.sent:
                wrong.append(f"{code.name} tells less than {report.sent}: {answer}")
        nursery.cancel_scope.cancel()
    return wrong


def _attack(share: int, seed: int, address: str, rows: list[Request], report: Report):  # type: ignore[no-untyped-def]
    async def go() -> None:
        await attack(address, rows, report, requests=share, seed=seed)

    return go
