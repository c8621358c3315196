"""Reading by pull: the part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.part import Part, Service
from rocketmq_sdk.broker_embedded.pull.broadcast_offsets import (
    SCAN_INTERVAL,
    BroadcastOffsetManager,
)
from rocketmq_sdk.broker_embedded.pull.long_polling import PullHolder
from rocketmq_sdk.broker_embedded.pull.offset_requests import OffsetProcessor
from rocketmq_sdk.broker_embedded.pull.plain_pulls import PlainPulls
from rocketmq_sdk.broker_embedded.pull.pull_requests import PullProcessor
from rocketmq_sdk.broker_embedded.pull.query_requests import QueryProcessor
from rocketmq_sdk.broker_embedded.request import Cost, Request, Wait, Writes
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.headers import offsets as headers
from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader
from rocketmq_sdk.protocol.headers.queries import (
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.filter.part import FilterPart
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.replication.part import ReplicationPart
    from rocketmq_sdk.remoting.channel import Channel


class PullPart(Part):
    """Pulls, offsets of groups, ends of queues, and look-ups of messages."""

    __slots__ = ("_core", "_offsets", "_pulls", "_queries", "broadcast_offsets", "held")

    def __init__(
        self,
        core: Core,
        filters: FilterPart,
        members: MemberPart,
        replication: ReplicationPart,
    ) -> None:
        self._core = core
        self.broadcast_offsets = BroadcastOffsetManager(
            members.consumers, core.offsets, core.clock, self._first_for_newcomers
        )
        """How far the clients of broadcasting groups have pulled."""
        self._pulls = PullProcessor(
            core, filters.subscriptions, members.consumers, self.broadcast_offsets, replication
        )
        self.held = PullHolder(core.clock, self._pulls.rerun)
        """Pulls that wait for messages."""
        self._pulls.held = self.held
        self._offsets = OffsetProcessor(core)
        self._queries = QueryProcessor(core.store, core.config)
        if not core.config.current.is_slave:  # a slave has its master's offsets
            core.offsets.before_write.append(self.scan_broadcast)

    def requests(self) -> Iterable[Request]:
        """Pulls, offsets, look-ups."""
        return (*self._of_pulls(), *self._of_offsets(), *self._of_queries())

    def _of_pulls(self) -> Iterable[Request]:
        plain = PlainPulls(self._core, self._pulls).serve
        return tuple(
            Request(
                code,
                self._pulls.pull,
                needs.topic_and_group(Action.SUB),
                PullMessageRequestHeader,
                raw=True,
                together=plain if code == RequestCode.PULL_MESSAGE else None,
                vip=False,
                wait=wait,
                cost=Cost.MESSAGES,
                writes=Writes.OFFSETS,
            )
            for code, wait in (
                (RequestCode.PULL_MESSAGE, Wait.PULL),
                (RequestCode.LITE_PULL_MESSAGE, Wait.LITE_PULL),
            )
        )

    def _of_offsets(self) -> Iterable[Request]:
        offsets = self._offsets
        return (
            Request(
                RequestCode.QUERY_CONSUMER_OFFSET,
                offsets.query,
                needs.topic_and_group(Action.SUB | Action.GET),
                headers.QueryConsumerOffsetRequestHeader,
                wait=Wait.UNLIMITED,
            ),
            Request(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                offsets.update,
                needs.topic_and_group(Action.SUB | Action.UPDATE),
                headers.UpdateConsumerOffsetRequestHeader,
                wait=Wait.UNLIMITED,
                writes=Writes.OFFSETS,
            ),
            Request(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                offsets.search,
                needs.topic(Action.SUB | Action.GET),
                headers.SearchOffsetRequestHeader,
                cost=Cost.FILES,
            ),
            Request(
                RequestCode.GET_MAX_OFFSET,
                offsets.maximum,
                needs.topic(Action.SUB | Action.GET),
                headers.GetMaxOffsetRequestHeader,
            ),
            Request(
                RequestCode.GET_MIN_OFFSET,
                offsets.minimum,
                needs.topic(Action.SUB | Action.GET),
                headers.GetMinOffsetRequestHeader,
            ),
            Request(
                RequestCode.GET_EARLIEST_MSG_STORETIME,
                offsets.earliest,
                needs.topic(Action.SUB | Action.GET),
                headers.GetEarliestMsgStoretimeRequestHeader,
            ),
        )

    def _of_queries(self) -> Iterable[Request]:
        return (
            Request(
                RequestCode.QUERY_MESSAGE,
                self._queries.query_message,
                needs.topic(Action.SUB | Action.GET),
                QueryMessageRequestHeader,
                connection=True,
                wait=Wait.UNLIMITED,
                cost=Cost.FILES,
            ),
            Request(
                RequestCode.VIEW_MESSAGE_BY_ID,
                self._queries.view_message,
                needs.topic(Action.SUB | Action.GET),
                ViewMessageRequestHeader,
                wait=Wait.UNLIMITED,
                cost=Cost.MESSAGES,
            ),
        )

    def services(self) -> Iterable[Service]:
        """Ending pulls whose time is over, and the offsets of broadcasting groups."""
        return (
            Service("long polling", self.held.run, on_call=self.held.on_call),
            Service(
                "broadcast offsets",
                self._scan_periodically,
                on_call=self.broadcast_offsets.on_call,
            ),
        )

    async def load(self) -> None:
        """Listen to messages that pulls wait for."""
        self._core.store.listen(self.held.on_arrival, waiting=self.held.waiting_by_queue)

    def channel_closed(self, channel: Channel) -> None:
        """Nobody waits for its pulls any more."""
        self.held.channel_closed(channel)

    def topic_deleted(self, topic: str) -> None:
        """Forget who pulled a topic."""
        self.broadcast_offsets.remove_topic(topic)

    def group_deleted(self, group: str) -> None:
        """Forget the clients of a group."""
        self.broadcast_offsets.remove_group(group)

    def release(self) -> None:
        """Answer the held pulls."""
        self.held.release_all()

    def scan_broadcast(self) -> None:
        """Commit the progress of broadcasting groups and remove old clients."""
        config = self._core.config.current
        self.broadcast_offsets.scan(
            config.broadcast_offset_expire_second, config.broadcast_offset_expire_max_second
        )

    async def _scan_periodically(self) -> None:
        while True:
            await trio.sleep(SCAN_INTERVAL)
            self.scan_broadcast()

    def _first_for_newcomers(self, topic: str, queue_id: int) -> int:
        """Where an unknown client begins: at the first message, or at the end.

        The first message counts only while it is in memory.
        """
        store = self._core.store
        return 0 if store.in_memory(topic, queue_id, 0) else store.max_offset(topic, queue_id)
