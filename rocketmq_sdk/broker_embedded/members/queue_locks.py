"""Locks of queues for members of an orderly group (`RebalanceLockManager`).

A lock lives 60 s after its owner last asked for it; an expired one may be taken by
another member. Locks are not persisted and not given back when a client leaves: it
unlocks, or the time passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.queue import MessageQueue

LIFETIME: Final = 60.0
"""Seconds that a lock lives without being renewed."""
MOST: Final = 200_000
"""Locks of all groups; whoever asks may name any queues. One more is not given."""


class _Lock:
    __slots__ = ("client_id", "renewed")

    def __init__(self, client_id: str, renewed: float) -> None:
        self.client_id = client_id
        self.renewed = renewed


class QueueLocks:
    """The owners of queue locks, by group and queue."""

    __slots__ = ("_clock", "_count", "_lifetime", "_locks")

    def __init__(self, clock: Clock, *, lifetime: float = LIFETIME) -> None:
        self._clock = clock
        self._lifetime = lifetime
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def lock(
        self, group: str, queues: Iterable[MessageQueue], client_id: str
    ) -> list[MessageQueue]:
        """Lock or renew queues; returns those the client owns, in request order."""
        now = self._clock.monotonic()
        locks = self._locks.get(group, {})
        owned: list[MessageQueue] = []
        for queue in queues:
            held = locks.get(queue)
            if held is None:
                if self._count >= MOST:
                    continue
                self._count += 1
            elif held.client_id != client_id and not self._expired(held, now):
                continue
            locks[queue] = _Lock(client_id, now)
            owned.append(queue)
        if locks:
            self._locks[group] = locks
        return owned

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give locks back; those of other clients stay."""
        locks = self._locks.get(group)
        if locks is None:
            return
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            del self._locks[group]

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """The client that owns a queue now, or None."""
        held = self._locks.get(group, {}).get(queue)
        return (
            None if held is None or self._expired(held, self._clock.monotonic()) else held.client_id
        )

    def any_alive(self, group: str) -> bool:
        """Whether any queue of a group is locked now; if so the group is orderly."""
        locks = self._locks.get(group)
        if not locks:
            return False
        now = self._clock.monotonic()
        return any(not self._expired(lock, now) for lock in locks.values())

    def expire(self) -> None:
        """Forget locks whose time passed."""
        now = self._clock.monotonic()
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, lock in locks.items() if self._expired(lock, now)]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._locks[group]

    def _expired(self, lock: _Lock, now: float) -> bool:
        return now - lock.renewed > self._lifetime
