"""`rocketmq tail`: the messages of a topic as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.cli.operate.command import Command, Session, positive, time
from rocketmq_sdk.cli.operate.messages import body_argument, show

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-b", "--begin", type=time, metavar="TIME", help="begin there (default: now)"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="end after N messages")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-s", "--tags", default="*", metavar="TAGS", help='such as "paid || open"')
    which.add_argument("--sql", metavar="EXPRESSION", help="SQL92, where brokers allow it")
    body_argument(parser)


async def _tail(session: Session) -> None:
    options = session.options
    count = 0
    async with session.admin.messages.follow(
        options.topic, begin=options.begin, tags=options.tags, sql=options.sql
    ) as messages:
        async for message in messages:
            show(session, message)
            count += 1
            if count == options.limit:
                break


COMMANDS: Final = (
    Command("tail", "print the messages of a topic as they come", _tail, _arguments),
)
