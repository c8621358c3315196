"""`rocketmq dlq list|show|resend|purge`: what groups gave up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.filter.evaluate import CompiledExpression, compile_expression
from rocketmq_sdk.cli.operate.command import Command, Session, name_and_value, positive, time
from rocketmq_sdk.cli.operate.connection import connection_arguments
from rocketmq_sdk.cli.operate.messages import body_argument, show
from rocketmq_sdk.cli.operate.output import closing, moment
from rocketmq_sdk.errors import ConfigurationError, NotFoundError, TopicNotFoundError

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from rocketmq_sdk.model.received import ReceivedMessage


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="the groups that have dead letters")
    shown = actions.add_parser("show", help="the dead letters of a group")
    resent = actions.add_parser("resend", help="give the group another try at its dead letters")
    purged = actions.add_parser("purge", help="delete all dead letters of a group")
    for action in actions.choices.values():
        connection_arguments(action)
    for action in (shown, resent, purged):
        action.add_argument("group", metavar="GROUP")
    for action in (shown, resent):
        action.add_argument("-b", "--begin", type=time, metavar="TIME", help="given up since then")
        action.add_argument("-e", "--end", type=time, metavar="TIME", help="given up until then")
        action.add_argument("-k", "--key", metavar="KEY", help="those with this key")
        action.add_argument("-i", "--msg-id", metavar="ID", help="the one with this id")
        action.add_argument("-s", "--tag", metavar="TAG", help="those with this tag")
        action.add_argument(
            "--property",
            type=name_and_value,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="those with this property; may be repeated",
        )
        action.add_argument(
            "--sql",
            metavar="EXPRESSION",
            help="those for which this SQL92 is true, whether brokers allow it or not",
        )
        action.add_argument("--limit", type=positive, metavar="N", help="the first N")
        body_argument(action)
    resent.add_argument("--all", action="store_true", help="all of them, without a selection")
    resent.add_argument("--dry-run", action="store_true", help="only show what would be sent")
    purged.add_argument("--yes", action="store_true", help="without it nothing is deleted")


def _wanted(
    message: ReceivedMessage, options: argparse.Namespace, sql: CompiledExpression | None
) -> bool:
    return (
        (options.key is None or options.key in message.keys)
        and (
            options.msg_id is None
            or options.msg_id in (message.message_id, message.offset_message_id)
        )
        and (options.tag is None or options.tag == message.tags)
        and all(message.properties.get(name) == value for name, value in options.property)
        and (sql is None or sql.matches(message.properties))
    )


async def _selected(session: Session) -> AsyncIterator[ReceivedMessage]:
    options = session.options
    sql = None if options.sql is None else compile_expression(options.sql)
    count = 0
    async with closing(
        session.admin.dead_letters.of(options.group, begin=options.begin, end=options.end)
    ) as letters:
        async for message in letters:
            if _wanted(message, options, sql):
                yield message
                count += 1
                if count == options.limit:
                    return


async def _run(session: Session) -> int | None:
    action = session.options.action
    try:
        return await _ACTIONS[action](session)
    except (NotFoundError, TopicNotFoundError):
        if action == "list":
            raise
        group = session.options.group
        await session.admin.groups.config(group)  # raises for one that is not there
        session.out.done(f"{group} has given up no message", count=0)
        return int(action == "resend")


async def _list(session: Session) -> None:
    session.out.rows(
        (
            {
                "group": topic.group,
                "messages": topic.messages,
                "lastStored": moment(topic.last_store_time),
            }
            for topic in await session.admin.dead_letters.topics()
        ),
        none="no group has given up a message",
    )


async def _show(session: Session) -> None:
    async with closing(_selected(session)) as letters:
        async for message in letters:
            show(session, message)


async def _resend(session: Session) -> int:
    options = session.options
    names = ("begin", "end", "key", "msg_id", "tag", "sql", "limit")
    chosen = [getattr(options, name) for name in names]
    if not options.all and not options.property and all(each is None for each in chosen):
        raise ConfigurationError(
            "say which dead letters are meant (-k, -i, -s, -b, -e, --limit, --property, --sql), or "
            "--all"
        )
    count = 0
    async with closing(_selected(session)) as letters:
        async for message in letters:
            if not options.dry_run:
                await session.admin.dead_letters.resend(message, options.group)
            show(session, message)
            count += 1
    verb = "would be sent" if options.dry_run else "were sent"
    session.out.done(f"{count:,} dead letters {verb} to {options.group} again", count=count)
    return int(not count)


async def _purge(session: Session) -> int:
    group = session.options.group
    if not session.options.yes:
        raise ConfigurationError(
            f"this deletes all dead letters of {group} at all brokers, for good; say --yes"
        )
    count = await session.admin.dead_letters.purge(group)
    session.out.done(f"{count:,} dead letters of {group} are deleted", count=count)
    return 0


_ACTIONS: Final = {"list": _list, "show": _show, "resend": _resend, "purge": _purge}
COMMANDS: Final = (
    Command("dlq", "list, show, resend or purge dead letters", _run, _arguments, True),
)
