"""Consistent hashing: queues stay with their member when others come or go."""

from __future__ import annotations

import bisect
import hashlib
from typing import TYPE_CHECKING, ClassVar, Final

from rocketmq_sdk.consumer.assign.strategy import check_arguments
from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.model.queue import MessageQueue

VIRTUAL_NODES: Final = 10
"""The default number of places on the ring for each member."""


def ring_hash(text: str) -> int:
    """The place of a text on the ring.

    The first four bytes of its MD5 as an unsigned number
    (`ConsistentHashRouter.MD5Hash`).
    """
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


class ConsistentHash:
    """Each member has `virtual_nodes` places on a ring of hashes.

    A queue belongs to the first place at or after its own. Follows
    `AllocateMessageQueueConsistentHash` of Apache RocketMQ 5.4.0. Shares are less even
    than with `Average`, but a member that comes or goes moves few queues. All members
    must use the same number of places. Raises `ConfigurationError` for a number below
    one.
    """

    name: ClassVar[str] = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if (
            isinstance(virtual_nodes, bool)
            or not isinstance(virtual_nodes, int)
            or virtual_nodes < 1
        ):
            raise ConfigurationError(
                f"virtual_nodes is {virtual_nodes!r}; give a whole number from 1"
            )
        self.virtual_nodes = virtual_nodes

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`; none when it is not among `client_ids`.

        Raises `ConfigurationError` when an argument is empty.
        """
        if not check_arguments(client_id, queues, client_ids):
            return []
        owners = {
            ring_hash(f"{member}-{number}"): member
            for member in client_ids
            for number in range(self.virtual_nodes)
        }
        places = sorted(owners)

        def owner(queue: MessageQueue) -> str:
            place = bisect.bisect_left(places, ring_hash(_text_of(queue)))
            return owners[places[place % len(places)]]

        return [queue for queue in queues if owner(queue) == client_id]


def _text_of(queue: MessageQueue) -> str:
    """The text of a queue that Apache's client hashes."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )
