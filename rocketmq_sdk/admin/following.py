"""Following a topic: its new messages as they come, of every queue, in nobody's name.

No group is made, no offset is committed and no consumer is disturbed: the pulls are
those of `MessageQueries`, held by the broker until something comes.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.backoff import Backoff
from rocketmq_sdk.client.api.offsets import max_offset, min_offset, search_offset
from rocketmq_sdk.client.api.pull import pull_message
from rocketmq_sdk.client.queries import address_of
from rocketmq_sdk.errors import NotPermittedError, RocketMQError, SubscriptionError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.names import TOOLS_GROUP
from rocketmq_sdk.protocol.flags import PullSysFlag
from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader

if TYPE_CHECKING:
    from rocketmq_sdk.client.queries import QueryClient
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.model.route import TopicRoute
    from rocketmq_sdk.protocol.subscription import SubscriptionData

logger = logging.getLogger("rocketmq_sdk.admin")

HOLD: Final = 15.0
"""Seconds that a broker may hold a pull."""
ROUTE_INTERVAL: Final = 10.0
"""Seconds after which new queues are looked for."""
_PATIENCE: Final = 10.0
_BATCH: Final = 32
_AWAY: Final = Backoff(first=0.5, limit=10.0)


@attrs.frozen
class Beginning:
    """Where to begin in a queue: at its end, its start, or a store time (epoch ms)."""

    at_end: bool = True
    store_time: int | None = None

    async def offset(self, client: QueryClient, queue: MessageQueue) -> int:
        """The offset in one queue."""
        place = queue.broker_name, queue.topic, queue.queue_id
        if self.store_time is not None:
            name, topic, queue_id = place
            return await search_offset(client, name, topic, queue_id, self.store_time)
        if self.at_end:
            return await max_offset(client, *place)
        return max(0, await min_offset(client, *place))


START: Final = Beginning(at_end=False)


class Follower:
    """The task of each queue, and the one that looks for new queues."""

    def __init__(
        self,
        client: QueryClient,
        topic: str,
        beginning: Beginning,
        wanted: SubscriptionData,
        channel: trio.MemorySendChannel[ReceivedMessage],
    ) -> None:
        self._client = client
        self._topic = topic
        self._beginning = beginning
        self._filter = wanted
        self._channel = channel
        self._followed: set[MessageQueue] = set()
        self._route: TopicRoute | None = None

    async def begin(self, nursery: trio.Nursery) -> None:
        """Start with the queues that there are.

        Raises `RouteError`, and the error of a broker that does not tell its offsets,
        so that a wrong name is told before anything is waited for.
        """
        await self._look_for_queues(nursery, self._beginning)
        nursery.start_soon(self._go_on_looking, nursery)

    async def _look_for_queues(self, nursery: trio.Nursery, beginning: Beginning) -> None:
        self._route = route = await self._client.route(self._topic)
        for queue in route.subscribe_queues(self._topic):
            if queue not in self._followed:
                offset = await beginning.offset(self._client, queue)
                self._followed.add(queue)
                nursery.start_soon(self._follow, queue, offset)

    async def _go_on_looking(self, nursery: trio.Nursery) -> None:
        while True:
            await trio.sleep(ROUTE_INTERVAL)
            try:
                # What came to a queue before it was seen is new as well.
                await self._look_for_queues(nursery, START)
            except RocketMQError as error:
                logger.warning(
                    "the queues of %s cannot be looked up: %s",
                    self._topic,
                    error,
                    extra=about(topic=self._topic),
                )

    async def _follow(self, queue: MessageQueue, offset: int) -> None:
        failures = 0
        while True:
            try:
                offset = await self._pull(queue, offset)
                failures = 0
            except trio.BrokenResourceError:
                return  # the reader has closed the channel, and wants no more
            except (SubscriptionError, NotPermittedError):
                raise  # the expression is wrong for every broker; nothing changes by waiting
            except RocketMQError as error:
                logger.warning(
                    "%r cannot be read (%s); it is tried again",
                    queue,
                    error,
                    extra=about(queue=queue),
                )
                await trio.sleep(_AWAY.delay(failures))
                failures += 1

    async def _pull(self, queue: MessageQueue, offset: int) -> int:
        """One pull; the offset to go on with."""
        wanted = self._filter
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=_BATCH,
            sys_flag=PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND,
            commit_offset=0,
            suspend_timeout_millis=math.ceil(HOLD * 1000),
            subscription=wanted.sub_string,
            sub_version=0,
            expression_type=wanted.expression_type,
            bname=queue.broker_name,
        )
        assert self._route is not None  # queues come from it
        result = await pull_message(
            self._client,
            address_of(queue.broker_name, self._route),
            queue.broker_name,
            header,
            HOLD + _PATIENCE,
            tags=frozenset(wanted.tags_set),
        )
        for message in result.messages:
            message.topic = self._client.namespace.unwrap(message.topic)
            await self._channel.send(message)
        return result.next_begin_offset
