"""The slaves of a master, how far each one is, and when a message has enough copies.

`GroupTransferService` and `DefaultHAService` of Apache. Only the waiting is
asynchronous: positions go in, watermarks advance. As with Apache, the numbers in the
settings include the master: with `inSyncReplicas` 2 a message is acknowledged when one
slave has it.

Apache applies `minInSyncReplicas`, `enableAutoInSyncReplicas` and
`allAckInSyncStateSet` only with a controller or an acting master. This broker has
neither mode and applies them to every SYNC_MASTER; their defaults change nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.model.properties import WAIT, property_in_text
from rocketmq_sdk.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
    from rocketmq_sdk.clock import Clock

MASTER_ALONE: Final = 1
_GRAIN: Final = 0.1
MOST_GONE: Final = 64


class Replica:
    """One slave, as its connection reports it; positions are -1 until then."""

    __slots__ = ("acknowledged", "address", "requested", "sent", "transferred")

    def __init__(self, address: str) -> None:
        self.address = address
        self.requested = -1
        """Where it asked to be sent the log from: its first report."""
        self.acknowledged = -1
        """Up to which position the slave has the log, as it said since it was sent
        something.
        """
        self.sent = -1
        """The position where the next frame begins."""
        self.transferred = 0
        """How many bytes of the log were sent."""

    @property
    def host(self) -> str:
        """Its machine."""
        return self.address.rpartition(":")[0]

    @property
    def position(self) -> int:
        """Where its log ends, as far as it has said anything; -1 until then."""
        return max(self.requested, self.acknowledged)

    def __repr__(self) -> str:
        return f"<Replica {self.address} acknowledged={self.acknowledged} sent={self.sent}>"


@attrs.frozen
class Gone:
    """A slave that was connected."""

    position: int
    """Where its log ended."""
    since: float
    """When it left; monotonic seconds."""


@attrs.frozen
class InSyncRules:
    """How many copies a message needs, including the master's."""

    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    all_ack: bool = False
    auto: bool = False
    max_gap: int = 256 * 1024 * 1024

    @classmethod
    def of(cls, config: StoreConfig) -> InSyncRules:
        """The rules from the settings."""
        return cls(
            config.in_sync_replicas,
            config.min_in_sync_replicas,
            config.all_ack_in_sync_state_set,
            config.enable_auto_in_sync_replicas,
            config.ha_max_gap_not_in_sync,
        )

    @property
    def trivial(self) -> bool:
        """Whether puts never wait for a slave and are never refused for want of one."""
        return (
            self.in_sync_replicas <= MASTER_ALONE
            and self.min_in_sync_replicas <= MASTER_ALONE
            and not self.all_ack
        )

    def enough(self, in_sync: int) -> bool:
        """Whether a message may be appended with so many copies of the log in sync.

        `in_sync` includes the master's copy.
        """
        return in_sync >= self.min_in_sync_replicas

    def needed(self, in_sync: int) -> int:
        """How many copies a message needs with so many copies of the log in sync.

        Both numbers include the master's copy.
        """
        if self.all_ack:
            return max(in_sync, self.min_in_sync_replicas)
        if self.auto:
            return max(min(self.in_sync_replicas, in_sync), self.min_in_sync_replicas)
        return self.in_sync_replicas


class Replicas:
    """The slaves of one master.

    `patience` is how long, in seconds, a put may wait for its copies.
    """

    def __init__(self, rules: InSyncRules, patience: float = 0.0) -> None:
        self.rules = rules
        self._patience = patience
        self._recent: deque[tuple[float, int]] = deque()
        self._connected: list[Replica] = []
        self._marks: dict[int, Watermark] = {}
        self.gone: dict[str, Gone] = {}
        """Slaves by their hosts that had reported, are not connected, and have not come
        back.
        """
        self.most_acknowledged = 0
        """The highest position that a slave ever reported (`push2SlaveMaxOffset`)."""

    @classmethod
    def of(cls, config: StoreConfig) -> Replicas:
        """No slaves yet, with the rules and timeouts from the settings."""
        return cls(
            InSyncRules.of(config), (config.slave_timeout + config.sync_flush_timeout) / 1000
        )

    def gate(
        self, position: Callable[[], int], clock: Clock
    ) -> Callable[[MessageToStore], PutStatus | None]:
        """What tells of a message, before it is put, whether too few slaves follow.

        `position` gives the end of the log.
        """

        def refusal(message: MessageToStore) -> PutStatus | None:
            end = position()
            self.note_append(end, clock.monotonic())
            if (
                self.rules.enough(self.in_sync(end))
                or property_in_text(message.properties, WAIT) == "false"
            ):
                return None
            return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH

        return refusal

    @property
    def connected(self) -> tuple[Replica, ...]:
        """The connected slaves, oldest connection first."""
        return tuple(self._connected)

    def add(self, replica: Replica) -> None:
        """Add a slave that has connected."""
        self._connected.append(replica)

    def remove(self, replica: Replica, now: float) -> None:
        """Remove a slave that has disconnected.

        What it acknowledged stays acknowledged.
        """
        self._connected.remove(replica)
        if replica.position < 0 or any(other.host == replica.host for other in self._connected):
            return
        if len(self.gone) >= MOST_GONE:
            del self.gone[next(iter(self.gone))]
        self.gone[replica.host] = Gone(replica.position, now)

    def reported(self, replica: Replica, position: int) -> None:
        """Note where the log of a slave ends, by its first report."""
        replica.requested = position
        self.gone.pop(replica.host, None)

    def acknowledge(self, replica: Replica, position: int) -> None:
        """Note that a slave has the log up to a position."""
        replica.acknowledged = position
        self.most_acknowledged = max(self.most_acknowledged, position)
        if self._marks:
            positions = sorted((other.acknowledged for other in self._connected), reverse=True)
            for count, mark in self._marks.items():
                if count <= len(positions):
                    mark.advance(positions[count - 1])

    def note_append(self, position: int, now: float) -> None:
        """Note that a put may wait from now on for the message at a position."""
        recent = self._recent
        if recent and now - recent[-1][0] < _GRAIN:
            return
        while recent and now - recent[0][0] > self._patience + _GRAIN:
            recent.popleft()
        recent.append((now, position))

    def oldest_waiting(self, now: float, end: int) -> int:
        """A position before every message that a put may still be waiting for.

        `end`, the end of the log, when there is none. A new slave must be sent the log
        from there on, or it would acknowledge messages that it does not have.
        """
        return min(
            (position for time, position in self._recent if now - time <= self._patience + _GRAIN),
            default=end,
        )

    def in_sync(self, position: int) -> int:
        """How many copies of the log are close enough to a position.

        Includes the master's copy (`inSyncReplicasNums`).
        """
        limit = position - self.rules.max_gap
        return MASTER_ALONE + sum(
            1 for replica in self._connected if replica.position > limit and replica.position >= 0
        )

    def lack(self, position: int) -> str | None:
        """Why messages that wait for slaves are refused at a position, in words."""
        copies = self.in_sync(position)
        if self.rules.enough(copies):
            return None
        return (
            f"{copies} of {self.rules.min_in_sync_replicas} copies of the log are in sync, and "
            "minInSyncReplicas asks for all of them; connect a slave"
        )

    def have(self, position: int) -> bool:
        """Whether enough slaves have the log up to a position by now."""
        slaves = self.rules.needed(self.in_sync(position)) - MASTER_ALONE
        return sum(replica.acknowledged >= position for replica in self._connected) >= slaves

    async def wait(self, position: int, timeout: float) -> bool:
        """Wait until enough slaves have the log up to a position.

        The rules say how many. Returns False when `timeout` seconds passed first.
        """
        slaves = self.rules.needed(self.in_sync(position)) - MASTER_ALONE
        if slaves <= 0:
            return True
        mark = self._marks.get(slaves)
        if mark is None:
            mark = self._marks[slaves] = Watermark()
            for replica in self._connected:
                self.acknowledge(replica, replica.acknowledged)
        return await mark.wait_reached(position, timeout)
