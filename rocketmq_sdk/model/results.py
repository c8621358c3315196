"""Results of sends and pulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.compiling import State, mypyc_attr, state_of
from rocketmq_sdk.model.enums import PullStatus
from rocketmq_sdk.model.received import ReceivedMessage

if TYPE_CHECKING:
    from rocketmq_sdk.model.enums import SendStatus
    from rocketmq_sdk.model.queue import MessageQueue


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class SendResult:
    """What the broker said of a message that it stored.

    `message_id` is the unique id given by the producer (for a batch the ids joined by
    commas), `offset_message_id` names broker and physical offset, `queue_offset` is the
    logical offset (of the first message of a batch), `transaction_id` is set by brokers
    for every message, `recall_handle` only for delayed ones.
    """

    __slots__ = (
        "message_id",
        "offset_message_id",
        "queue",
        "queue_offset",
        "recall_handle",
        "region_id",
        "status",
        "trace_on",
        "transaction_id",
    )

    def __init__(
        self,
        status: SendStatus,
        message_id: str,
        offset_message_id: str,
        queue: MessageQueue,
        queue_offset: int,
        transaction_id: str | None = None,
        recall_handle: str | None = None,
        region_id: str = "DefaultRegion",
        trace_on: bool = True,
    ) -> None:
        self.status = status
        self.message_id = message_id
        self.offset_message_id = offset_message_id
        self.queue = queue
        self.queue_offset = queue_offset
        self.transaction_id = transaction_id
        self.recall_handle = recall_handle
        self.region_id = region_id
        self.trace_on = trace_on

    def __getstate__(self) -> State:
        return state_of(self)

    def __repr__(self) -> str:
        return (
            f"SendResult(status={self.status.name}, message_id={self.message_id!r}, "
            f"queue={self.queue!r}, queue_offset={self.queue_offset})"
        )


@attrs.frozen(slots=True)
class PullResult:
    """What one pull of one queue brought."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]
    suggest_broker_id: int = 0
