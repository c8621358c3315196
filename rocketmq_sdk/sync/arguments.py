"""Types of arguments that mean something of their own for threads."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_sdk.client.config import NamesrvSource as AnySource
from rocketmq_sdk.consumer.listener import Returned
from rocketmq_sdk.consumer.lite_pull.member import AssignmentChange
from rocketmq_sdk.model.enums import TransactionState
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.producer.transaction import Transaction
from rocketmq_sdk.sync.life import InProcessBroker

NamesrvSource = AnySource | InProcessBroker
"""Where the name servers are.

Addresses separated by `;`, a sequence of addresses, the URL of an address server, or an
in-process broker of this door.
"""
MessageListener = Callable[[ReceivedMessage], Returned]
"""Takes one message."""
BatchListener = Callable[[list[ReceivedMessage]], Returned]
"""Takes a list of messages, for `batch` above 1."""
Listener = MessageListener | BatchListener
"""Takes one message, or with `batch` above 1 a list of messages.

It returns None, or with `auto_commit=False` a `ConsumeOrderlyStatus`.
"""
Checker = Callable[[ReceivedMessage], TransactionState]
"""Says what has become of the local work of a half message."""
LocalWork = Callable[[Transaction], TransactionState | None]
"""The local work of a transaction."""
ChangeListener = Callable[[AssignmentChange], object]
"""Is told when the queues of a consumer change."""
