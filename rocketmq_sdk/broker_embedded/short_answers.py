"""Answers to requests that one append serves, and that say success and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.timers.intake import STORED
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY
from rocketmq_sdk.protocol.frame_template import FrameTemplate, frame_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.store.messages import PutResult, PutStatus
    from rocketmq_sdk.broker_embedded.timers.intake import Intake
    from rocketmq_sdk.remoting.channel import Channel, Reply

_FORM: Final = FrameTemplate(Command.response(), ()).form


class ShortAnswers:
    """Makes them, as frames where those are asked for; none to one-way requests."""

    __slots__ = ("_core", "_intake")

    def __init__(self, core: Core, intake: Intake) -> None:
        self._core = core
        self._intake = intake

    def now(
        self, requests: Sequence[Command], failure: PutStatus | None, *, frames: bool
    ) -> list[Reply]:
        """Those to requests that are done, or have failed."""
        if failure is not None or not frames:
            return [
                None if request.flag & FLAG_ONEWAY else self._command(failure)
                for request in requests
            ]
        return [
            None if request.flag & FLAG_ONEWAY else frame_of((_FORM % (request.opaque,)).encode())
            for request in requests
        ]

    def when_durable(
        self,
        channel: Channel,
        requests: Sequence[Command],
        result: PutResult,
        *,
        frames: bool,
        failure: PutStatus | None = None,
    ) -> Sequence[Reply]:
        """Those to requests that are appended; they follow the sync if there is one.

        Where that failed they say `failure`, or else what it says.
        """
        if not self._core.store.needs_wait:
            return self.now(requests, None, frames=frames)
        answers: Sequence[Reply] | None = None

        def tell(status: PutStatus) -> None:
            nonlocal answers
            failed = None if status in STORED else failure or status
            if later:
                for request in requests:
                    channel.respond(request, self._command(failed))
            else:
                answers = self.now(requests, failed, frames=frames)

        later = False
        self._core.store.when_durable(result, tell)
        if answers is None:
            later = True
            return [None] * len(requests)
        return answers

    def _command(self, failure: PutStatus | None) -> Command:
        if failure is None:
            return Command.response()
        code, remark = self._intake.failure(failure)
        return Command.response(code, remark=remark)
