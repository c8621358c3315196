"""What the conventions for messaging want to know, as attributes of spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.model.properties import TRAN_MSG
from rocketmq_sdk.model.route import split_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.received import ReceivedMessage

Attributes = dict[str, Any]
BASE: Final[Attributes] = {"messaging.system": "rocketmq"}
_MOST: Final = 4096
"""Topics, brokers or queues whose attributes are remembered."""


class Form:
    """What all spans of an operation on a topic have in common; not to be changed."""

    __slots__ = ("attributes", "name")

    def __init__(self, operation: str, kind: str, topic: str | None, client_id: str) -> None:
        self.name = f"{operation} {topic}" if topic else operation
        self.attributes: Attributes = {
            **BASE,
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
        }
        if client_id:
            self.attributes["messaging.client.id"] = client_id
        if topic:
            self.attributes["messaging.destination.name"] = topic


class Forms:
    """The forms of one client or more, made at first use."""

    def __init__(self) -> None:
        self._forms: dict[tuple[str, str | None, str], Form] = {}
        self._places: dict[tuple[str | None, int], Attributes] = {}

    def of(self, operation: str, kind: str, topic: str | None, client_id: str) -> Form:
        """What spans of an operation of a kind have in common."""
        key = operation, topic, client_id
        found = self._forms.get(key)
        if found is None:
            if len(self._forms) >= _MOST:
                self._forms.clear()
            found = self._forms[key] = Form(operation, kind, topic, client_id)
        return found

    def at(self, address: str | None, queue_id: int = -1) -> Attributes:
        """The broker, and the queue, as far as they are known; not to be changed."""
        key = address, queue_id
        found = self._places.get(key)
        if found is None:
            found = {}
            if queue_id >= 0:
                found["messaging.destination.partition.id"] = str(queue_id)
            if address is not None:
                host, port = split_address(address)
                found |= {"server.address": host, "server.port": port}
            if len(self._places) >= _MOST:
                self._places.clear()
            self._places[key] = found
        return found


def add_sent(attributes: Attributes, message: Message) -> None:
    """Add what there is to know of one message that is sent."""
    attributes["messaging.message.body.size"] = len(message.body)
    add_alike(attributes, message)


def add_alike(attributes: Attributes, message: Message) -> None:
    """Add what a message has in common with others of the same properties."""
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = message.keys
    if message.is_plain:
        attributes["messaging.rocketmq.message.type"] = "normal"
        return
    kind = "delay" if message.is_delayed else "normal"
    if message.sharding_key is not None:
        kind = "fifo"
        attributes["messaging.rocketmq.message.group"] = message.sharding_key
    attributes["messaging.rocketmq.message.type"] = kind
    if message.delay_level:
        attributes["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    if message.deliver_at_ms is not None:
        attributes["messaging.rocketmq.message.delivery_timestamp"] = message.deliver_at_ms


def add_received(attributes: Attributes, messages: Sequence[ReceivedMessage]) -> None:
    """Add what there is to know of messages that came."""
    if len(messages) != 1:
        attributes["messaging.batch.message_count"] = len(messages)
        return
    (message,) = messages
    attributes["messaging.message.id"] = message.message_id
    attributes["messaging.message.body.size"] = len(message.body)
    attributes["messaging.destination.partition.id"] = str(message.queue_id)
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = message.keys
    if message.properties.get(TRAN_MSG) == "true":
        attributes["messaging.rocketmq.message.type"] = "transaction"
