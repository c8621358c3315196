"""`ReceivedMessages` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.consumer.simple.consumer`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.aio.life import Face

if TYPE_CHECKING:
    from typing import Self

    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
    from rocketmq_sdk.consumer.simple.consumer import ReceivedMessages as InnerReceivedMessages


class ReceivedMessages(Face):
    """The messages of a simple consumer, one after another, for one task.

    They are received one at a time. One that waited here behind another would become
    visible again unseen, and be given up after enough of that.
    """

    _inner: InnerReceivedMessages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PoppedMessage:
        return await self._call(self._inner.__anext__)
