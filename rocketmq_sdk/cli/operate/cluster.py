"""Brokers: where they are, what they tell, what they are set to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.cli.operate.command import Command, Session
from rocketmq_sdk.errors import RocketMQError

if TYPE_CHECKING:
    import argparse

    from rocketmq_sdk.cli.operate.output import Row

_SHOWN: Final = {
    "version": "brokerVersionDesc",
    "putTps": "putTps",
    "getTps": "getTransferredTps",
    "disk": "commitLogDiskRatio",
}
"""Columns of the list of brokers, and what brokers call them."""


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--cluster-name", metavar="NAME", help="this cluster alone")


async def _list(session: Session) -> None:
    rows: list[Row] = []
    for broker in await session.admin.cluster.brokers(cluster=session.options.cluster_name):
        row: Row = {
            "cluster": broker.cluster,
            "broker": broker.name,
            "id": broker.broker_id,
            "address": broker.address,
        }
        trouble: str | None = None
        told: dict[str, str] = {}
        try:
            told = await session.admin.cluster.runtime_info(broker.address)
        except RocketMQError as error:
            trouble = str(error)
        row |= {name: _first(told.get(key, "")) for name, key in _SHOWN.items()}
        row["trouble"] = trouble
        rows.append(row)
    session.out.rows(rows, none="the name server knows no broker")


def _first(text: str) -> str | None:
    """The first number of several, rounded.

    Rates are those of the last ten seconds, minute and ten minutes.
    """
    first = text.split(" ")[0]
    try:
        return f"{float(first):.2f}"
    except ValueError:
        return first or None


def _broker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-b", "--broker-addr", required=True, metavar="HOST:PORT")


async def _status(session: Session) -> None:
    told = await session.admin.cluster.runtime_info(session.options.broker_addr)
    session.out.row(dict(sorted(told.items())))


async def _settings(session: Session) -> None:
    told = await session.admin.cluster.settings(session.options.broker_addr)
    session.out.row(dict(sorted(told.items())))


def _change_arguments(parser: argparse.ArgumentParser) -> None:
    _broker(parser)
    parser.add_argument("-k", "--key", required=True, metavar="NAME", help="Apache's name")
    parser.add_argument("-v", "--value", required=True, metavar="VALUE")
    parser.add_argument(
        "--unknown", action="store_true", help="even if the broker does not show such a setting"
    )


async def _change(session: Session) -> None:
    options = session.options
    await session.admin.cluster.change_settings(
        options.broker_addr, {options.key: options.value}, unknown=options.unknown
    )
    session.out.done(f"{options.key} is {options.value} at {options.broker_addr}")


COMMANDS: Final = (
    Command("clusterList", "list brokers with their state", _list, _list_arguments),
    Command("brokerStatus", "show counters and rates of a broker", _status, _broker),
    Command("getBrokerConfig", "show the settings of a broker", _settings, _broker),
    Command("updateBrokerConfig", "change a setting of a broker", _change, _change_arguments),
)
