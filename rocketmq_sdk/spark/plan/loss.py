"""What is raised where offsets that should be read are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.errors import RocketMQError

if TYPE_CHECKING:
    from rocketmq_sdk.spark.plan.offsets import QueueKey


class DataLossError(RocketMQError):
    """Messages that should be read are no longer stored.

    The text names the queue, the expected and the found offset, and the ways out.
    """

    def __init__(self, queue: QueueKey, expected: int, found: int) -> None:
        super().__init__(
            f"the queue {queue} should be read from offset {expected} on, but the broker's "
            f"messages begin at {found}: they expired, or the topic was "
            "made again. Read earlier or keep messages longer; with failOnDataLoss=false this "
            "goes on with what is there; a stream can also begin "
            "anew with another checkpoint"
        )
        self.queue, self.expected, self.found = queue, expected, found


class GoneError(RocketMQError):
    """A queue ends before the offset up to which it should be read."""

    def __init__(
        self, queue: QueueKey, expected: int, found: int, *, option: str | None = None
    ) -> None:
        """`option`: the one that names the offset; else it was once there."""
        if option is None:
            reason = "the topic was deleted or made again, or its broker lost its newest messages"
            way_out = "a stream can also begin anew with another checkpoint"
        else:
            reason, way_out = (
                f"{option} names an offset that is not there yet",
                "-1 stands for the end",
            )
        super().__init__(
            f"the queue {queue} should be read up to offset {expected}, but ends at {found}: "
            f"{reason}. With failOnDataLoss=false this goes on with "
            f"what is there; {way_out}"
        )
        self.queue, self.expected, self.found = queue, expected, found


class DamagedBodyError(RocketMQError):
    """A body that cannot be read: it does not inflate as its message says."""

    def __init__(self, queue: QueueKey, offset: int, reason: object) -> None:
        super().__init__(
            f"the body of the message at offset {offset} of the queue {queue} cannot be read: "
            f"{reason}. With failOnDataLoss=false its row has no body; to read without it, name "
            "the other columns in a schema"
        )
        self.queue, self.offset = queue, offset


class NotThereYetError(RocketMQError):
    """A broker does not give a message that was planned: a slave that lags, mostly."""

    retryable = True
    route_stale = True

    def __init__(self, queue: QueueKey, offset: int, found: int, address: str) -> None:
        super().__init__(
            f"the broker at {address} does not have offset {offset} of the queue {queue} yet, "
            f"which ends there at {found}"
        )
        self.queue, self.offset, self.found = queue, offset, found
