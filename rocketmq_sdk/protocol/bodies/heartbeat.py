"""What clients tell their brokers about themselves."""

from __future__ import annotations

from typing import Any, Final

import attrs

from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.names import java_hash
from rocketmq_sdk.protocol.body import CONVERTER, Body
from rocketmq_sdk.protocol.body_values import Converter, read_text
from rocketmq_sdk.protocol.header import WIRE
from rocketmq_sdk.protocol.json_dialect import encode_json
from rocketmq_sdk.protocol.subscription import SubscriptionData


@attrs.frozen
class ConsumerData(Body):
    """One consumer group of a client. A vocabulary member that is unknown here reads as
    None, as with Apache.
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
        """The number that stands for groups and subscriptions
        (`HeartbeatData.computeHeartbeatFingerprint`): Java's hash of the text without
        what differs between members of a group or from time to time.
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
