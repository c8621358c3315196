"""A push consumer in a process of its own that writes what it consumes to a file: a
member of a group that can be killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONSUMER = """
import os, sys, trio
from rocketmq_sdk import PushConsumer, ConsumeFrom
namesrv, topic, path, group = sys.argv[1:]

async def main():
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def listener(messages):
        os.write(out, b"".join(message.body + b"\\n" for message in messages))

    async with PushConsumer(
        group,
        namesrv=namesrv,
        subscriptions={topic: "*"},
        listener=listener,
        batch=32,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        print("ready", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def lines_of(path: Path) -> list[bytes]:
    """The bodies that a consumer has written so far."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []
