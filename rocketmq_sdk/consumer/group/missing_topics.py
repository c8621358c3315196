"""Subscribed topics that do not exist: a warning each, and a line when they come."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.log_fields import about
from rocketmq_sdk.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Container

    from rocketmq_sdk.client.runtime import Client

logger = logging.getLogger("rocketmq_sdk.consumer")

PATIENCE: Final = 10.0
"""Seconds that a topic may take to come, as by the first message of a producer."""
_MADE_BY_BROKERS: Final = (RETRY_PREFIX, DLQ_PREFIX)
"""Topics that are made for the first message that fails; until then all is well."""


class MissingTopics:
    """The subscribed topics of one member that had no route when it looked.

    `subscribed` are its topics now.
    """

    def __init__(self, client: Client, group: str, subscribed: Container[str]) -> None:
        self._client = client
        self._group = group
        self._subscribed = subscribed
        self._due: dict[str, float] = {}
        """When each topic is to be told of that is still missing then."""
        self._told: set[str] = set()
        self._nursery: trio.Nursery | None = None
        self._watching = False

    def run_in(self, nursery: trio.Nursery | None) -> None:
        """Wait in this nursery, with one task while there is something to wait for."""
        self._nursery = nursery
        self._start()

    def add(self, topic: str, error: Exception) -> None:
        """No name server knows a route of a topic."""
        logger.log(
            logging.DEBUG if topic.startswith(_MADE_BY_BROKERS) else logging.INFO,
            "group %s: topic %s has no route yet: %s",
            self._group,
            topic,
            error,
            extra=about(topic=topic, group=self._group),
        )
        self.expect(topic)

    def expect(self, topic: str) -> None:
        """Warn of a topic unless it comes in time."""
        if not topic.startswith(_MADE_BY_BROKERS) and topic not in self._told:
            self._due[topic] = trio.current_time() + PATIENCE
            self._start()

    def forget(self, topic: str) -> None:
        """A topic is not subscribed to any more."""
        self._due.pop(topic, None)
        self._told.discard(topic)

    def route_changed(self, topic: str) -> None:
        """There is another route of a topic, perhaps the first one."""
        if topic not in self._told or self._client.routes.get(topic) is None:
            return
        self.forget(topic)
        if topic in self._subscribed:
            logger.info(
                "group %s: topic %s is there now",
                self._group,
                topic,
                extra=about(topic=topic, group=self._group),
            )

    def _start(self) -> None:
        if self._due and self._nursery is not None and not self._watching:
            self._watching = True
            self._nursery.start_soon(self._watch)

    async def _watch(self) -> None:
        """Warn of topics when they are due; ends when none is left."""
        while self._due:
            await trio.sleep_until(min(self._due.values()))
            self._look(trio.current_time())
        self._watching = False

    def _look(self, now: float) -> None:
        routes = self._client.routes
        for topic in [topic for topic, due in self._due.items() if due <= now]:
            if routes.problem(topic):  # the client tells of it, and nothing is known
                self._due[topic] = now + PATIENCE
                continue
            del self._due[topic]
            if topic not in self._subscribed or routes.get(topic) is not None:
                continue
            self._told.add(topic)
            logger.warning(
                "group %s: topic %s does not exist, so nothing of it is consumed. Create it, or "
                "correct the name; it is looked for at least every %g s",
                self._group,
                topic,
                self._client.config.poll_name_server_interval,
                extra=about(topic=topic, group=self._group),
            )
