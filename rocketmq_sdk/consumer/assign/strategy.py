"""Allocation strategies: pure functions of the queues of a topic and the members.

All members of a group compute the same answer without talking to each other, because
each sorts both lists the same way (queues by topic, broker name and queue id; members
as strings) and runs the same strategy. Names and rules follow
`AllocateMessageQueueStrategy` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.validators import with_methods

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.model.queue import MessageQueue


class AllocateStrategy(Protocol):
    """Decides which queues of a topic belong to one member."""

    @property
    def name(self) -> str:
        """Apache's name of the strategy; the same one for all members of a group."""
        ...

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`; none when it is not among `client_ids`.

        Both sequences are sorted. Raises `ConfigurationError` when an argument is
        empty.
        """
        ...


def check_strategy(name: str, value: object) -> None:
    """Raise `WrongTypeError` unless a value is an allocation strategy."""
    give = "give an allocation strategy, for example rocketmq_sdk.Average()"
    with_methods(name, value, ("allocate",), give)
    if not isinstance(getattr(value, "name", None), str):
        raise WrongTypeError(f"{name} is {value!r:.200}, which has no name; {give}")


def check_arguments(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> bool:
    """Whether the member takes part (`AbstractAllocateMessageQueueStrategy.check`).

    Raises `ConfigurationError` when an argument is empty.
    """
    if not client_id:
        raise ConfigurationError("the client id is empty")
    if not queues:
        raise ConfigurationError("there are no queues to allocate")
    if not client_ids:
        raise ConfigurationError("there are no members to allocate queues to")
    return client_id in client_ids
