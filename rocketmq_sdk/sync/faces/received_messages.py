"""`ReceivedMessages` for threads.

Written by `python -m tools.doors` from `rocketmq_sdk.consumer.simple.consumer`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.sync.life import Face, next_of

if TYPE_CHECKING:
    from typing import Self

    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
    from rocketmq_sdk.consumer.simple.consumer import ReceivedMessages as InnerReceivedMessages


class ReceivedMessages(Face):
    """The messages of a simple consumer, one after another, for one thread.

    They are received one at a time. One that waited here behind another would become
    visible again unseen, and be given up after enough of that.
    """

    _inner: InnerReceivedMessages

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> PoppedMessage:
        return next_of(self, self._inner)
