"""Which clients consume in which groups (`ConsumerManager`, `ConsumerGroupInfo`).

A heartbeat registers a connection under its client id in each of its groups. The last
heartbeat decides type, model and starting point. A subscription is replaced only by one
with a higher version, and a topic that a heartbeat leaves out is removed. When the
members or the set of topics changed, all members are notified at once by a one-way
request, so that they share the queues anew (`DefaultConsumerIdsChangeListener`).

A connection that closes leaves its groups at once. One that stays silent for the expiry
time is closed and removed. Apache notifies nobody of that; here the other members are
notified, since they would find out in at most 20 s anyway.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.members import NotifyConsumerIdsChangedRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_sdk.broker_embedded.members.client_channel import ClientChannel
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType
    from rocketmq_sdk.protocol.bodies.members import ConsumerData
    from rocketmq_sdk.protocol.subscription import SubscriptionData
    from rocketmq_sdk.remoting.channel import Channel

logger = logging.getLogger(__name__)


KEPT_OF_A_GROUP: Final = 1500
KEPT_OF_A_SUBSCRIPTION: Final = 500
KEPT_OF_A_CHARACTER: Final = 1
KEPT_OF_A_TAG: Final = 120


class ConsumerGroup:
    """One group and its members. `channels` is in order of arrival."""

    __slots__ = (
        "channels",
        "consume_from",
        "consume_type",
        "message_model",
        "name",
        "notifies",
        "subscriptions",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from: ConsumeFrom | None = None
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.channels: dict[Channel, ClientChannel] = {}
        self.notifies = True

    @property
    def broadcasting(self) -> bool:
        """Whether each member reads all queues."""
        return self.message_model is MessageModel.BROADCASTING

    def client_ids(self) -> list[str]:
        """One id for each connection, duplicates included as with Apache."""
        return [client.client_id for client in self.channels.values()]

    def find(self, client_id: str) -> ClientChannel | None:
        """A member by its client id."""
        return next(
            (client for client in self.channels.values() if client.client_id == client_id), None
        )

    def _merge(self, data: ConsumerData) -> tuple[bool, list[str]]:
        """Merge a heartbeat.

        Returns whether the set of topics changed, and the topics for which the group
        now wants other messages.
        """
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from = data.consume_from_where
        changed = False
        topics = set()
        others: list[str] = []
        for subscription in data.subscription_data_set:
            topics.add(subscription.topic)
            known = self.subscriptions.get(subscription.topic)
            if known is None or subscription.sub_version > known.sub_version:
                self.subscriptions[subscription.topic] = subscription
                changed |= known is None
                if known is not None and (known.sub_string, known.expression_type) != (
                    subscription.sub_string,
                    subscription.expression_type,
                ):
                    others.append(subscription.topic)
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            changed = True
        return changed, others


def weight_of(data: ConsumerData) -> int:
    """The bytes that are kept of a group of a heartbeat while its client is there.

    Measured: a tag is a text and a number in two sets, a SQL92 expression a tree.
    """
    weight = KEPT_OF_A_GROUP + len(data.group_name)
    for subscription in data.subscription_data_set:
        weight += KEPT_OF_A_SUBSCRIPTION + len(subscription.topic)
        weight += KEPT_OF_A_CHARACTER * len(subscription.sub_string)
        weight += KEPT_OF_A_TAG * (len(subscription.tags_set) + len(subscription.code_set))
    return weight


class ConsumerManager:
    """All consumer groups with at least one member."""

    __slots__ = ("_clock", "_groups", "_memberships", "_notify", "group_left", "resubscribed")

    def __init__(self, clock: Clock, *, notify: Callable[[], bool] = lambda: True) -> None:
        self._clock = clock
        self._notify = notify
        self._groups: dict[str, ConsumerGroup] = {}
        self._memberships: dict[Channel, dict[str, int]] = {}
        """By connection, what is kept of each of its groups, in bytes."""
        self.group_left: list[Callable[[str], None]] = []
        """Called with each group whose last member has left."""
        self.resubscribed: list[Callable[[str, str], None]] = []
        """Called with group and topic when the group's filter for the topic changed."""

    def group(self, name: str) -> ConsumerGroup | None:
        """A group that has members now."""
        return self._groups.get(name)

    def groups(self) -> Iterable[ConsumerGroup]:
        """All groups that have members now."""
        return list(self._groups.values())

    def client_ids(self, name: str) -> list[str]:
        """The ids of a group's members; empty when there are none."""
        group = self._groups.get(name)
        return [] if group is None else group.client_ids()

    def subscription(self, name: str, topic: str) -> SubscriptionData | None:
        """What a group wants of a topic, if one of its members said so."""
        group = self._groups.get(name)
        return None if group is None else group.subscriptions.get(topic)

    def leaves_out(self, name: str, topic: str) -> bool:
        """Whether a group subscribes to something, but not to this topic.

        Members that pull chosen queues subscribe to nothing: they leave out nothing.
        """
        group = self._groups.get(name)
        return group is not None and bool(group.subscriptions) and topic not in group.subscriptions

    def topic_consumers(self, topic: str) -> set[str]:
        """The groups whose members subscribe to a topic now."""
        return {group.name for group in self._groups.values() if topic in group.subscriptions}

    def register(
        self, channel: Channel, client: ClientChannel, data: ConsumerData, *, notifies: bool = True
    ) -> bool:
        """Take one group of a heartbeat; returns whether members or topics changed.

        If so, the members were notified.
        """
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data.group_name)
        joined = self._join(group, channel, client)
        kept, weight = self._memberships[channel], weight_of(data)
        if weight != kept[group.name]:
            channel.keep(weight - kept[group.name])
            kept[group.name] = weight
        changed, others = group._merge(data)
        group.notifies = notifies
        for topic in others:
            for tell in self.resubscribed:
                tell(group.name, topic)
        if joined or changed:
            self._tell(group)
        return joined or changed

    def refresh(self, channel: Channel, client: ClientChannel, name: str) -> bool:
        """Take a heartbeat without subscriptions.

        Returns whether the connection is new to the group.
        """
        group = self._groups.get(name)
        if group is None:
            return False
        joined = self._join(group, channel, client)
        if joined:
            self._tell(group)
        return joined

    def _join(self, group: ConsumerGroup, channel: Channel, client: ClientChannel) -> bool:
        known = group.channels.get(channel)
        if known is not None:
            known.client_id = client.client_id
            known.renew(client.last_update, client.last_update_ms)
            return False
        group.channels[channel] = client
        self._memberships.setdefault(channel, {})[group.name] = 0
        return True

    def unregister(self, channel: Channel, name: str) -> None:
        """Remove a client from a group and notify the other members."""
        self._leave(channel, name)

    def channel_closed(self, channel: Channel) -> None:
        """A connection ended: it leaves all its groups at once."""
        for name in self._memberships.pop(channel, {}):
            self._leave(channel, name)

    def _leave(self, channel: Channel, name: str) -> None:
        group = self._groups.get(name)
        if group is not None and self._remove(channel, group):
            self._tell(group)

    def _remove(self, channel: Channel, group: ConsumerGroup) -> bool:
        """Take a member out without telling the others; whether it was one."""
        name = group.name
        if group.channels.pop(channel, None) is None:
            return False
        member_of = self._memberships.get(channel)
        if member_of is not None:
            channel.keep(-member_of.pop(name, 0))
            if not member_of:
                del self._memberships[channel]
        if not group.channels:
            del self._groups[name]
            for tell in self.group_left:
                tell(name)
        return True

    def _tell(self, group: ConsumerGroup) -> None:
        if not group.notifies or group.broadcasting or not self._notify():
            return
        for channel in list(group.channels):
            if channel.closed:
                continue
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name)
            try:
                channel.send_oneway(
                    Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True)
                )
            except RocketMQError as error:
                # A channel that is closing or does not read; the others are told, and
                # this one learns of it when it asks again.
                logger.debug(
                    "%s is not told of changed members of %s: %s",
                    channel.remote_address,
                    group.name,
                    error,
                    extra=about(group=group.name, peer=channel.remote_address),
                )

    def heard_of(self) -> float:
        """When the most silent member was heard of; infinite without any."""
        return min(
            (
                client.last_update
                for group in self._groups.values()
                for client in group.channels.values()
            ),
            default=math.inf,
        )

    def expire(self, timeout: float) -> list[Channel]:
        """Remove members silent for `timeout` seconds; returns their connections."""
        limit = self._clock.monotonic() - timeout
        silent = {
            channel: None
            for group in self._groups.values()
            for channel, client in group.channels.items()
            if client.last_update < limit
        }
        for group in list(self._groups.values()):
            if [channel for channel in silent if self._remove(channel, group)]:
                self._tell(group)
        return list(silent)
