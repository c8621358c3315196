"""What one round of rebalancing changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.model.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rocketmq_sdk.consumer.assign.strategy import AllocateStrategy


@attrs.frozen
class Difference:
    """Queues to give up and queues to take, each in the order of the queues."""

    revoked: tuple[MessageQueue, ...]
    added: tuple[MessageQueue, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.revoked and not self.added


def wanted_queues(
    strategy: AllocateStrategy,
    client_id: str,
    queues: Collection[MessageQueue],
    client_ids: Collection[str],
) -> list[MessageQueue]:
    """The queues of a topic that a member should own.

    Follows the sorting rules of `RebalanceImpl.rebalanceByTopic`. Duplicate queues and
    duplicate ids count once (a broker lists an id twice when two connections share it).
    When a strategy lists queues by itself, only those that the topic has are taken.
    """
    known = set(queues)
    wanted = strategy.allocate(client_id, sorted(known), sorted(set(client_ids)))
    return [queue for queue in dict.fromkeys(wanted) if queue in known]


def difference(owned: Collection[MessageQueue], wanted: Sequence[MessageQueue]) -> Difference:
    """The change that turns `owned` into `wanted`."""
    keep = set(wanted)
    return Difference(
        revoked=tuple(sorted(queue for queue in owned if queue not in keep)),
        added=tuple(sorted(keep.difference(owned))),
    )
