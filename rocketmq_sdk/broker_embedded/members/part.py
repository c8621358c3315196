"""Members of groups: the part."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.members import request_modes
from rocketmq_sdk.broker_embedded.members.assignment_requests import AssignmentProcessor
from rocketmq_sdk.broker_embedded.members.consumers import ConsumerManager
from rocketmq_sdk.broker_embedded.members.heartbeats import ClientProcessor
from rocketmq_sdk.broker_embedded.members.lock_requests import LockProcessor
from rocketmq_sdk.broker_embedded.members.producers import ProducerManager
from rocketmq_sdk.broker_embedded.members.queue_locks import QueueLocks
from rocketmq_sdk.broker_embedded.members.request_modes import RequestModeManager
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.part import Part, SavedTable, Service
from rocketmq_sdk.broker_embedded.request import Cost, Request, Wait, Writes
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.bodies.members import (
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
    UnlockBatchRequestBody,
)
from rocketmq_sdk.protocol.headers.members import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketmq_sdk.sleeper import sleep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.filter.part import FilterPart
    from rocketmq_sdk.broker_embedded.members.assignment import TopicQueues
    from rocketmq_sdk.remoting.channel import Channel

logger = logging.getLogger(__name__)

SCAN_INTERVAL: Final = 10.0
"""Seconds between two looks for silent clients, at least."""
LONGEST_PAUSE: Final = 60.0
"""Seconds between two looks, at most: locks expire too, and the timeout may change."""
_SAVE_INTERVAL_MS: Final = 10_000


class MemberPart(Part):
    """Members of groups: producers, consumers, queue locks and assignment."""

    __slots__ = (
        "_assignments",
        "_clients",
        "_clock",
        "_config",
        "consumers",
        "locks",
        "modes",
        "producers",
    )

    def __init__(self, core: Core, filters: FilterPart, topic_queues: TopicQueues) -> None:
        config = core.config
        self._config = config
        self._clock = core.clock
        self.consumers = ConsumerManager(
            core.clock, notify=lambda: config.current.notify_consumer_ids_changed_enable
        )
        self.consumers.group_left.append(filters.expressions.unregister)
        self.producers = ProducerManager(core.clock)
        self.locks = QueueLocks(core.clock)
        """Which member of an orderly group holds which queue."""
        self.modes = RequestModeManager(ConfigFile(core.store.files, request_modes.FILE_NAME))
        """Which groups pop which topics."""
        self._clients = ClientProcessor(core, self.consumers, self.producers, filters)
        self._assignments = AssignmentProcessor(core, self.consumers, self.modes, topic_queues)

    def requests(self) -> Iterable[Request]:
        """Heartbeats, locks and assignment."""
        return (*self._of_clients(), *self._of_queues())

    def _of_clients(self) -> Iterable[Request]:
        clients = self._clients
        return (
            Request(
                RequestCode.HEART_BEAT,
                clients.heartbeat,
                needs.members_in(HeartbeatData, _joined, "each consumer Group and its Topics: Sub"),
                body=HeartbeatData,
                repeated=True,
                connection=True,
                wait=Wait.HEARTBEAT,
                cost=Cost.BODY,
                writes=Writes.MEMBERS | Writes.TOPICS | Writes.GROUPS,
            ),
            Request(
                RequestCode.UNREGISTER_CLIENT,
                clients.unregister,
                needs.group(Action.SUB, unnamed=True),
                UnregisterClientRequestHeader,
                connection=True,
                wait=Wait.UNLIMITED,
                writes=Writes.MEMBERS,
            ),
            Request(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                clients.consumer_list,
                needs.group(Action.SUB | Action.GET),
                GetConsumerListByGroupRequestHeader,
                wait=Wait.UNLIMITED,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.CHECK_CLIENT_CONFIG,
                clients.check_config,
                needs.members_in(CheckClientRequestBody, _checked),
                body=CheckClientRequestBody,
                wait=Wait.UNLIMITED,
                cost=Cost.BODY,
            ),
        )

    def _of_queues(self) -> Iterable[Request]:
        locks, assignments = LockProcessor(self.locks), self._assignments
        return (
            Request(
                RequestCode.LOCK_BATCH_MQ,
                locks.lock,
                needs.members_in(LockBatchRequestBody, _locked),
                body=LockBatchRequestBody,
                repeated=True,
                cost=Cost.BODY,
                writes=Writes.MEMBERS,
            ),
            Request(
                RequestCode.UNLOCK_BATCH_MQ,
                locks.unlock,
                needs.members_in(UnlockBatchRequestBody, _locked),
                body=UnlockBatchRequestBody,
                cost=Cost.BODY,
                writes=Writes.MEMBERS,
            ),
            Request(
                RequestCode.QUERY_ASSIGNMENT,
                assignments.query,
                needs.members_in(QueryAssignmentRequestBody, _assigned),
                body=QueryAssignmentRequestBody,
                wait=Wait.UNLIMITED,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.SET_MESSAGE_REQUEST_MODE,
                assignments.set_mode,
                needs.members_in(
                    SetMessageRequestModeRequestBody,
                    _assigned,
                    "Group and Topic of the body: Update",
                    Action.UPDATE,
                ),
                body=SetMessageRequestModeRequestBody,
                wait=Wait.UNLIMITED,
                writes=Writes.GROUPS,
            ),
            Request(
                RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
                assignments.all_modes,
                needs.cluster(Action.GET),
                cost=Cost.TABLE,
            ),
        )

    def services(self) -> Iterable[Service]:
        """Looking for silent clients."""
        on_call = OnCall(self._pause())
        return (Service("expiry of silent clients", self._expire_periodically, on_call=on_call),)

    async def load(self) -> None:
        """Read which groups pop."""
        self.modes.load()

    def saved_tables(self) -> Iterable[SavedTable]:
        """The modes of groups that pop; a change by request is written at once."""
        modes = self.modes
        return (
            SavedTable("request modes", lambda: _SAVE_INTERVAL_MS, modes.save, modes.has_to_save),
        )

    def channel_closed(self, channel: Channel) -> None:
        """A client is gone with its connection."""
        self.consumers.channel_closed(channel)
        self.producers.channel_closed(channel)

    def topic_deleted(self, topic: str) -> None:
        """Forget who pops it."""
        self.modes.remove_topic(topic)

    def group_deleted(self, group: str) -> None:
        """The next heartbeat of a member has to bring everything again."""
        self._clients.forget_group(group)
        self.modes.remove_group(group)

    def _pause(self) -> float:
        """Seconds until a client can have been silent for too long."""
        timeout = self._config.current.channel_expired_timeout / 1000
        heard = min(self.consumers.heard_of(), self.producers.heard_of())
        left = heard + timeout - self._clock.monotonic()
        return max(SCAN_INTERVAL, min(left, LONGEST_PAUSE, timeout))

    def expire(self) -> None:
        """Close connections of silent clients; remove the clients and their locks."""
        timeout = self._config.current.channel_expired_timeout / 1000
        for channel in [*self.consumers.expire(timeout), *self.producers.expire(timeout)]:
            if not channel.closed:
                logger.warning(
                    "%s sent no heartbeat for %.0f s; its connection is closed",
                    channel.remote_address,
                    timeout,
                    extra=about(peer=channel.remote_address),
                )
                channel.abort("no heartbeat in time")
        self.locks.expire()

    async def _expire_periodically(self) -> None:
        while True:
            self.expire()
            await sleep(self._pause())


def _joined(data: HeartbeatData) -> Iterable[tuple[str, Iterable[str]]]:
    for one in data.consumer_data_set:
        yield one.group_name, [each.topic for each in one.subscription_data_set]


def _checked(body: CheckClientRequestBody) -> Iterable[tuple[str, Iterable[str]]]:
    data = body.subscription_data
    yield body.group, () if data is None else (data.topic,)


def _locked(
    body: LockBatchRequestBody | UnlockBatchRequestBody,
) -> Iterable[tuple[str, Iterable[str]]]:
    yield body.consumer_group, {queue.topic for queue in body.mq_set}


def _assigned(
    body: QueryAssignmentRequestBody | SetMessageRequestModeRequestBody,
) -> Iterable[tuple[str | None, Iterable[str | None]]]:
    yield body.consumer_group, (body.topic,)
