"""Topics: listed, looked at, made, changed, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.cli.operate.command import (
    Command,
    Session,
    positive,
    truth,
    whole,
)
from rocketmq_sdk.cli.operate.output import Row, moment
from rocketmq_sdk.client.api.routes import cluster_info
from rocketmq_sdk.client.api.topics import create_topic, topic_config
from rocketmq_sdk.errors import ConfigurationError, TopicNotFoundError
from rocketmq_sdk.names import topic_problem
from rocketmq_sdk.protocol.bodies.topics import TopicConfig

if TYPE_CHECKING:
    import argparse

PERMISSIONS: Final = (2, 4, 6)


def topic_argument(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """`-t TOPIC`."""
    parser.add_argument("-t", "--topic", required=required, metavar="TOPIC")


def place_arguments(parser: argparse.ArgumentParser) -> None:
    """`-b ADDRESS` or `-c CLUSTER`."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-b", "--broker-addr", metavar="HOST:PORT", help="at this broker alone")
    where.add_argument("-c", "--cluster-name", metavar="NAME", help="at the masters of a cluster")


async def addresses(session: Session) -> list[str]:
    """Where a change goes: one broker, or the masters of one cluster or of all."""
    options = session.options
    if options.broker_addr:
        return [options.broker_addr]
    masters = await session.admin.cluster.masters(cluster=options.cluster_name)
    return [broker.address for broker in masters]


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--cluster-model", action="store_true", help="say in which clusters each topic is"
    )
    parser.add_argument("--system", action="store_true", help="also those that brokers make")


async def _list(session: Session) -> None:
    names = await session.admin.topics.names(system=session.options.system)
    if not session.options.cluster_model:
        session.out.rows([{"topic": name} for name in names], none="there is no topic")
        return
    rows: list[Row] = []
    clusters = (await cluster_info(session.admin.client)).cluster_addr_table
    for name in names:
        try:
            route = await session.admin.topics.route(name)
        except TopicNotFoundError:
            continue  # deleted in between
        at = {data.broker_name for data in route.broker_datas}
        rows += [
            {"cluster": cluster, "topic": name}
            for cluster, brokers in sorted(clusters.items())
            if at & set(brokers)
        ]
    session.out.rows(rows, none="there is no topic")


async def _route(session: Session) -> None:
    route = await session.admin.topics.route(session.options.topic)
    addresses = {data.broker_name: data.broker_addrs for data in route.broker_datas}
    session.out.rows(
        {
            "broker": data.broker_name,
            "readQueues": data.read_queue_nums,
            "writeQueues": data.write_queue_nums,
            "perm": data.perm,
            "addresses": {
                str(broker_id): address
                for broker_id, address in sorted(addresses.get(data.broker_name, {}).items())
            },
        }
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
    )


async def _status(session: Session) -> None:
    offsets = await session.admin.topics.offsets(session.options.topic)
    session.out.rows(
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "minOffset": ends.min_offset,
            "maxOffset": ends.max_offset,
            "lastUpdated": moment(ends.last_update_timestamp),
        }
        for queue, ends in offsets.items()
    )


def _update_arguments(parser: argparse.ArgumentParser) -> None:
    topic_argument(parser)
    place_arguments(parser)
    parser.add_argument(
        "-r", "--read-queue-nums", type=positive, default=8, metavar="N", help="default: 8"
    )
    parser.add_argument(
        "-w", "--write-queue-nums", type=positive, default=8, metavar="N", help="default: 8"
    )
    parser.add_argument(
        "-p", "--perm", type=whole, choices=PERMISSIONS, default=6, help="2 W, 4 R, 6 RW (default)"
    )
    parser.add_argument("-o", "--order", type=truth, default=False, metavar="true|false")
    parser.add_argument(
        "-a",
        "--attributes",
        metavar="+NAME=VALUE,-NAME",
        help="attributes to set (+) and to take away (-), such as +message.type=FIFO",
    )


def _attributes(text: str | None) -> tuple[dict[str, str], list[str]]:
    """Attributes to set, and those to take away.

    Raises `ConfigurationError` for one that says neither.
    """
    wanted, removed = {}, []
    for part in filter(None, (text or "").split(",")):
        name, equal, value = part.strip()[1:].partition("=")
        if part.strip().startswith("+") and name and equal:
            wanted[name] = value
        elif part.strip().startswith("-") and name and not equal:
            removed.append(name)
        else:
            raise ConfigurationError(f"the attribute {part!r} is neither +NAME=VALUE nor -NAME")
    return wanted, removed


async def _update(session: Session) -> None:
    options = session.options
    client, topic = session.admin.client, options.topic
    wanted, removed = _attributes(options.attributes)
    name = client.namespace.wrap(topic)
    if problem := topic_problem(name):
        raise ConfigurationError(problem)
    config = TopicConfig(
        name,
        options.read_queue_nums,
        options.write_queue_nums,
        options.perm,
        order=options.order,
        attributes=wanted,
    )
    for address in await addresses(session):
        await create_topic(client, address, config, removed_attributes=removed)
    session.out.done(f"the topic {topic} is made or changed", topic=topic)


def _perm_arguments(parser: argparse.ArgumentParser) -> None:
    topic_argument(parser)
    place_arguments(parser)
    parser.add_argument(
        "-p", "--perm", type=whole, choices=PERMISSIONS, required=True, help="2 W, 4 R, 6 RW"
    )


async def _perm(session: Session) -> None:
    options = session.options
    client = session.admin.client
    topic = client.namespace.wrap(options.topic)
    changed = 0
    for address in await addresses(session):
        try:
            config = await topic_config(client, address, topic)
        except TopicNotFoundError:
            if options.broker_addr:
                raise
            continue  # not every master has every topic
        # Attributes that stay are not said again: brokers take changes of them only.
        await create_topic(client, address, attrs.evolve(config, perm=options.perm, attributes={}))
        changed += 1
    if not changed:
        raise TopicNotFoundError(17, f"no master has the topic {options.topic}")
    session.out.done(
        f"the permission of {options.topic} is {options.perm} at {changed} brokers",
        topic=options.topic,
        perm=options.perm,
        brokers=changed,
    )


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    topic_argument(parser)
    parser.add_argument("-c", "--cluster-name", metavar="NAME", help="in this cluster alone")


async def _delete(session: Session) -> None:
    topic = session.options.topic
    existed = True
    try:
        await session.admin.topics.route(topic)
    except TopicNotFoundError:
        existed = False
    # Also one that no name server knows: a broker may have been left out the last time.
    await session.admin.topics.delete(topic, cluster=session.options.cluster_name)
    session.out.done(
        f"the topic {topic} is deleted with its messages"
        if existed
        else f"there was no topic {topic}",
        topic=topic,
        existed=existed,
    )


COMMANDS: Final = (
    Command("topicList", "list topics", _list, _list_arguments),
    Command("topicRoute", "show the brokers and queues of a topic", _route, topic_argument),
    Command("topicStatus", "show the ends of a topic's queues", _status, topic_argument),
    Command("updateTopic", "make or change a topic", _update, _update_arguments),
    Command("updateTopicPerm", "change what may be done with a topic", _perm, _perm_arguments),
    Command("deleteTopic", "delete a topic with its messages", _delete, _delete_arguments),
)
