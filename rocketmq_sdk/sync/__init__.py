"""The door for threads: the same classes as in `rocketmq_sdk`, without async.

`from rocketmq_sdk.sync import Producer` is used with `with` and called from any thread:
one implementation, which runs in a thread of its own as long as something is open. All
other names are those of `rocketmq_sdk` itself.

Written by `python -m tools.doors`. Importing it loads nothing else; each name is loaded
when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rocketmq_sdk.admin.stored_copy import StoredCopy
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.client.config import ClientConfig
    from rocketmq_sdk.consumer.assign.average import Average, AverageByCircle
    from rocketmq_sdk.consumer.assign.by_config import ByConfig
    from rocketmq_sdk.consumer.assign.consistent_hash import ConsistentHash
    from rocketmq_sdk.consumer.assign.machine_room import MachineRoom, MachineRoomNearby
    from rocketmq_sdk.consumer.config import LitePullConfig, PushConfig, SimpleConfig
    from rocketmq_sdk.consumer.health import ConsumerHealth
    from rocketmq_sdk.consumer.lite_pull.member import AssignmentChange
    from rocketmq_sdk.consumer.outcome import ConsumeLater, ConsumeOrderlyStatus, RejectMessage
    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage, Receipt
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
    from rocketmq_sdk.producer.health import ProducerHealth
    from rocketmq_sdk.producer.queue_selector import (
        RoundRobin,
        select_by_hash,
        select_by_key,
        select_by_random,
    )
    from rocketmq_sdk.producer.request_reply import reply_message
    from rocketmq_sdk.producer.transaction import Transaction, TransactionResult
    from rocketmq_sdk.protocol.flags import HeaderEncoding
    from rocketmq_sdk.remoting.credentials import Credentials, Signing
    from rocketmq_sdk.sync.faces.admin import Admin
    from rocketmq_sdk.sync.faces.client import Client
    from rocketmq_sdk.sync.faces.embedded_broker import EmbeddedBroker
    from rocketmq_sdk.sync.faces.lite_pull_consumer import LitePullConsumer
    from rocketmq_sdk.sync.faces.producer import Producer
    from rocketmq_sdk.sync.faces.pull_consumer import PullConsumer
    from rocketmq_sdk.sync.faces.push_consumer import PushConsumer
    from rocketmq_sdk.sync.faces.simple_consumer import SimpleConsumer
    from rocketmq_sdk.sync.faces.transaction_producer import TransactionProducer
    from rocketmq_sdk.sync.futures import AccumulatedHandle, SendHandle

_HOME_OF: Final[dict[str, str]] = {
    "AccumulatedHandle": "rocketmq_sdk.sync.futures",
    "Admin": "rocketmq_sdk.sync.faces.admin",
    "AssignmentChange": "rocketmq_sdk.consumer.lite_pull.member",
    "AutoBatch": "rocketmq_sdk.producer.config",
    "Average": "rocketmq_sdk.consumer.assign.average",
    "AverageByCircle": "rocketmq_sdk.consumer.assign.average",
    "BoundaryType": "rocketmq_sdk.model.enums",
    "BrokerConfig": "rocketmq_sdk.broker_embedded.settings.config",
    "BrokerError": "rocketmq_sdk.errors",
    "BusyError": "rocketmq_sdk.errors",
    "ByConfig": "rocketmq_sdk.consumer.assign.by_config",
    "Client": "rocketmq_sdk.sync.faces.client",
    "ClientConfig": "rocketmq_sdk.client.config",
    "ClosedError": "rocketmq_sdk.errors",
    "CodecMissingError": "rocketmq_sdk.errors",
    "ConfigurationError": "rocketmq_sdk.errors",
    "ConnectError": "rocketmq_sdk.errors",
    "ConsistentHash": "rocketmq_sdk.consumer.assign.consistent_hash",
    "ConsumeFrom": "rocketmq_sdk.model.enums",
    "ConsumeLater": "rocketmq_sdk.consumer.outcome",
    "ConsumeOrderlyStatus": "rocketmq_sdk.consumer.outcome",
    "ConsumerHealth": "rocketmq_sdk.consumer.health",
    "ConsumerStatistics": "rocketmq_sdk.consumer.statistics",
    "Credentials": "rocketmq_sdk.remoting.credentials",
    "EmbeddedBroker": "rocketmq_sdk.sync.faces.embedded_broker",
    "ExpressionType": "rocketmq_sdk.model.enums",
    "FieldError": "rocketmq_sdk.errors",
    "FilterSyntaxError": "rocketmq_sdk.errors",
    "GroupNotFoundError": "rocketmq_sdk.errors",
    "HeaderEncoding": "rocketmq_sdk.protocol.flags",
    "InvalidParameterError": "rocketmq_sdk.errors",
    "LitePullConfig": "rocketmq_sdk.consumer.config",
    "LitePullConsumer": "rocketmq_sdk.sync.faces.lite_pull_consumer",
    "LocalProtocolError": "rocketmq_sdk.errors",
    "MachineRoom": "rocketmq_sdk.consumer.assign.machine_room",
    "MachineRoomNearby": "rocketmq_sdk.consumer.assign.machine_room",
    "Message": "rocketmq_sdk.model.message",
    "MessageIllegalError": "rocketmq_sdk.errors",
    "MessageModel": "rocketmq_sdk.model.enums",
    "MessageQueue": "rocketmq_sdk.model.queue",
    "NotFoundError": "rocketmq_sdk.errors",
    "NotPermittedError": "rocketmq_sdk.errors",
    "NotSupportedError": "rocketmq_sdk.errors",
    "PopStatistics": "rocketmq_sdk.consumer.statistics",
    "PoppedMessage": "rocketmq_sdk.consumer.pop.receipt",
    "Producer": "rocketmq_sdk.sync.faces.producer",
    "ProducerConfig": "rocketmq_sdk.producer.config",
    "ProducerHealth": "rocketmq_sdk.producer.health",
    "ProtocolError": "rocketmq_sdk.errors",
    "PullConsumer": "rocketmq_sdk.sync.faces.pull_consumer",
    "PullResult": "rocketmq_sdk.model.results",
    "PullStatus": "rocketmq_sdk.model.enums",
    "PushConfig": "rocketmq_sdk.consumer.config",
    "PushConsumer": "rocketmq_sdk.sync.faces.push_consumer",
    "QueueStatistics": "rocketmq_sdk.consumer.statistics",
    "Receipt": "rocketmq_sdk.consumer.pop.receipt",
    "ReceiptHandleError": "rocketmq_sdk.errors",
    "ReceivedMessage": "rocketmq_sdk.model.received",
    "RejectMessage": "rocketmq_sdk.consumer.outcome",
    "RemoteProtocolError": "rocketmq_sdk.errors",
    "RequestTimeoutError": "rocketmq_sdk.errors",
    "RocketMQError": "rocketmq_sdk.errors",
    "RoundRobin": "rocketmq_sdk.producer.queue_selector",
    "RouteError": "rocketmq_sdk.errors",
    "SendHandle": "rocketmq_sdk.sync.futures",
    "SendResult": "rocketmq_sdk.model.results",
    "SendStatus": "rocketmq_sdk.model.enums",
    "SendTimeout": "rocketmq_sdk.errors",
    "ServiceNotAvailableError": "rocketmq_sdk.errors",
    "Signing": "rocketmq_sdk.remoting.credentials",
    "SimpleConfig": "rocketmq_sdk.consumer.config",
    "SimpleConsumer": "rocketmq_sdk.sync.faces.simple_consumer",
    "SimpleStatistics": "rocketmq_sdk.consumer.statistics",
    "StoreConfig": "rocketmq_sdk.broker_embedded.store.config",
    "StoreCorruptError": "rocketmq_sdk.errors",
    "StoreError": "rocketmq_sdk.errors",
    "StoreFullError": "rocketmq_sdk.errors",
    "StoreLockedError": "rocketmq_sdk.errors",
    "StoredCopy": "rocketmq_sdk.admin.stored_copy",
    "SubscriptionError": "rocketmq_sdk.errors",
    "TooManyRequestsError": "rocketmq_sdk.errors",
    "TopicNotFoundError": "rocketmq_sdk.errors",
    "Transaction": "rocketmq_sdk.producer.transaction",
    "TransactionProducer": "rocketmq_sdk.sync.faces.transaction_producer",
    "TransactionResult": "rocketmq_sdk.producer.transaction",
    "TransactionState": "rocketmq_sdk.model.enums",
    "WrongRunError": "rocketmq_sdk.errors",
    "WrongTypeError": "rocketmq_sdk.errors",
    "reply_message": "rocketmq_sdk.producer.request_reply",
    "select_by_hash": "rocketmq_sdk.producer.queue_selector",
    "select_by_key": "rocketmq_sdk.producer.queue_selector",
    "select_by_random": "rocketmq_sdk.producer.queue_selector",
}

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
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
