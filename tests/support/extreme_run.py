"""Extreme requests to a broker and its name server, beside well-behaved clients."""

from __future__ import annotations

from contextlib import suppress
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
from support.extreme_requests import Extremes, Made
from support.hostile import assert_sensible
from support.measured import GOOD_GROUP, GOOD_TOPIC, Measured, measuring

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.request import Request
    from support.processes import BrokerProcess

PATIENCE = 60.0
"""Seconds within which a machine under load answers a batch."""
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
    good: Measured = attrs.field(factory=lambda: Measured([], [], [], []))
    """What the well-behaved client saw."""
    cut_off: int = 0

    @property
    def sent(self) -> int:
        """Messages that the good client has sent and committed."""
        return self.good.rounds

    def take(self, good: Measured) -> None:
        """Add what the good client saw."""
        self.good = good
        self.failures += good.failures

    def __str__(self) -> str:
        codes = ", ".join(f"{code}: {count}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.requests} requests, {self.answers} answers (codes {codes}); {self.good}; "
            f"{self.cut_off} silent brokers cut off; {len(self.failures)} failures in all"
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


async def run(
    broker: BrokerProcess, *, requests: int, seed: int, connections: int = 4, after: float = 0.0
) -> Report:
    """Attack broker and name server, and look on for `after` seconds more; the report
    says what happened.
    """
    report = Report()
    of_broker, of_name_server = await rows()
    assert broker.process is not None
    places = [broker.address, broker.namesrv]
    async with measuring(places, broker.process.pid, report.take):
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
