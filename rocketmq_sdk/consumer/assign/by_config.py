"""Queues that the user names for one member."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.queue import MessageQueue


class ByConfig:
    """This member owns exactly the queues that it was given, whoever else is in the group.

    Follows `AllocateMessageQueueByConfig` of Apache RocketMQ 5.4.0. Nobody consumes a queue that nobody names, so every queue must be named by one
    member, those of the group's retry topic (`%RETRY%` and the group) too. Raises `ConfigurationError` for what is no queue.
    """

    name: ClassVar[str] = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = tuple(queues)
        for queue in self.queues:
            if not isinstance(queue, MessageQueue):
                raise ConfigurationError(f"{queue!r} is no MessageQueue")

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:  # noqa: ARG002 - as every strategy
        """The queues that were given, of whatever topic, as Apache's does; the consumer takes those of them that the topic has."""
        return list(self.queues)
