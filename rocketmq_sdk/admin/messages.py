"""Stored messages: what `MessageQueries` offers, copies, traces and tracks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

from rocketmq_sdk.admin.following import Beginning, Follower
from rocketmq_sdk.admin.stored_copy import StoredCopy
from rocketmq_sdk.admin.trace import MessageTrace, trace_of
from rocketmq_sdk.admin.track import Track, track
from rocketmq_sdk.client.api.connections import consuming_groups
from rocketmq_sdk.client.api.queries import KEY, QUERY_MAX
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.client.queries import MessageQueries, Moment, address_of
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import NotFoundError, TopicNotFoundError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.model.enums import ExpressionType
from rocketmq_sdk.model.message_arguments import epoch_milliseconds
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    dead_letter_topic,
    pop_retry_topic_v1,
    pop_retry_topic_v2,
    retry_topic,
)
from rocketmq_sdk.protocol.subscription import build_subscription, check_subscription
from rocketmq_sdk.protocol.trace import Recalled, TraceRecord, decode_traces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Messages(MessageQueries):
    """Messages of a cluster."""

    @checked
    async def stored_copies(
        self, topic: str, unique_id: str, *, timeout: float | None = None
    ) -> list[StoredCopy]:
        """Every stored copy of a message in the order in which brokers stored them.

        Delays, timers, halves, itself, retries, dead letters.

        Retries are looked for in the groups that consume the topic now or have offsets
        in it. Empty when nothing is stored under the id.
        """
        topic = self._namespace.wrap(topic)
        found: list[tuple[ReceivedMessage, str]] = []
        for place in (
            topic,
            SCHEDULE_TOPIC,
            TIMER_TOPIC,
            TRANSACTION_HALF_TOPIC,
            *await self._places_of_groups(topic, timeout),
        ):
            found += [
                (message, place)
                for message in await self.copies(topic, unique_id, place, timeout=timeout)
            ]
        found.sort(
            key=lambda pair: (
                pair[0].store_timestamp,
                pair[0].broker_name,
                pair[0].commit_log_offset,
            )
        )
        return [self._named_copy(StoredCopy.of(message, place)) for message, place in found]

    @asynccontextmanager
    @checked
    async def follow(
        self, topic: str, *, begin: Moment = None, tags: str = "*", sql: str | None = None
    ) -> AsyncIterator[trio.MemoryReceiveChannel[ReceivedMessage]]:
        """The messages of a topic as they come: `async with ... as messages`.

        Inside, `async for message in messages` gives them, each queue in its order; no
        group is made, nothing is committed. `begin` is a store time (0 for all that is
        stored), None for what comes from now on. `tags` or `sql` (SQL92, where brokers
        allow it) selects. New queues are followed when they appear. A broker that
        cannot be read is tried again, with a warning to the log. Raises `RouteError`
        for a topic that nobody knows, `ConfigurationError` for an expression that no
        broker would serve, `SubscriptionError` when the broker refuses it,
        `NotPermittedError` without permission for the topic and for the group
        TOOLS_CONSUMER.
        """
        self._client.check_run()
        full = self._namespace.wrap(topic)
        kind = ExpressionType.TAG if sql is None else ExpressionType.SQL92
        expression = tags if sql is None else sql
        check_subscription(full, expression, kind.value)
        wanted = build_subscription(full, expression, kind.value, sub_version=0)
        beginning = Beginning() if begin is None else Beginning(False, epoch_milliseconds(begin))
        send, receive = trio.open_memory_channel[ReceivedMessage](0)
        # Closed behind the tasks: one that hands a message over would fail by it.
        with send, receive:
            async with open_quiet_nursery() as nursery:
                await Follower(self._client, full, beginning, wanted, send).begin(nursery)
                yield receive
                nursery.cancel_scope.cancel()

    def _named_copy(self, copy: StoredCopy) -> StoredCopy:
        """A copy with the names of topic and group as users write them."""
        unwrap = self._namespace.unwrap
        group, target = (
            None if name is None else unwrap(name) for name in (copy.group, copy.target)
        )
        return (
            attrs.evolve(copy, topic=unwrap(copy.topic), target=target, group=group)
            if self._namespace
            else copy
        )

    @checked
    async def trace(
        self,
        message_id: str,
        *,
        topic: str | None = None,
        trace_topic: str | None = None,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> MessageTrace:
        """Everything that is known of one message.

        Its trace records, joined, and the copies that brokers keep of it.

        `topic` is needed only for a message whose producer did not trace. `trace_topic`
        is that of the client's settings unless given; `begin` and `end` are store times
        of trace messages. Raises `NotFoundError` when there is no trace and no copy.
        """
        told = trace_of(
            message_id, await self._traces(message_id, trace_topic, begin, end, timeout)
        )
        known = topic or told.topic
        copies = (
            ()
            if known is None
            else tuple(await self.stored_copies(known, message_id, timeout=timeout))
        )
        if told == MessageTrace(message_id=message_id) and not copies:
            raise NotFoundError(
                ResponseCode.QUERY_NOT_FOUND,
                f"nobody tells anything of the message {message_id}",
                topic=topic,
            )
        return attrs.evolve(told, topic=known, copies=copies)

    @checked
    async def track(
        self, message: ReceivedMessage, *, timeout: float | None = None
    ) -> dict[str, Track]:
        """Whether each group of the topic has had a message, by its broker."""
        topic = self._namespace.wrap(message.topic)
        address = address_of(message.broker_name, await self._client.route(topic))
        found = await track(self._client, address, topic, message, timeout)
        return {self._namespace.unwrap(group): verdict for group, verdict in found.items()}

    @checked
    async def traces(
        self,
        key: str,
        *,
        trace_topic: str | None = None,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> list[MessageTrace]:
        """The traces of all messages with a key, in order of sending.

        They come without stored copies.
        """
        records = await self._traces(key, trace_topic, begin, end, timeout)
        ids = dict.fromkeys(
            message_id
            for record in records
            if not isinstance(record, Recalled) and key in (record.keys or "").split(" ")
            for message_id in record.message_id.split(",")
        )
        return [trace_of(message_id, records) for message_id in ids]

    async def _traces(
        self, key: str, trace_topic: str | None, begin: Moment, end: Moment, timeout: float | None
    ) -> list[TraceRecord]:
        topic = trace_topic or self._client.config.trace_topic
        try:
            messages = await self._by_index(topic, key, KEY, QUERY_MAX, begin, end, timeout)
        except TopicNotFoundError:
            return []  # nobody has traced anything yet
        return [
            record
            for message in messages
            for record in decode_traces(message.body.decode("utf-8", "replace"))
        ]

    async def _places_of_groups(self, topic: str, timeout: float | None) -> list[str]:
        groups: set[str] = set()

        async def ask(address: str, _name: str) -> None:
            groups.update(await consuming_groups(self._client, address, topic, timeout))

        await self._each_broker(topic, ask)
        return [
            place
            for group in sorted(groups)
            for place in (
                retry_topic(group),
                pop_retry_topic_v1(topic, group),
                pop_retry_topic_v2(topic, group),
                dead_letter_topic(group),
            )
        ]
