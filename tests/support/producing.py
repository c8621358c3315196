"""What the tests of the producer share: a producer on a cluster of scripted peers, and
a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.headers.send import SendMessageRequestHeaderV2

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel
    from support.peers import Cluster, ScriptedBroker


class Running:
    """A client and a producer on it, for the length of a block."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        self.client = cluster.client()
        self.options = options

    async def __aenter__(self) -> Producer:
        await self.client.__aenter__()
        self.producer = Producer("pg", client=self.client, **self.options)
        return await self.producer.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self.producer.__aexit__(*error)
        finally:
            await self.client.__aexit__(*error)


def message(body: bytes = b"body", **options: Any) -> Message:
    return Message("t", body, **options)


def slow(broker: ScriptedBroker, seconds: float) -> Any:
    """A step of a script: answer after a time."""

    def step(_channel: Channel, request: Command) -> Any:
        async def answer() -> Command:
            await trio.sleep(seconds)
            return broker.answer(SendMessageRequestHeaderV2.from_ext(request.ext_fields))

        return answer

    return step
