"""Commands of operators in a test: their options as a user writes them, an embedded
broker without ports, and what they print.
"""

from __future__ import annotations

import io
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.cli import parser
from rocketmq_sdk.cli.operate import COMMANDS
from rocketmq_sdk.cli.operate.command import Session
from rocketmq_sdk.cli.operate.output import Output
from rocketmq_sdk.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.remoting.credentials import Credentials


@attrs.frozen
class Printed:
    """What a command printed, and its exit code."""

    code: int
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows that were printed as JSON."""
        return [json.loads(line) for line in self.lines]


async def run_with(admin: Admin, *arguments: str) -> Printed:
    """Run one command at the cluster of an `Admin`."""
    options = parser().parse_all(arguments)
    stream = io.StringIO()
    out = Output(as_json=options.json, stream=stream)
    code = await COMMANDS[options.command].run(Session(options, admin, out))
    return Printed(code or 0, stream.getvalue())


class Shell:
    """Runs commands against one broker."""

    def __init__(self, broker: EmbeddedBroker, admin: Admin, producer: Producer) -> None:
        self.broker = broker
        self.admin = admin
        self.producer = producer

    async def run(self, *arguments: str) -> Printed:
        """Run one command."""
        return await run_with(self.admin, *arguments)

    async def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """The rows that a command prints; its exit code must be 0."""
        printed = await self.run(*arguments, "--json")
        assert printed.code == 0, printed.text
        return printed.rows


@asynccontextmanager
async def shell(*, credentials: Credentials | None = None, **settings: Any) -> AsyncIterator[Shell]:
    """A broker in memory with the topic `orders`, and somebody who runs commands."""
    with trio.fail_after(3600):
        async with (
            EmbeddedBroker(**settings) as broker,
            Admin(namesrv=broker, credentials=credentials) as admin,
            Producer("shop", namesrv=broker, credentials=credentials) as producer,
        ):
            await admin.topics.create("orders", queues=2)
            yield Shell(broker, admin, producer)
