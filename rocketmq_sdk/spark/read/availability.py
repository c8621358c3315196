"""Which brokers of a stream are away, and how long that is borne.

A broker that restarts takes its queues out of all routes for a while, and one that
hangs answers nothing; neither is a loss of data. `onBrokerAway` says whether a stream
waits for it or goes on with the others.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.spark.cluster.retry import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from rocketmq_sdk.spark.cluster.view import ClusterView
    from rocketmq_sdk.spark.options.settings import SparkOptions
    from rocketmq_sdk.spark.plan.offsets import QueueKey
    from rocketmq_sdk.spark.plan.queue_state import Bounds

logger = logging.getLogger("rocketmq_sdk.spark")
ASK_SECONDS: Final = 3.0
"""How long a broker may take to answer before the others go on without it."""
PROBE_SECONDS: Final = 1.0
"""The same for one that did not answer last time."""
PROBE_EVERY: Final = 10.0
"""How often a broker that does not answer is asked again.

The other queues wait for `PROBE_SECONDS` meanwhile, so this is a tenth of the time.
"""
LOOK_EVERY: Final = 1.0
"""How often the name server is asked whether a broker is back."""


class Availability:
    """Knows which brokers are away, in the trio thread of a query's process."""

    def __init__(self, settings: SparkOptions) -> None:
        self._skips = settings.on_broker_away == "skip"
        self._limit: float | None = settings.max_broker_away
        self._silent: dict[str, float] = {}
        """Brokers that did not answer, and when to ask them again."""
        self._masterless: frozenset[str] = frozenset()
        self._look_at = float("-inf")
        self._since: dict[str, float] = {}

    @property
    def silent(self) -> Container[str]:
        """The brokers that did not answer when they were asked."""
        return self._silent

    @property
    def away(self) -> frozenset[str]:
        """The brokers whose queues stand still."""
        return self._masterless | self._silent.keys()

    async def bounds(
        self, cluster: ClusterView, queues: Sequence[QueueKey]
    ) -> dict[QueueKey, Bounds]:
        """Bounds of queues, without those of brokers that are away.

        Raises `UnreachableError` where a broker is waited for and does not come.
        """
        if not self._skips:
            return await cluster.bounds(queues)
        now = trio.current_time()
        asked = [
            queue
            for queue in queues
            if queue.broker not in self._masterless and self._silent.get(queue.broker, now) <= now
        ]
        patience = {
            queue.broker: PROBE_SECONDS if queue.broker in self._silent else ASK_SECONDS
            for queue in asked
        }
        found, silent = await cluster.bounds_in_time(asked, patience)
        for broker in patience:
            if broker in silent:
                self._silent[broker] = trio.current_time() + PROBE_EVERY
            else:
                self._silent.pop(broker, None)
        self._count()
        return found

    async def look_for(self, cluster: ClusterView, queues: Sequence[QueueKey]) -> None:
        """Find out which brokers of some queues have no master.

        Where brokers are waited for, returns when all of them have one; raises
        `UnreachableError` when they have not within `retryTimeout`.
        """
        brokers = {queue.broker for queue in queues}
        if trio.current_time() < self._look_at and brokers <= self._masterless:
            return
        if not self._skips:
            await cluster.wait_for_masters(queues)
        self._masterless = frozenset(await cluster.without_master(brokers))
        self._look_at = trio.current_time() + (LOOK_EVERY if self._masterless else 0)
        self._count()

    def _count(self) -> None:
        """Tell of brokers that went or came; raise when one is away for too long."""
        now = trio.current_time()
        away = self.away
        for broker in sorted(away - self._since.keys()):
            self._since[broker] = now
            logger.warning("the broker %r is away; its queues stand still", broker)
        for broker in sorted(self._since.keys() - away):
            passed = now - self._since.pop(broker)
            logger.warning("the broker %r is back after %.0f s", broker, passed)
        self._refuse_lasting(now)

    def _refuse_lasting(self, now: float) -> None:
        limit = self._limit
        lasting = [] if limit is None else self._away_for(limit, now)
        if lasting:
            raise UnreachableError(
                f"the brokers {', '.join(lasting)} are away for more than "
                f"maxBrokerAway={limit:g}s; their queues were left standing meanwhile"
            )

    def _away_for(self, seconds: float, now: float) -> list[str]:
        return sorted(broker for broker, since in self._since.items() if now - since > seconds)
