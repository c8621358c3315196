"""Members of groups: heartbeats, consumer lists, queue locks, assignment of queues."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import attrs

from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.names import java_hash
from rocketmq_sdk.protocol.body import CONVERTER, Body
from rocketmq_sdk.protocol.body_values import Converter, read_text
from rocketmq_sdk.protocol.header import WIRE
from rocketmq_sdk.protocol.json.dialect import encode_json
from rocketmq_sdk.protocol.limits import Length, limited
from rocketmq_sdk.protocol.subscription import SubscriptionData


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
    """One assigned queue.

    `mode` is PULL or POP, queue id -1 with POP means any queue of the broker.
    """

    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


@attrs.frozen
class QueryAssignmentResponseBody(Body):
    """Answer to QUERY_ASSIGNMENT.

    None keeps the current assignment, an empty one drops all.
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


@attrs.frozen
class ConsumerList(Body):
    """Answer to GET_CONSUMER_LIST_BY_GROUP (38): client ids."""

    consumer_id_list: tuple[str, ...] = ()


@attrs.frozen
class ConsumerData(Body):
    """One consumer group of a client.

    A vocabulary member that is unknown here reads as None, as with Apache.
    """

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFrom | None = None
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


def _write_producers(groups: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"groupName": group} for group in groups]


def _read_producers(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("not an array of objects")
    return tuple(read_text(item.get("groupName") or "") for item in value)


_PRODUCERS: Final = Converter(_write_producers, _read_producers, tuple, False)


@attrs.frozen
class HeartbeatData(Body):
    """Body of HEART_BEAT (34); `producer_data_set` holds group names."""

    client_id: str = attrs.field(metadata={WIRE: "clientID"})
    producer_data_set: tuple[str, ...] = attrs.field(default=(), metadata={CONVERTER: _PRODUCERS})
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: int = 0
    without_sub: bool = False

    def fingerprint(self) -> int:
        """The fingerprint of groups and subscriptions.

        It is Java's hash of the text without what differs between members of a group or
        from time to time (`HeartbeatData.computeHeartbeatFingerprint`).
        """
        members = attrs.evolve(
            self, client_id="", heartbeat_fingerprint=0, without_sub=False
        ).to_json()
        consumers: Any = members["consumerDataSet"]
        for consumer in consumers:
            for subscription in consumer["subscriptionDataSet"]:
                subscription["subVersion"] = 0
        return java_hash(encode_json(members).decode())


@attrs.frozen
class CheckClientRequestBody(Body):
    """Body of CHECK_CLIENT_CONFIG (46)."""

    client_id: str
    group: str
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


@attrs.frozen
class LockBatchRequestBody(Body):
    """Body of LOCK_BATCH_MQ (41)."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = limited(Length(16 * 1024), ())
    only_this_broker: bool = False


@attrs.frozen
class UnlockBatchRequestBody(Body):
    """Body of UNLOCK_BATCH_MQ (42)."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = limited(Length(16 * 1024), ())
    only_this_broker: bool = False


@attrs.frozen
class LockBatchResponseBody(Body):
    """Answer to LOCK_BATCH_MQ: the queues that are locked now for the asking client."""

    lock_ok_mq_set: tuple[MessageQueue, ...] = attrs.field(
        default=(), metadata={WIRE: "lockOKMQSet"}
    )
