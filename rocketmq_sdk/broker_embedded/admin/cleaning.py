"""Requests to clean up now: consume queues (306), topics (316), log files (329)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.remoting.channel import Continuation

logger = logging.getLogger(__name__)


class CleaningRequests:
    """Files and queues that nobody needs."""

    __slots__ = ("_core",)

    def __init__(self, core: Core) -> None:
        self._core = core

    def requests(self) -> Iterable[Request]:
        """Queues, topics, log."""
        return (
            Request(
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
                self.clean_queues,
                needs.cluster(Action.UPDATE),
                cost=Cost.FILES,
                writes=Writes.FILES,
            ),
            Request(
                RequestCode.CLEAN_UNUSED_TOPIC,
                self.clean_unused_topics,
                needs.cluster(Action.UPDATE),
                cost=Cost.FILES,
                writes=Writes.FILES,
            ),
            Request(
                RequestCode.DELETE_EXPIRED_COMMITLOG,
                self.clean_log,
                needs.cluster(Action.UPDATE),
                cost=Cost.FILES,
                writes=Writes.FILES,
            ),
        )

    def clean_queues(self) -> Command:
        """CLEAN_EXPIRED_CONSUMEQUEUE (306): cut queues and index to the log.

        Units older than the oldest log file go. Numbering of an emptied queue goes on.
        """
        self._core.store.retention.follow_now()
        return Command.response()

    def clean_unused_topics(self) -> Continuation:
        """CLEAN_UNUSED_TOPIC (316): drop the queues of deleted topics.

        System topics are kept.
        """
        return self._clean_unused_topics

    async def _clean_unused_topics(self) -> Command:
        for topic in sorted(self._core.store.topics()):
            if self._core.topics.get(topic) is None and not self._core.topics.is_system(topic):
                logger.warning(
                    "the queues of the topic %s, which does not exist, are dropped",
                    topic,
                    extra=about(topic=topic),
                )
                await self._core.store.delete_topic(topic)
        return Command.response()

    def clean_log(self) -> Command:
        """DELETE_EXPIRED_COMMITLOG (329): remove expired log files at any hour."""
        self._core.store.retention.clean_now()
        return Command.response()
