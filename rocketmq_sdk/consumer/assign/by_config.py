"""Queues that the user lists for one member."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class ByConfig:
    """This member owns exactly the listed queues, whoever else is in the group.

    Follows `AllocateMessageQueueByConfig` of Apache RocketMQ 5.4.0. A queue that no
    member lists is not consumed, so every queue must be listed by one member, including
    those of the group's retry topic (`%RETRY%` and the group). Raises
    `ConfigurationError` for a value that is not a queue.
    """

    name: ClassVar[str] = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = tuple(queues)
        for queue in self.queues:
            if not isinstance(queue, MessageQueue):
                raise ConfigurationError(f"{queue!r} is no MessageQueue")

    def allocate(
        self,
        client_id: str,  # noqa: ARG002 - as every strategy
        queues: Sequence[MessageQueue],  # noqa: ARG002 - as every strategy
        client_ids: Sequence[str],  # noqa: ARG002 - as every strategy
    ) -> list[MessageQueue]:
        """The listed queues of all topics, as Apache's does.

        The consumer takes those that the topic has.
        """
        return list(self.queues)
