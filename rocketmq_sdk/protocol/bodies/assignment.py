"""Assignment of queues by the broker, and by which mode groups read them."""

from __future__ import annotations

from enum import Enum

import attrs

from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.body import Body


class MessageRequestMode(Enum):
    """Whether consumers pull from offsets or pop from the broker."""

    PULL = "PULL"
    POP = "POP"


@attrs.frozen
class QueryAssignmentRequestBody(Body):
    """Body of QUERY_ASSIGNMENT (400)."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str
    message_model: MessageModel | None = None


@attrs.frozen
class MessageQueueAssignment(Body):
    """One assigned queue; `mode` is PULL or POP, queue id -1 with POP means any queue
    of the broker.
    """

    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


@attrs.frozen
class QueryAssignmentResponseBody(Body):
    """Answer to QUERY_ASSIGNMENT: None keeps the current assignment, an empty one drops
    all.
    """

    message_queue_assignments: tuple[MessageQueueAssignment, ...] | None = None


@attrs.frozen
class SetMessageRequestModeRequestBody(Body):
    """Body of SET_MESSAGE_REQUEST_MODE (401)."""

    topic: str | None = None
    consumer_group: str | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: int = 0


@attrs.frozen
class MessageRequestModeSerializeWrapper(Body):
    """Answer to GET_ALL_MESSAGE_REQUEST_MODE (402): modes by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = attrs.field(
        factory=dict
    )
