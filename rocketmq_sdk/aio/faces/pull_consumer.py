"""`PullConsumer` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.consumer.lite_pull.pull_consumer`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.aio.faces.queries import MessageQueries
from rocketmq_sdk.aio.faces.queue_queries import QueueQueries
from rocketmq_sdk.aio.life import Entered, inner_client
from rocketmq_sdk.consumer.lite_pull.pull_consumer import PullConsumer as InnerPullConsumer
from rocketmq_sdk.consumer.outcome import BROKER_CHOOSES
from rocketmq_sdk.doors.face import inner_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from typing import Unpack

    from rocketmq_sdk.aio.arguments import NamesrvSource
    from rocketmq_sdk.aio.faces.client import Client
    from rocketmq_sdk.client.config import ClientOptions
    from rocketmq_sdk.consumer.constructor_arguments import Subscription
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.model.results import PullResult


class PullConsumer(QueueQueries, Entered):
    """Reads queues at offsets that the program chooses.

    ```
    async with PullConsumer("audit", namesrv=...) as consumer:
        for queue in await consumer.message_queues("orders"):
            result = await consumer.pull(queue, await consumer.begin_offset(queue))
    ```

    Nothing is prefetched, shared or committed automatically. Any number of tasks may
    use it. Raises `ConfigurationError` for settings that are not acceptable.
    """

    _inner: InnerPullConsumer

    def __init__(
        self,
        group: str,
        *,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._inner = InnerPullConsumer(
            group, namesrv=inner_of(namesrv), client=inner_client(client), **options
        )

    @property
    def group(self) -> str:
        """The group, as it was given."""
        return self._inner.group

    @property
    def messages(self) -> MessageQueries:
        """Queries for stored messages: by id, key, tag, place and time."""
        return self._adopt(MessageQueries(self._inner.messages))

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: Subscription = None,
        wait: float | timedelta = 0.0,
        timeout: float | timedelta | None = None,
    ) -> PullResult:
        """Pull once.

        `wait` is how long the broker may hold the pull while there is nothing to read;
        the answer must come within another `timeout` (10 s). The result has what was
        found and where to pull next; `OFFSET_ILLEGAL` means that the offset is outside
        of the queue. Follows the broker's advice to read from a replica. Raises
        `RouteError`, `ConnectError`, `RequestTimeoutError`, the broker's errors, and
        `RemoteProtocolError` when a message cannot be decoded.
        """
        return await self._call(
            self._inner.pull,
            queue,
            offset,
            max_messages=max_messages,
            expression=expression,
            wait=wait,
            timeout=timeout,
        )

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the group's offset in a queue, that of the next message to consume.

        Returns when the broker has confirmed it.
        """
        return await self._call(self._inner.commit, queue, offset)

    async def send_back(
        self,
        messages: ReceivedMessage | Iterable[ReceivedMessage],
        *,
        delay_level: int = BROKER_CHOOSES,
    ) -> None:
        """Have messages delivered again later to the group's push consumers (36).

        With `delay_level` -1 they go to the dead letter topic. All brokers are asked at
        the same time. Raises the error of one that failed; it has taken its messages
        before that one, and the other brokers have taken theirs.
        """
        return await self._call(self._inner.send_back, messages, delay_level=delay_level)
