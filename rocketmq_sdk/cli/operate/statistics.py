"""Rates of topics, and texts that name servers keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.cli.operate.command import Command, Session
from rocketmq_sdk.cli.operate.topics import topic_argument
from rocketmq_sdk.client.api.connections import consuming_groups
from rocketmq_sdk.client.api.kv import delete_kv, kv_of, put_kv
from rocketmq_sdk.client.api.progress import broker_stats
from rocketmq_sdk.errors import BrokerError, NotFoundError, TopicNotFoundError
from rocketmq_sdk.names import DLQ_PREFIX, RETRY_PREFIX
from rocketmq_sdk.protocol.bodies.progress import BrokerStatsData

if TYPE_CHECKING:
    import argparse

    from rocketmq_sdk.cli.operate.output import Row

_TAKEN: Final = "TOPIC_PUT_NUMS"
_GIVEN: Final = "GROUP_GET_NUMS"


async def _stats(session: Session, address: str, name: str, key: str) -> BrokerStatsData:
    """A statistic; an empty one where nothing was counted yet."""
    try:
        return await broker_stats(session.admin.client, address, name, key)
    except BrokerError:
        return BrokerStatsData()


def _rates(found: list[BrokerStatsData]) -> tuple[float, int]:
    """Messages a second of the last minute, and how many in the last day."""
    minutes = [each.stats_minute for each in found]
    return (
        round(sum(each.tps for each in minutes if each), 2),
        sum(_of_day(each) for each in found),
    )


def _of_day(found: BrokerStatsData) -> int:
    """The sum of the longest span that has one by now (`StatsAllSubCommand`)."""
    spans = (found.stats_day, found.stats_hour, found.stats_minute)
    return next((each.sum for each in spans if each and each.sum), 0)


async def _of_topic(session: Session, topic: str) -> list[Row]:
    client = session.admin.client
    name = client.namespace.wrap(topic)
    route = await session.admin.topics.route(topic)
    masters = [each.broker_addrs[0] for each in route.broker_datas if 0 in each.broker_addrs]
    taken = _rates([await _stats(session, address, _TAKEN, name) for address in masters])
    groups = {
        group for address in masters for group in await consuming_groups(client, address, name)
    }
    rows: list[Row] = []
    wanted: list[str | None] = [*sorted(groups)]
    for group in wanted or [None]:
        key = f"{name}@{group}"
        given = (
            _rates([await _stats(session, address, _GIVEN, key) for address in masters])
            if group
            else (0.0, 0)
        )
        rows.append(
            {
                "topic": topic,
                "group": group,
                "inRate": taken[0],
                "outRate": given[0],
                "inDay": taken[1],
                "outDay": given[1],
            }
        )
    return rows


async def _all(session: Session) -> None:
    topic = session.options.topic
    rows: list[Row] = []
    for name in [topic] if topic else await session.admin.topics.names():
        if not topic and name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue  # as mqadmin does
        try:
            rows += await _of_topic(session, name)
        except TopicNotFoundError:
            if topic:
                raise  # else it is deleted in between
    session.out.rows(rows, none="there is no topic")


def _all_arguments(parser: argparse.ArgumentParser) -> None:
    topic_argument(parser, required=False)


def _namespace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--namespace-name", required=True, metavar="NAMESPACE")


def _key(parser: argparse.ArgumentParser) -> None:
    _namespace(parser)
    parser.add_argument("-k", "--key", required=True, metavar="KEY")


def _put_arguments(parser: argparse.ArgumentParser) -> None:
    _key(parser)
    parser.add_argument("-v", "--value", required=True, metavar="TEXT")


def _name_servers(session: Session) -> list[str | None]:
    """All of them: they do not tell each other."""
    return list(filter(None, session.admin.client.name_server_text.split(";"))) or [None]


async def _put(session: Session) -> None:
    options = session.options
    for address in _name_servers(session):
        await put_kv(
            session.admin.client, address, options.namespace_name, options.key, options.value
        )
    session.out.done(f"{options.key} in {options.namespace_name} is {options.value}")


async def _delete(session: Session) -> None:
    options = session.options
    try:
        existed = options.key in await kv_of(session.admin.client, options.namespace_name)
    except NotFoundError:
        existed = False
    for address in _name_servers(session):  # one of them may have it alone
        await delete_kv(session.admin.client, address, options.namespace_name, options.key)
    text = "is deleted" if existed else "was not there"
    session.out.done(f"{options.key} in {options.namespace_name} {text}", existed=existed)


async def _show(session: Session) -> None:
    found = await kv_of(session.admin.client, session.options.namespace_name)
    session.out.rows(
        [{"key": key, "value": value} for key, value in sorted(found.items())],
        none="there is nothing in this namespace",
    )


COMMANDS: Final = (
    Command("statsAll", "show how many messages topics take and give", _all, _all_arguments),
    Command("updateKvConfig", "keep a text at the name servers", _put, _put_arguments),
    Command("deleteKvConfig", "delete such a text", _delete, _key),
    Command("getKvConfig", "show the texts of a namespace", _show, _namespace),
)
