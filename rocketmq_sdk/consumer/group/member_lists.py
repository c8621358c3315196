"""Who is in a group, as brokers list it.

Any broker of a topic may be asked, since members send heartbeats to all
(`RebalanceImpl` of Apache RocketMQ 5.4.0). But one that has just come back, or has been
added, knows only those that have come to it since: for the time between two heartbeats
it lists too few. Apache's clients believe it, and then two members own a queue for a
while. Here somebody who was known is missed only where a broker says so that has listed
them before.
"""

from __future__ import annotations

import logging
import math
import random
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.client.api.members import consumer_ids
from rocketmq_sdk.client.side_by_side import PATIENCE, first_answer, for_each_broker
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from rocketmq_sdk.client.runtime import Client

logger = logging.getLogger("rocketmq_sdk.consumer")


class _Listing:
    """What one broker has listed since it was connected."""

    __slots__ = ("heard", "young_until")

    def __init__(self, young_until: float) -> None:
        self.young_until = young_until
        self.heard: set[str] = set()


class MemberLists:
    """The members of one group.

    A broker may not have heard of all until a heartbeat interval after it was
    connected.
    """

    def __init__(self, client: Client, group: str) -> None:
        self.complaint = ""
        """Why the members are not known; empty when they are."""
        self.count = 0
        self._client = client
        self._group = group
        self._problems: dict[str, str] = {}
        """Why brokers do not answer."""
        self._listings: dict[str, _Listing] = {}
        self._known: frozenset[str] = frozenset()
        self.look_at: float | None = None
        """When somebody who is not listed any more has to be looked for again."""

    def broker_away(self, broker_name: str) -> None:
        """A broker was disconnected: it has forgotten us, and perhaps others."""
        self._listings[broker_name] = _Listing(math.inf)

    def broker_connected(self, broker_name: str) -> None:
        """A broker is connected, perhaps again."""
        interval = self._client.config.heartbeat_broker_interval
        self._listings[broker_name] = _Listing(trio.current_time() + interval)

    async def of_topic(self, topic: str, answers: dict[str, list[str]]) -> list[str]:
        """The members, from the brokers of a topic; empty when none knows any.

        `answers` are those of this round, for other topics: they are not asked again.
        """
        route = self._client.routes.get(topic)
        names = [] if route is None else [data.broker_name for data in route.broker_datas]
        random.shuffle(names)
        now = trio.current_time()
        # Who had no answer comes last, and before those who may not know all. A broker
        # that has told this round for another topic need not be asked again.
        names.sort(
            key=lambda name: (
                answers.get(name) == [],
                self._is_young(name, now),
                name not in answers,
            )
        )

        async def ask(name: str) -> str | None:
            found = self._client.brokers.subscribe_address(name)
            if found is not None and name not in answers:
                answers[name] = []
                try:
                    answers[name] = await consumer_ids(self._client, found.address, self._group)
                    self._problems.pop(name, None)
                except RocketMQError as error:
                    self._problems[name] = str(error)
            return name if answers.get(name) else None

        told = bool(names and answers.get(names[0]))
        asked = names[0] if told else await first_answer(names, ask)
        if asked is None:
            said = [self._problems[name] for name in names if name in self._problems]
            self._complain(topic, said[0] if said else "no broker has seen its heartbeat")
            return []
        self.complaint = ""
        ids = set(answers[asked])
        missed = self._missed(asked, ids)
        if missed:
            others = {name: name for name in names if name != asked}
            await for_each_broker(others, lambda name, _: ask(name), bound=PATIENCE)
            for name in others:
                if answers.get(name):
                    ids |= set(answers[name]) & missed
                    missed &= self._missed(name, set(answers[name]))
        return self._settle(ids, missed, names)

    def _is_young(self, name: str, now: float) -> bool:
        listing = self._listings.get(name)
        return listing is not None and now < listing.young_until

    def _missed(self, name: str, ids: set[str]) -> set[str]:
        """Who was known and is not listed, though this broker may not know them yet."""
        listing = self._listings.get(name)
        if listing is None or not self._is_young(name, trio.current_time()):
            return set()
        listing.heard |= ids
        return {*self._known} - listing.heard - {self._client.client_id}

    def _settle(self, ids: set[str], missed: set[str], names: list[str]) -> list[str]:
        now = trio.current_time()
        missed = missed - ids
        self.look_at = None
        if missed:
            young = [
                self._listings[name].young_until for name in names if self._is_young(name, now)
            ]
            self.look_at = min(young, default=now)
            logger.info(
                "group %s: %d members have not come back yet to brokers that were away, and count "
                "as members",
                self._group,
                len(missed),
                extra=about(group=self._group),
            )
        self._known = frozenset(ids | missed)
        self.count = len(self._known)
        return sorted(self._known)

    def _complain(self, topic: str, problem: str) -> None:
        if problem == self.complaint:
            return
        self.complaint = problem
        logger.info(
            "group %s: the members are not known, so the queues of topic %s stay as they are: %s",
            self._group,
            topic,
            problem,
            extra=about(topic=topic, group=self._group),
        )
