"""Whether consumer groups have had a message.

Follows `DefaultMQAdminExtImpl.messageTrackDetail` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.connections import consumer_connections, consuming_groups
from rocketmq_sdk.client.api.progress import consume_stats
from rocketmq_sdk.errors import GroupNotFoundError
from rocketmq_sdk.model.enums import ConsumeType, MessageModel

if TYPE_CHECKING:
    from rocketmq_sdk.client.api.caller import Caller
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.protocol.bodies.connections import ConsumerConnection


class Track(Enum):
    """What became of a message in a group (`TrackType`)."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    """The members ask for offsets of their own choice, so nobody knows."""
    NOT_CONSUMED_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    BROADCASTING = "CONSUME_BROADCASTING"
    """Each member has offsets of its own, so brokers do not know."""


async def track(
    client: Caller, address: str, topic: str, message: ReceivedMessage, timeout: float | None = None
) -> dict[str, Track]:
    """What became of a message in each group of its topic.

    Those groups consume the topic now or have offsets in it.

    `address` is the broker that stores it, `topic` the name of its topic there.
    """
    groups = await consuming_groups(client, address, topic, timeout)
    return {
        group: await _track(client, address, topic, message, group, timeout)
        for group in sorted(groups)
    }


async def _track(
    client: Caller,
    address: str,
    topic: str,
    message: ReceivedMessage,
    group: str,
    timeout: float | None,
) -> Track:
    try:
        members = await consumer_connections(client, address, group, timeout)
    except GroupNotFoundError:
        return Track.NOT_ONLINE
    if members.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return Track.PULL
    if members.message_model is MessageModel.BROADCASTING:
        return Track.BROADCASTING
    progress = await consume_stats(client, address, group, topic, timeout)
    for queue, offsets in progress.offset_table.items():
        if (queue.topic, queue.queue_id) == (
            topic,
            message.queue_id,
        ) and offsets.consumer_offset > message.offset:
            return (
                Track.CONSUMED if _wants(members, topic, message) else Track.CONSUMED_BUT_FILTERED
            )
    return Track.NOT_CONSUMED_YET


def _wants(members: ConsumerConnection, topic: str, message: ReceivedMessage) -> bool:
    """Whether the group's tags let the message through; True for other expressions."""
    subscription = members.subscription_table.get(topic)
    return (
        subscription is None or not subscription.tags_set or message.tags in subscription.tags_set
    )
