"""Requests to one broker that leave together.

Each is answered as if it were alone, but they are written from a form with one write,
and the task that asks is woken once for all answers that came meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.frame_template import FrameTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.remoting.channel import Channel, PendingCall


def nothing(_: PendingCall) -> None:
    """Whoever asked looks at the calls in their order."""


class Together:
    """Requests that are as a sample, but for the values of some fields.

    The fields are in the order in which the sample has them. Their values are texts
    that JSON writes as they are.
    """

    def __init__(self, client: Client, sample: Command, fields: Sequence[str]) -> None:
        self._client = client
        self._sample = sample
        self._fields = fields
        self._form = FrameTemplate(sample, fields).form

    def begin(
        self,
        address: str,
        requests: Sequence[tuple[str, ...]],
        timeout: float,
        on_done: Callable[[PendingCall], None] = nothing,
    ) -> Sequence[PendingCall]:
        """Send requests of some values now; the calls that wait for their answers.

        Those are as many as could be sent, from the first on. They are none where there
        is no open connection, or one in the process, and where requests are encoded
        otherwise or looked at by interceptors. Forget those that are not waited for.
        """
        remoting = self._client.remoting
        channel = remoting.channel_nowait(address)
        if (
            channel is None
            or remoting.interceptors
            or self._client.config.header_encoding is not HeaderEncoding.JSON
        ):
            return ()
        now = trio.current_time()
        forms = [(self._form, values, b"", now, timeout, None) for values in requests]
        return channel.submit_forms(forms, on_done)

    async def ask(
        self, address: str, requests: Sequence[tuple[str, ...]], timeout: float
    ) -> list[Command | None]:
        """The answers to requests of some values, in their order, whatever their codes.

        None stands for a request without an answer, whatever the reason: there was no
        open connection, or it ended, or `timeout` seconds were over. Ask for that
        alone, which tells why. Cancellation drops the answers when they come.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        remoting = self._client.remoting
        channel = remoting.channel_nowait(address)
        if channel is None:
            return [None] * len(requests)
        calls = list(self.begin(address, requests, timeout))
        begun = len(calls)
        left = [self._command(values) for values in requests[begun:]]
        calls += self._submitted(channel, address, left, timeout)
        answers: list[Command | None] = []
        try:
            for number, call in enumerate(calls):
                try:
                    answer = call.response if call.done else await call.wait()
                    if answer is not None and number >= begun:
                        remoting.conclude(address, left[number - begun], answer)
                except RocketMQError:
                    answer = None
                answers.append(answer)
        finally:
            for call in calls:
                call.forget()
        return answers + [None] * (len(requests) - len(answers))

    def _command(self, values: tuple[str, ...]) -> Command:
        sample = self._sample
        fields = {**sample.ext_fields, **dict(zip(self._fields, values, strict=True))}
        return Command(sample.code, ext_fields=fields, encoding=self._client.config.header_encoding)

    def _submitted(
        self, channel: Channel, address: str, commands: Sequence[Command], timeout: float
    ) -> list[PendingCall]:
        """The calls of requests one by one, as many as could be sent."""
        calls: list[PendingCall] = []
        try:
            for command in commands:
                self._client.remoting.intercept(address, command)
                calls.append(channel.submit(command, timeout))
        except RocketMQError:
            pass  # those that follow have no answer
        return calls
