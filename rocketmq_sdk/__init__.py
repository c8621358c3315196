"""A native RocketMQ client on trio, with a complete broker that runs inside the same
process.

Importing this package does nothing but make its names known; each is loaded when it is
first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rocketmq_sdk.admin.client import Admin
    from rocketmq_sdk.admin.stored_copy import StoredCopy
    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.client.config import ClientConfig
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.assign.average import Average, AverageByCircle
    from rocketmq_sdk.consumer.assign.by_config import ByConfig
    from rocketmq_sdk.consumer.assign.consistent_hash import ConsistentHash
    from rocketmq_sdk.consumer.assign.machine_room import MachineRoom, MachineRoomNearby
    from rocketmq_sdk.consumer.config import LitePullConfig, PushConfig, SimpleConfig
    from rocketmq_sdk.consumer.health import ConsumerHealth
    from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
    from rocketmq_sdk.consumer.lite_pull.member import AssignmentChange
    from rocketmq_sdk.consumer.lite_pull.pull_consumer import PullConsumer
    from rocketmq_sdk.consumer.outcome import ConsumeLater, ConsumeOrderlyStatus, RejectMessage
    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage, Receipt
    from rocketmq_sdk.consumer.push.consumer import PushConsumer
    from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
    from rocketmq_sdk.consumer.statistics import (
        ConsumerStatistics,
        PopStatistics,
        QueueStatistics,
        SimpleStatistics,
    )
    from rocketmq_sdk.errors import (
        BrokerError,
        BusyError,
        ClosedError,
        CodecMissingError,
        ConfigurationError,
        ConnectError,
        FieldError,
        FilterSyntaxError,
        GroupNotFoundError,
        InvalidParameterError,
        LocalProtocolError,
        MessageIllegalError,
        NotFoundError,
        NotPermittedError,
        NotSupportedError,
        ProtocolError,
        ReceiptHandleError,
        RemoteProtocolError,
        RequestTimeoutError,
        RocketMQError,
        RouteError,
        SendTimeout,
        ServiceNotAvailableError,
        StoreCorruptError,
        StoreError,
        StoreFullError,
        StoreLockedError,
        SubscriptionError,
        TooManyRequestsError,
        TopicNotFoundError,
        WrongRunError,
        WrongTypeError,
    )
    from rocketmq_sdk.model.enums import (
        BoundaryType,
        ConsumeFrom,
        ExpressionType,
        MessageModel,
        PullStatus,
        SendStatus,
        TransactionState,
    )
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.model.results import PullResult, SendResult
    from rocketmq_sdk.producer.config import AutoBatch, ProducerConfig
    from rocketmq_sdk.producer.gathered import AccumulatedHandle
    from rocketmq_sdk.producer.handle import SendHandle
    from rocketmq_sdk.producer.health import ProducerHealth
    from rocketmq_sdk.producer.producer import Producer
    from rocketmq_sdk.producer.queue_selector import (
        RoundRobin,
        select_by_hash,
        select_by_key,
        select_by_random,
    )
    from rocketmq_sdk.producer.request_reply import reply_message
    from rocketmq_sdk.producer.transaction import (
        Transaction,
        TransactionProducer,
        TransactionResult,
    )
    from rocketmq_sdk.protocol.flags import HeaderEncoding
    from rocketmq_sdk.remoting.credentials import Credentials, Signing

_HOMES: Final[dict[str, tuple[str, ...]]] = {
    "admin.client": ("Admin",),
    "broker_embedded.broker": ("EmbeddedBroker",),
    "broker_embedded.settings.config": ("BrokerConfig",),
    "broker_embedded.store.config": ("StoreConfig",),
    "client.config": ("ClientConfig",),
    "remoting.credentials": ("Credentials", "Signing"),
    "client.runtime": ("Client",),
    "consumer.assign.average": ("Average", "AverageByCircle"),
    "consumer.assign.by_config": ("ByConfig",),
    "consumer.assign.consistent_hash": ("ConsistentHash",),
    "consumer.assign.machine_room": ("MachineRoom", "MachineRoomNearby"),
    "consumer.config": ("LitePullConfig", "PushConfig", "SimpleConfig"),
    "consumer.lite_pull.consumer": ("LitePullConsumer",),
    "consumer.lite_pull.member": ("AssignmentChange",),
    "consumer.health": ("ConsumerHealth",),
    "consumer.outcome": ("ConsumeLater", "ConsumeOrderlyStatus", "RejectMessage"),
    "consumer.lite_pull.pull_consumer": ("PullConsumer",),
    "consumer.push.consumer": ("PushConsumer",),
    "consumer.pop.receipt": ("PoppedMessage", "Receipt"),
    "consumer.simple.consumer": ("SimpleConsumer",),
    "consumer.statistics": (
        "ConsumerStatistics",
        "PopStatistics",
        "QueueStatistics",
        "SimpleStatistics",
    ),
    "errors": (
        "BrokerError",
        "BusyError",
        "ClosedError",
        "CodecMissingError",
        "ConfigurationError",
        "ConnectError",
        "FieldError",
        "FilterSyntaxError",
        "GroupNotFoundError",
        "InvalidParameterError",
        "LocalProtocolError",
        "MessageIllegalError",
        "NotFoundError",
        "NotPermittedError",
        "NotSupportedError",
        "ProtocolError",
        "ReceiptHandleError",
        "RemoteProtocolError",
        "RequestTimeoutError",
        "RocketMQError",
        "RouteError",
        "SendTimeout",
        "ServiceNotAvailableError",
        "StoreCorruptError",
        "StoreError",
        "StoreFullError",
        "StoreLockedError",
        "SubscriptionError",
        "TooManyRequestsError",
        "TopicNotFoundError",
        "WrongRunError",
        "WrongTypeError",
    ),
    "model.enums": (
        "BoundaryType",
        "ConsumeFrom",
        "ExpressionType",
        "MessageModel",
        "PullStatus",
        "SendStatus",
        "TransactionState",
    ),
    "model.message": ("Message",),
    "model.received": ("ReceivedMessage",),
    "model.queue": ("MessageQueue",),
    "model.results": ("PullResult", "SendResult"),
    "admin.stored_copy": ("StoredCopy",),
    "producer.gathered": ("AccumulatedHandle",),
    "producer.config": ("AutoBatch", "ProducerConfig"),
    "producer.handle": ("SendHandle",),
    "producer.health": ("ProducerHealth",),
    "producer.producer": ("Producer",),
    "producer.queue_selector": (
        "RoundRobin",
        "select_by_hash",
        "select_by_key",
        "select_by_random",
    ),
    "producer.request_reply": ("reply_message",),
    "producer.transaction": ("Transaction", "TransactionProducer", "TransactionResult"),
    "protocol.flags": ("HeaderEncoding",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AccumulatedHandle",
    "Admin",
    "AssignmentChange",
    "AutoBatch",
    "Average",
    "AverageByCircle",
    "BoundaryType",
    "BrokerConfig",
    "BrokerError",
    "BusyError",
    "ByConfig",
    "Client",
    "ClientConfig",
    "ClosedError",
    "CodecMissingError",
    "ConfigurationError",
    "ConnectError",
    "ConsistentHash",
    "ConsumeFrom",
    "ConsumeLater",
    "ConsumeOrderlyStatus",
    "ConsumerHealth",
    "ConsumerStatistics",
    "Credentials",
    "EmbeddedBroker",
    "ExpressionType",
    "FieldError",
    "FilterSyntaxError",
    "GroupNotFoundError",
    "HeaderEncoding",
    "InvalidParameterError",
    "LitePullConfig",
    "LitePullConsumer",
    "LocalProtocolError",
    "MachineRoom",
    "MachineRoomNearby",
    "Message",
    "MessageIllegalError",
    "MessageModel",
    "MessageQueue",
    "NotFoundError",
    "NotPermittedError",
    "NotSupportedError",
    "PopStatistics",
    "PoppedMessage",
    "Producer",
    "ProducerConfig",
    "ProducerHealth",
    "ProtocolError",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConfig",
    "PushConsumer",
    "QueueStatistics",
    "Receipt",
    "ReceiptHandleError",
    "ReceivedMessage",
    "RejectMessage",
    "RemoteProtocolError",
    "RequestTimeoutError",
    "RocketMQError",
    "RoundRobin",
    "RouteError",
    "SendHandle",
    "SendResult",
    "SendStatus",
    "SendTimeout",
    "ServiceNotAvailableError",
    "Signing",
    "SimpleConfig",
    "SimpleConsumer",
    "SimpleStatistics",
    "StoreConfig",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoredCopy",
    "SubscriptionError",
    "TooManyRequestsError",
    "TopicNotFoundError",
    "Transaction",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "WrongRunError",
    "WrongTypeError",
    "reply_message",
    "select_by_hash",
    "select_by_key",
    "select_by_random",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("rocketmq-trio")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
