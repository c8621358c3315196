"""What a broker acknowledges under load until it is killed, and what is left of it."""

from __future__ import annotations

import random

import trio

from rocketmq_sdk import (
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RocketMQError,
    SendResult,
)


class Load:
    """Sends as fast as it can and remembers what was acknowledged."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.acknowledged: dict[bytes, SendResult] = {}

    async def run(self, producer: Producer, seed: int) -> None:
        generator = random.Random(seed)
        try:
            number = 0
            while True:
                handles = []
                for _ in range(32):
                    body = b"%d/%d/" % (seed, number) + generator.randbytes(
                        generator.randrange(1, 2000)
                    )
                    handles.append(
                        (
                            body,
                            producer.submit(
                                Message(self.topic, body, tags="t", keys=[f"k{number}"])
                            ),
                        )
                    )
                    number += 1
                for body, handle in handles:
                    self.acknowledged[body] = await handle
        except RocketMQError:
            return  # the broker is dead


async def consume_all(
    namesrv: str, topic: str, group: str, wanted: set[bytes]
) -> dict[bytes, ReceivedMessage]:
    """The messages of a topic by body, when all that are wanted are there or after a
    minute.
    """
    found: dict[bytes, ReceivedMessage] = {}

    async def listener(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            found[message.body] = message

    async with PushConsumer(
        group,
        namesrv=namesrv,
        subscriptions={topic: "*"},
        listener=listener,
        batch=32,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        with trio.move_on_after(60):
            while not wanted <= found.keys():
                await trio.sleep(0.05)
    return found
