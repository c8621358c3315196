"""Stored messages: found by everything that `MessageQueries` offers, and their trails through the cluster."""

from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.groups import consuming_groups
from rocketmq_sdk.client.queries import MessageQueries
from rocketmq_sdk.model.trail import MessageTrail
from rocketmq_sdk.names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    dead_letter_topic,
    pop_retry_topic_v1,
    pop_retry_topic_v2,
    retry_topic,
)

if TYPE_CHECKING:
    from rocketmq_sdk.model.message import ReceivedMessage


class Messages(MessageQueries):
    """Messages of a cluster."""

    async def trail(self, topic: str, unique_id: str, *, timeout: float | None = None) -> list[MessageTrail]:
        """Every stored copy of a message in the order in which brokers stored them: delays, timers, halves, itself, retries, dead letters.

        Retries are looked for in the groups that consume the topic now or have offsets in it. Empty when nothing is stored under the id.
        """
        found: list[tuple[ReceivedMessage, str]] = []
        for place in (topic, SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_HALF_TOPIC, *await self._places_of_groups(topic, timeout)):
            found += [(message, place) for message in await self.copies(topic, unique_id, place, timeout=timeout)]
        found.sort(key=lambda pair: (pair[0].store_timestamp, pair[0].broker_name, pair[0].commit_log_offset))
        return [MessageTrail.of(message, place) for message, place in found]

    async def _places_of_groups(self, topic: str, timeout: float | None) -> list[str]:
        groups: set[str] = set()

        async def ask(address: str, _name: str) -> None:
            groups.update(await consuming_groups(self._client, address, topic, timeout))

        await self._each_broker(topic, ask)
        return [
            place
            for group in sorted(groups)
            for place in (retry_topic(group), pop_retry_topic_v1(topic, group), pop_retry_topic_v2(topic, group), dead_letter_topic(group))
        ]
