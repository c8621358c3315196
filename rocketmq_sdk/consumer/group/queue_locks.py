"""The broker's locks on the queues of an orderly consumer.

A lock is taken before its queue is owned, renewed while it is, and released when
nothing runs any more. Follows `RebalanceImpl.lock`, `lockAll` and `unlock` of Apache
RocketMQ 5.4.0. A lock lasts 60 s at the broker and is renewed every 20 s; a member
trusts it for 30 s after the last answer.

While a broker is not connected, no more messages of its queues go to the listener,
because a broker that restarts has forgotten the locks. A queue whose lock the broker
refuses, or whose lock could not be renewed in time, is given up without a commit:
another member may own it, and its offset is not ours to move.
"""

from __future__ import annotations

import logging
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.client.api.members import lock_batches, unlock_batch
from rocketmq_sdk.client.side_by_side import by_broker, for_each_broker
from rocketmq_sdk.clock import elapsed
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_sdk.client.api.caller import AddressesCaller
    from rocketmq_sdk.model.queue import MessageQueue

logger = logging.getLogger("rocketmq_sdk.consumer")

RENEW_INTERVAL: Final = 20.0
TRUST: Final = 30.0
"""Seconds after the broker's last answer during which a lock counts as held."""
LOCK_TIMEOUT: Final = 1.0
REFUSED_PAUSE: Final = 0.5
"""Seconds until the next round when another member still held a lock."""

_BROKER: Final = attrgetter("broker_name")


class QueueLocks:
    """The locks of one consumer.

    `held` has the locks that it believes to hold, with the time of the last answer.
    """

    def __init__(self, client: AddressesCaller, group: str) -> None:
        self._client = client
        self._group = group
        self.held: dict[MessageQueue, float] = {}
        # A renewal that overtakes an unlock would leave a lock at the broker that
        # nobody renews or releases.
        self._one_at_a_time = trio.Lock()

    def trusted_until(self, queue: MessageQueue) -> float:
        """Until when a lock counts as held, in seconds of `elapsed`.

        The broker's time goes on while this machine is suspended.
        """
        return self.held.get(queue, float("-inf")) + TRUST

    async def lock(
        self, queues: Callable[[], Iterable[MessageQueue]]
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Take or renew locks; returns those held now, and those a broker refused.

        For the others no broker answered. `queues` is called when it is this call's
        turn, so that no lock is released in between.
        """
        async with self._one_at_a_time:
            return await self._lock(by_broker(queues(), _BROKER))

    async def _lock(
        self, queues: dict[str, list[MessageQueue]]
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        locked: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()
        asked = elapsed()
        answers = await lock_batches(self._client, self._group, queues, LOCK_TIMEOUT)
        for broker_name, granted in answers.items():
            if isinstance(granted, RocketMQError):
                logger.info(
                    "group %s: queues of broker %s could not be locked: %s",
                    self._group,
                    broker_name,
                    granted,
                    extra=about(group=self._group),
                )
                continue
            for queue in queues[broker_name]:
                if queue in granted:
                    self.held[queue] = asked
                    locked.add(queue)
                else:
                    self.held.pop(queue, None)
                    refused.add(queue)
        return locked, refused

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release locks; a broker that does not answer keeps them until they expire."""
        async with self._one_at_a_time:
            given = [queue for queue in queues if self.held.pop(queue, None) is not None]
            await for_each_broker(by_broker(given, _BROKER), self._unlock, bound=LOCK_TIMEOUT)

    async def _unlock(self, broker_name: str, some: list[MessageQueue]) -> None:
        try:
            await unlock_batch(self._client, broker_name, self._group, some, LOCK_TIMEOUT)
        except RocketMQError as error:
            logger.info(
                "group %s: locks at broker %s could not be given back; they expire: %s",
                self._group,
                broker_name,
                error,
                extra=about(group=self._group),
            )

    def forget(self, queue: MessageQueue) -> None:
        """Let a lock expire at the broker."""
        self.held.pop(queue, None)

    async def give_back(self, queue: MessageQueue, *, lost: bool, settled: bool) -> None:
        """End the lock of a queue that is no longer owned.

        `lost` when the lock is another member's by now, `settled` when nothing runs for
        the queue any more.
        """
        if settled and not lost:
            await self.unlock([queue])
            return
        if not lost:
            # Its listener still runs in a thread: no other member should get the queue
            # before the lock expires.
            logger.warning(
                "group %s: a listener of %r still runs in its thread; the lock is not given back, "
                "it expires",
                self._group,
                queue,
                extra=about(group=self._group, queue=queue),
            )
        self.forget(queue)
