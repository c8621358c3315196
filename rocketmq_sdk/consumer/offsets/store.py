"""The interface of stores of consumer offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rocketmq_sdk.model.queue import MessageQueue


class OffsetStore(Protocol):
    """The offsets of one group, or of one member of it."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The committed offset, or None when there is none.

        Raises `RocketMQError` when it cannot be read now.
        """
        ...

    async def commit(self, queue: MessageQueue, offset: int, *, confirmed: bool) -> bool:
        """Commit an offset; returns whether it was sent, or with `confirmed` is kept.

        A failure is logged, not raised.
        """
        ...
