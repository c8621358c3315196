"""Counters of the broker: VIEW_BROKER_STATS_DATA (315)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Request, refuse
from rocketmq_sdk.broker_embedded.tables.stats import NOT_COUNTED
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.bodies.progress import BrokerStatsData, BrokerStatsItem
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.progress import ViewBrokerStatsDataRequestHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.tables.stats import Window


class CounterRequests:
    """Shows what was counted."""

    __slots__ = ("_stats",)

    def __init__(self, core: Core) -> None:
        self._stats = core.stats

    def requests(self) -> Iterable[Request]:
        """The one row."""
        return (
            Request(
                RequestCode.VIEW_BROKER_STATS_DATA,
                self.stats_item,
                needs.cluster(Action.GET),
                ViewBrokerStatsDataRequestHeader,
            ),
        )

    def stats_item(self, header: ViewBrokerStatsDataRequestHeader) -> Command:
        """VIEW_BROKER_STATS_DATA (315): the last minute, hour and day of one counter.

        Counters are sampled every ten seconds.
        """
        found = self._stats.find(header.stats_name, header.stats_key)
        if (reason := NOT_COUNTED.get(header.stats_name)) is not None:
            return refuse(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> not exist: {reason}"
            )
        if found is None:
            return refuse(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        minute, hour, day, member = found
        return Command.response(
            body=BrokerStatsData(
                _item(minute, member), _item(hour, member), _item(day, member)
            ).encode()
        )


def _item(window: Window, member: str) -> BrokerStatsItem:
    total = window.bytes if member == "bytes" else window.messages
    return BrokerStatsItem(
        total,
        total / window.seconds if window.seconds else 0.0,
        total / window.times if window.times else 0.0,
    )
