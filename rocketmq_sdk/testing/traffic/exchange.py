"""What stands in front of the handlers of a broker under test: it records and fails."""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.protocol.bodies.members import HeartbeatData
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.housekeeper import housekeeper
from rocketmq_sdk.testing.traffic.recording import Recording, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler
    from rocketmq_sdk.testing.traffic.releases import Release
    from rocketmq_sdk.testing.traffic.request_faults import RequestFaults

BROKER: Final = "broker"
"""Where a request came that the name server has not got."""


@lru_cache(maxsize=256)
def _host(address: str) -> str:
    return split_address(address)[0]


class Exchange:
    """All requests of one broker under test pass here."""

    def __init__(
        self,
        recording: Recording,
        faults: RequestFaults,
        now_ms: Callable[[], int],
        release: Release | None = None,
    ) -> None:
        """With `release` the broker is as one of that release to its clients."""
        self.release = release
        """The release that it emulates; None for this package's own."""
        self._recording = recording
        self._faults = faults
        self._now_ms = now_ms
        self._client_ids: dict[int, str] = {}
        self._heartbeats: dict[int, bytes] = {}
        self._blind = False

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Let requests pass without a record and without faults, for the block."""
        self._blind = True
        try:
            yield
        finally:
            self._blind = False

    def _older(self, release: Release, serve: Handler) -> Handler:
        """A handler as an older release has it."""

        def handle(channel: Channel, request: Command) -> Command | Continuation | None:
            code = request.code
            if not release.serves(code):
                return release.as_answered(code, release.unknown(code))
            outcome = serve(channel, request)
            if outcome is None or isinstance(outcome, Command):
                return outcome and release.as_answered(code, outcome)

            async def later() -> Command | None:
                answer = await outcome()
                return answer and release.as_answered(code, answer)

            return later

        return handle

    def front(self, serve: Handler, rows: Callable[[], dict[int, Request]], where: str) -> Handler:
        """A handler that records each request and lets it meet the faults.

        `rows` are those of the requests that `serve` knows, `where` is what it is.
        """
        if self.release is not None and where == BROKER:
            serve = self._older(self.release, serve)

        @trio.lowlevel.enable_ki_protection
        def handle(channel: Channel, request: Command) -> Command | Continuation | None:
            if self._blind:
                return serve(channel, request)
            seen = self._note(channel, request, rows().get(request.code), where)
            handler = serve
            if self._faults.active:
                housekeeper().hide_nothing()
                for fault in reversed([one for one in self._faults.active if one.strikes(seen)]):
                    handler = fault.around(handler)
            outcome = handler(channel, request)
            if isinstance(outcome, Command):
                seen.answer = outcome.code
                return outcome
            return None if outcome is None else self._later(seen, outcome)

        return handle

    @staticmethod
    def _later(seen: Seen, outcome: Continuation) -> Continuation:
        async def answer() -> Command | None:
            answer = await outcome()
            if answer is not None:
                seen.answer = answer.code
            return answer

        return answer

    def _note(self, channel: Channel, request: Command, row: Request | None, where: str) -> Seen:
        if request.code == RequestCode.HEART_BEAT:
            self._learn_client(channel, request)
        seen = Seen(
            request,
            row=row,
            host=_host(channel.remote_address),
            client_id=self._client_ids.get(channel.channel_id),
            where=where,
            time=self._now_ms(),
        )
        self._recording.add(seen)
        return seen

    def _forget_client(self, number: int) -> None:
        self._client_ids.pop(number, None)
        self._heartbeats.pop(number, None)

    def _learn_client(self, channel: Channel, request: Command) -> None:
        if self._heartbeats.get(channel.channel_id) == request.body:
            return
        try:
            client_id = HeartbeatData.decode(request.body).client_id
        except RocketMQError:
            return  # the broker refuses it
        if channel.channel_id not in self._client_ids:
            channel.on_close.append(lambda channel: self._forget_client(channel.channel_id))
        self._client_ids[channel.channel_id] = client_id
        self._heartbeats[channel.channel_id] = request.body
