"""Waiting until readers can see what was written.

Apache's broker acknowledges a message when it is in the commit log and adds it to
its consume queue afterwards (`ReputMessageService`), a moment later on an idle machine
and seconds on a busy one. A batch that is read in between ends before the newest rows:
`df.write` followed by `spark.read` would miss rows of its own.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.errors import NotPermittedError, RocketMQError
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.view import bounds_at
from rocketmq_sdk.spark.plan.offsets import QueueKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketmq_sdk.spark.cluster.access import ClusterAccess

logger = logging.getLogger("rocketmq_sdk.spark")
PATIENCE: Final = 30.0
"""Seconds for which a write waits for the queues to follow."""
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.5

Ends = dict[QueueKey, int]
"""The offset after the last row that was written to a queue."""


def merged(tables: Iterable[Mapping[QueueKey, int]]) -> Ends:
    """The greatest end of each queue."""
    ends: Ends = {}
    for table in tables:
        for queue, end in table.items():
            ends[queue] = max(ends.get(queue, 0), end)
    return ends


async def until_visible(connection: ClusterAccess, ends: Ends, patience: float = PATIENCE) -> None:
    """Wait in the trio thread until every queue ends where it was written to, or after.

    One statistics call for each broker and topic in most cases. What was written is
    acknowledged, so that nothing here is an error: when `patience` seconds are over, or
    a broker refuses to tell, a warning names a queue or the refusal and this returns.
    """
    places: dict[tuple[str, str], Ends] = defaultdict(dict)
    for queue, end in ends.items():
        places[queue.topic, queue.broker][queue] = end
    async with bridge.client(connection) as client, trio.open_nursery() as nursery:

        async def follow(topic: str, broker: str, wanted: Ends) -> None:
            deadline, pause = trio.current_time() + patience, _FIRST_PAUSE
            while True:
                refused = False
                try:
                    found = await bounds_at(client, broker, client.namespace.wrap(topic))
                except RocketMQError as error:
                    refused, reason = (
                        isinstance(error, NotPermittedError) or not error.retryable,
                        str(error),
                    )
                else:
                    behind = [
                        queue
                        for queue, end in wanted.items()
                        if queue.queue_id not in found or found[queue.queue_id].end < end
                    ]
                    if not behind:
                        return
                    reason = f"queue {behind[0]} does not yet reach offset {wanted[behind[0]]}"
                if refused or trio.current_time() + pause > deadline:
                    logger.warning(
                        "all rows are acknowledged, but a batch that is read now may miss the "
                        "newest at broker %s: %s",
                        broker,
                        reason,
                    )
                    return
                await trio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

        for (topic, broker), wanted in places.items():
            nursery.start_soon(follow, topic, broker, wanted)
