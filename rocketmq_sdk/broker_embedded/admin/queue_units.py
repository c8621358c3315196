"""The units of a consume queue as they are stored: QUERY_CONSUME_QUEUE (321)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Cost, Request, refuse
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.bodies.queries import ConsumeQueueData, QueryConsumeQueueResponseBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.queries import QueryConsumeQueueRequestHeader
from rocketmq_sdk.protocol.json.dialect import encode_pretty

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.filter.part import FilterPart
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.remoting.channel import Continuation

MOST_UNITS: Final = 4096
"""Units of one answer; a tool that wants more asks again from the next index."""


class QueueUnitRequests:
    """The units of one consume queue."""

    __slots__ = ("_core", "_filters", "_members")

    def __init__(self, core: Core, members: MemberPart, filters: FilterPart) -> None:
        self._core = core
        self._members = members
        self._filters = filters

    def requests(self) -> Iterable[Request]:
        """The one row."""
        return (
            Request(
                RequestCode.QUERY_CONSUME_QUEUE,
                self.query_consume_queue,
                needs.topic_and_group(Action.GET),
                QueryConsumeQueueRequestHeader,
                cost=Cost.MESSAGES,
            ),
        )

    def query_consume_queue(self, header: QueryConsumeQueueRequestHeader) -> Command | Continuation:
        """QUERY_CONSUME_QUEUE (321): units of a queue, and a group's subscription."""
        store, topic, queue_id = self._core.store, header.topic or "", header.queue_id
        if queue_id not in store.queue_ids(topic):
            return refuse(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        subscription, note = None, None
        if header.consumer_group:
            subscription = self._members.consumers.subscription(header.consumer_group, topic)
            note = (
                self._filter_data(header.consumer_group, topic)
                if subscription
                else f"{header.consumer_group}@{topic} is not online!"
            )
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if not low <= header.index < high:
            answer = Command.response(
                body=QueryConsumeQueueResponseBody(subscription, note, None, high, low).encode()
            )
            answer.remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
            return answer
        last = min(high, header.index + max(0, min(header.count, MOST_UNITS)))

        async def read() -> Command:
            units = await store.queue_units(topic, queue_id, header.index, last - header.index)
            found = tuple(ConsumeQueueData(*unit) for unit in units)
            return Command.response(
                body=QueryConsumeQueueResponseBody(subscription, note, found, high, low).encode()
            )

        return read

    def _filter_data(self, group: str, topic: str) -> str:
        """A group's expression as JSON text; `null` for groups that filter by tags."""
        data = self._filters.expressions.get(topic, group)
        return "null" if data is None else encode_pretty(data.to_json())
