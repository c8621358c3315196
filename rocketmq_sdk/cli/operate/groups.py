"""Consumer groups: progress, lag, members, settings, offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.cli.operate.command import Command, Session, need, seconds, time, truth, whole
from rocketmq_sdk.cli.operate.output import Row, moment
from rocketmq_sdk.cli.operate.topics import addresses, place_arguments, topic_argument
from rocketmq_sdk.client.api.connections import producer_connections
from rocketmq_sdk.client.api.groups import all_groups, update_group
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import BrokerError, ConfigurationError, GroupNotFoundError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.names import group_problem
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig

if TYPE_CHECKING:
    import argparse

    from rocketmq_sdk.protocol.bodies.connections import ClientConnection


def _group(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument("-g", "--group-name", required=required, metavar="GROUP")


def _progress_arguments(parser: argparse.ArgumentParser) -> None:
    _group(parser, required=False)
    topic_argument(parser, required=False)


async def _progress(session: Session) -> None:
    group, topic = session.options.group_name, session.options.topic
    if group is None:
        session.out.rows(await _lags(session, None, topic), none="there is no group")
        return
    progress = await session.admin.groups.progress(group, topic)
    session.out.rows(
        (
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "brokerOffset": offsets.broker_offset,
                "consumerOffset": offsets.consumer_offset,
                "lag": max(0, offsets.broker_offset - offsets.consumer_offset),
                "lastConsumed": moment(offsets.last_timestamp),
            }
            for queue, offsets in progress.queues.items()
        ),
        none=f"the group {group} has not consumed anything yet",
    )


async def _lags(session: Session, group: str | None, topic: str | None) -> list[Row]:
    """How far groups are behind, in sum; one that is deleted meanwhile is left out."""
    names = await session.admin.groups.names() if group is None else [group]
    rows: list[Row] = []
    for name in names:
        try:
            progress = await session.admin.groups.progress(name, topic)
            members = await session.admin.groups.members(name)
        except GroupNotFoundError:
            if group is not None:
                raise
            continue
        rows.append(
            {
                "group": name,
                "members": len(members),
                "rate": round(progress.rate, 1),
                "lag": progress.lag,
            }
        )
    return rows


def _lag_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", nargs="?", metavar="GROUP", help="one group (default: all)")
    topic_argument(parser, required=False)
    parser.add_argument(
        "--watch", type=seconds, metavar="SECONDS", help="print again every so many seconds"
    )
    parser.add_argument(
        "--fail-above", type=whole, metavar="N", help="exit with 1 if a group lags by more"
    )


async def _lag(session: Session) -> int:
    options = session.options
    while True:
        rows = await _lags(session, options.group, options.topic)
        session.out.rows(rows, none="there is no group")
        worst = max((row["lag"] for row in rows if isinstance(row["lag"], int)), default=0)
        if options.watch is None:
            return int(options.fail_above is not None and worst > options.fail_above)
        await trio.sleep(options.watch)


def _member(member: ClientConnection) -> Row:
    return {
        "client": member.client_id,
        "address": member.client_addr,
        "language": member.language.name,
        "version": member.version,
    }


async def _members(session: Session) -> int:
    group = session.options.group_name
    members = await session.admin.groups.members(group)
    session.out.rows(
        [_member(member) for member in members],
        none=f"no member of the group {group} is connected",
    )
    return int(not members)


def _producers_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-g", "--producer-group", required=True, metavar="GROUP")
    topic_argument(parser)


async def _producers(session: Session) -> int:
    """Like mqadmin, ask the brokers of the topic: producers are connected to those."""
    options, client = session.options, session.admin.client
    group = client.namespace.wrap(options.producer_group)
    rows: dict[str, Row] = {}
    for data in (await session.admin.topics.route(options.topic)).broker_datas:
        address = data.broker_addrs.get(0)
        if address is None:
            continue
        try:
            found = await producer_connections(client, address, group)
        except BrokerError as error:
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            continue  # nobody of the group is there
        for member in found.connection_set:
            rows[member.client_id] = _member(member)
    session.out.rows(
        rows.values(), none=f"no producer of the group {options.producer_group} is connected"
    )
    return int(not rows)


async def _list(session: Session) -> None:
    names = await session.admin.groups.names(system=session.options.system)
    session.out.rows([{"group": name} for name in names], none="there is no group")


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", action="store_true", help="also those of the brokers")


SETTINGS: Final = (
    ("-s", "--consume-enable", truth, "true|false"),
    ("-m", "--consume-from-min-enable", truth, "true|false"),
    ("-d", "--consume-broadcast-enable", truth, "true|false"),
    ("-o", "--consume-message-orderly", truth, "true|false"),
    ("-q", "--retry-queue-nums", whole, "N"),
    ("-r", "--retry-max-times", whole, "N"),
    ("-i", "--broker-id", whole, "N"),
    ("-w", "--which-broker-when-consume-slowly", whole, "N"),
    ("-a", "--notify-consumer-ids-changed-enable", truth, "true|false"),
)
"""Settings of a group, as options of mqadmin's updateSubGroup."""


def _update_arguments(parser: argparse.ArgumentParser) -> None:
    _group(parser)
    place_arguments(parser)
    for short, name, kind, shown in SETTINGS:
        parser.add_argument(short, name, type=kind, metavar=shown)


async def _update(session: Session) -> None:
    options = session.options
    client = session.admin.client
    name = client.namespace.wrap(options.group_name)
    if problem := group_problem(name):
        raise ConfigurationError(problem)
    fields = [flag.removeprefix("--").replace("-", "_") for _short, flag, *_rest in SETTINGS]
    wanted = {
        field: getattr(options, field) for field in fields if getattr(options, field) is not None
    }
    for address in await addresses(session):
        known = (await all_groups(client, address)).get(name, SubscriptionGroupConfig(name))
        await update_group(client, address, attrs.evolve(known, attributes={}, **wanted))
    session.out.done(f"the group {options.group_name} is made or changed", group=name)


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    _group(parser)
    parser.add_argument("-c", "--cluster-name", metavar="NAME", help="in this cluster alone")
    parser.add_argument(
        "-r",
        "--remove-offset",
        type=truth,
        default=True,
        metavar="true|false",
        help="default: true",
    )


async def _delete(session: Session) -> None:
    options, group = session.options, session.options.group_name
    existed = group in await session.admin.groups.names(system=True)
    # Also one that no broker keeps: its offsets may be left.
    await session.admin.groups.delete(
        group, clean_offsets=options.remove_offset, cluster=options.cluster_name
    )
    session.out.done(
        f"the group {group} is deleted" if existed else f"no broker keeps a group {group}",
        group=group,
        existed=existed,
    )


def _reset_arguments(parser: argparse.ArgumentParser) -> None:
    _group(parser)
    topic_argument(parser)
    parser.add_argument(
        "-s", "--timestamp", type=time, metavar="TIME", help="go on with what was stored then"
    )
    parser.add_argument(
        "-o", "--offset", type=whole, metavar="N", help="go on there, with -b and -q"
    )
    parser.add_argument("-b", "--broker-name", metavar="NAME", help="broker of the one queue")
    parser.add_argument("-q", "--queue-id", type=whole, metavar="N", help="the one queue")


async def _reset(session: Session) -> None:
    options = session.options
    need(options, "timestamp", "offset")
    queue = None
    if options.offset is not None:
        if options.broker_name is None or options.queue_id is None:
            raise ConfigurationError("--offset is that of one queue; give -b and -q too")
        queue = MessageQueue(options.topic, options.broker_name, options.queue_id)
    elif options.broker_name is not None or options.queue_id is not None:
        raise ConfigurationError("-b and -q go with --offset; a time is for all queues")
    _print_offsets(
        session,
        await session.admin.groups.reset_offsets(
            options.group_name,
            options.topic,
            to=options.timestamp,
            queue=queue,
            offset=options.offset,
        ),
    )


def _skip_arguments(parser: argparse.ArgumentParser) -> None:
    _group(parser)
    topic_argument(parser)


async def _skip(session: Session) -> None:
    options = session.options
    _print_offsets(
        session, await session.admin.groups.reset_offsets(options.group_name, options.topic)
    )


def _print_offsets(session: Session, offsets: dict[MessageQueue, int]) -> None:
    session.out.rows(
        {"broker": queue.broker_name, "queue": queue.queue_id, "offset": offset}
        for queue, offset in offsets.items()
    )


def _clone_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--src-group", required=True, metavar="GROUP")
    parser.add_argument("-d", "--dest-group", required=True, metavar="GROUP")
    topic_argument(parser)
    parser.add_argument(
        "-o", "--offline", type=truth, default=False, metavar="true|false", help="default: false"
    )


async def _clone(session: Session) -> None:
    options = session.options
    if options.src_group == options.dest_group:
        raise ConfigurationError(f"-s and -d are the same group, {options.src_group}")
    # A broker copies nothing then, and says so to nobody.
    await session.admin.groups.config(options.src_group)
    await session.admin.groups.clone_offsets(
        options.src_group, options.dest_group, options.topic, offline=options.offline
    )
    session.out.done(f"{options.dest_group} goes on where {options.src_group} is")


COMMANDS: Final = (
    Command("groupList", "list consumer groups", _list, _list_arguments),
    Command(
        "consumerProgress",
        "show how far a group is, queue by queue",
        _progress,
        _progress_arguments,
    ),
    Command("lag", "show how many messages groups are behind", _lag, _lag_arguments),
    Command("consumerConnection", "show the connected members of a group", _members, _group),
    Command(
        "producerConnection",
        "show the connected members of a producer group",
        _producers,
        _producers_arguments,
    ),
    Command("updateSubGroup", "make or change a group", _update, _update_arguments),
    Command("deleteSubGroup", "delete a group", _delete, _delete_arguments),
    Command("resetOffsetByTime", "let a group go on elsewhere", _reset, _reset_arguments),
    Command("skipAccumulatedMessage", "let a group skip what is waiting", _skip, _skip_arguments),
    Command("cloneGroupOffset", "give a group the offsets of another", _clone, _clone_arguments),
)
