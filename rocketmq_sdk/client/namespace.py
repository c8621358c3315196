"""Namespaces: one cluster for several tenants, each with names of its own.

The first kind (`namespace`) changes names: topic `orders` is `shop%orders` at the
brokers, group `billing` is `shop%billing` (`NamespaceUtil` of Apache RocketMQ 5.4.0).
The second kind (`namespace_v2`) leaves names alone; each request names the namespace in
two fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.protocol.command import Command

SEPARATOR: Final = "%"
FIELD_NAMESPACED: Final = "nsd"
FIELD_NAMESPACE: Final = "ns"
_Value = TypeVar("_Value")


@attrs.frozen
class Namespace:
    """Names as users write them, and as brokers know them.

    An empty `name` changes nothing.
    """

    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.name)

    def wrap(self, resource: str) -> str:
        """The broker's name of a topic or group.

        System names, and names that are in the namespace already, stay as they are.
        """
        if not self.name or not resource or is_system_topic(resource) or is_system_group(resource):
            return resource
        prefix, bare = _split(resource)
        return (
            resource
            if bare.startswith(self.name + SEPARATOR)
            else f"{prefix}{self.name}{SEPARATOR}{bare}"
        )

    def unwrap(self, resource: str) -> str:
        """The user's name of a topic or group.

        One of another namespace stays as it is.
        """
        if not self.name:
            return resource
        prefix, bare = _split(resource)
        return prefix + bare.removeprefix(self.name + SEPARATOR)

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue under the user's name of its topic."""
        return (
            MessageQueue(self.unwrap(queue.topic), queue.broker_name, queue.queue_id)
            if self.name
            else queue
        )

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue under the broker's name of its topic."""
        return (
            MessageQueue(self.wrap(queue.topic), queue.broker_name, queue.queue_id)
            if self.name
            else queue
        )

    def wrap_keys(self, table: Mapping[str, _Value]) -> dict[str, _Value]:
        """A table by topic under the brokers' names."""
        return {self.wrap(topic): value for topic, value in table.items()}


class NamespaceFields:
    """Adds the fields of `namespace_v2` to each request; an interceptor."""

    def __init__(self, name: str) -> None:
        self._name = name

    # As interceptors are called.
    def before(self, command: Command, address: str | None) -> None:  # noqa: ARG002
        """Name the namespace, unless the request does it already."""
        command.ext_fields.setdefault(FIELD_NAMESPACED, "true")
        command.ext_fields.setdefault(FIELD_NAMESPACE, self._name)

    def after(self, command: Command, response: Command, address: str | None) -> None:
        """Nothing to do with an answer."""


def _split(resource: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource
