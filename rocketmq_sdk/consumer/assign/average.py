"""Two strategies that share queues evenly: in runs, and in turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rocketmq_sdk.consumer.assign.strategy import check_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.model.queue import MessageQueue


class Average:
    """Each member gets one run of neighbouring queues.

    The first members get one more when the queues do not divide evenly. Follows
    `AllocateMessageQueueAveragely` of Apache RocketMQ 5.4.0, the default of its
    clients.
    """

    name: ClassVar[str] = "AVG"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`; none when it is not among `client_ids`.

        Raises `ConfigurationError` when an argument is empty.
        """
        if not check_arguments(client_id, queues, client_ids):
            return []
        index = client_ids.index(client_id)
        size, remainder = divmod(len(queues), len(client_ids))
        start = index * size + min(index, remainder)
        return list(queues[start : start + size + (index < remainder)])


class AverageByCircle:
    """The queues are dealt out one by one, in the order of the members.

    Follows `AllocateMessageQueueAveragelyByCircle` of Apache RocketMQ 5.4.0.
    """

    name: ClassVar[str] = "AVG_BY_CIRCLE"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`; none when it is not among `client_ids`.

        Raises `ConfigurationError` when an argument is empty.
        """
        if not check_arguments(client_id, queues, client_ids):
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])
