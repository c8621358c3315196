"""Several requests to one broker that leave together.

Each is written and answered as if it were alone, but the task that asks is woken once
for all answers that came meanwhile, and broker and client find them side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.errors import RocketMQError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.protocol.command import Command


async def ask_together(
    client: Client, address: str, requests: Sequence[Command], timeout: float
) -> list[Command | None]:
    """The answers to some requests, in their order, whatever their codes.

    None stands for a request without an answer, whatever the reason: there was no open
    connection, or it ended, or `timeout` seconds were over. Ask for that alone, which
    tells why. Cancellation drops the answers when they come.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    remoting = client.remoting
    channel = remoting.channel_nowait(address)
    if channel is None:
        return [None] * len(requests)
    calls = []
    try:
        for request in requests:
            request.encoding = client.config.header_encoding
            remoting.intercept(address, request)
            calls.append(channel.submit(request, timeout))
    except RocketMQError:
        pass  # those that follow have no answer
    answers: list[Command | None] = []
    try:
        for request, call in zip(requests, calls, strict=False):
            try:
                answer = call.response if call.done else await call.wait()
                if answer is not None:
                    remoting.conclude(address, request, answer)
            except RocketMQError:
                answer = None
            answers.append(answer)
    finally:
        for call in calls:
            call.forget()
    return answers + [None] * (len(requests) - len(answers))
