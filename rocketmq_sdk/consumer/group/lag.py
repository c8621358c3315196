"""How far a whole group is behind, as brokers tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.client.api.progress import consume_stats
from rocketmq_sdk.errors import RouteError
from rocketmq_sdk.lifecycle import open_quiet_nursery

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.model.queue import MessageQueue


async def group_lag(client: Client, group: str, topics: Iterable[str]) -> dict[MessageQueue, int]:
    """The messages of each queue that the group has not committed yet, by the master.

    All masters are asked at the same time. A topic without a route has no queues.
    Raises the error of a master that cannot be asked, and `RouteError` for a broker
    without one.
    """
    found: dict[MessageQueue, int] = {}

    async def ask(topic: str, broker_name: str, address: str | None) -> None:
        if address is None:
            raise RouteError(f"broker {broker_name} of topic {topic} has no master now")
        stats = await consume_stats(client, address, group, topic)
        for queue, offsets in stats.offset_table.items():
            behind = offsets.broker_offset - offsets.consumer_offset
            found[client.namespace.unwrap_queue(queue)] = max(0, behind)

    async with open_quiet_nursery() as nursery:
        for topic in topics:
            route = client.routes.get(topic)
            for data in () if route is None else route.broker_datas:
                nursery.start_soon(ask, topic, data.broker_name, data.master_address)
        await trio.lowlevel.checkpoint()
    return dict(sorted(found.items()))
