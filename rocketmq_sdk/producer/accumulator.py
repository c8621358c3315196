"""Small messages joined into batches on their way out.

Follows `ProduceAccumulator` of Apache RocketMQ 5.4.0.

Messages of one topic, tag, sharding key and `wait_store_ok` gather until they are
`max_bytes` together or the first of them has waited for `linger`; then they go as one
batch, and each handle tells of its own message. Nothing is made for a message but its
handle and its bytes; one task looks after the lingering. What a batch cannot carry goes
alone: delayed messages, those with a priority or for a retry topic, replies, and bodies
that are to be compressed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.producer.config import AutoBatch
from rocketmq_sdk.producer.gathered import AccumulatedHandle, BatchKey, GatheredBatch
from rocketmq_sdk.producer.handle import BatchHandle
from rocketmq_sdk.producer.outgoing import Forms

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.producer.handle import SendHandle
    from rocketmq_sdk.producer.targets import TopicTargets
    from rocketmq_sdk.producer.under_way import UnderWay
    from rocketmq_sdk.protocol.message_id import UniqueIdGenerator

SEND_BATCH: Final = 320
_ORDINARY: Final = 310
_PLAIN: Final = (True, None)
"""The end of the key of plain messages."""


class Accumulator:
    """The batches of one producer that are being gathered.

    A batch is admitted to `under_way` with its first message and grows there. `send`
    takes the handle of a full one; it may raise. Where each message is `looked_at`
    before it is taken, none has the short way, `latest`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        ids: UniqueIdGenerator,
        more: str,
        send: Callable[[SendHandle], object],
        under_way: UnderWay,
        *,
        looked_at: bool = False,
    ) -> None:
        settings = config.auto_batch or AutoBatch()
        self.max_bytes = min(settings.max_bytes, config.max_message_size)
        self._linger = settings.linger
        self.alone_from = min(config.compress_over, self.max_bytes)
        self._timeout = config.send_timeout
        self._attempts = config.most_attempts
        self.ids = ids
        self.forms = Forms(ids.digits, more)
        self._more = more
        self._send = send
        self.under_way = under_way
        self._open: dict[BatchKey, GatheredBatch] = {}
        self.latest: GatheredBatch | None = None
        """The batch of plain messages that was begun last.

        `GatheredBatch.take` is a message's short way into it.
        """
        self._has_short_way = not looked_at
        self._lingering: deque[GatheredBatch] = deque()
        self._begun = trio.Event()

    def takes(self, message: Message) -> bool:
        """Whether a message can go in a batch."""
        return (
            0 < len(message._body) < self.alone_from
            and (message._is_plain or not (message.is_delayed or message.priority is not None))
            and message.send_code == _ORDINARY
            and message._topic[0] != "%"
        )

    @trio.lowlevel.enable_ki_protection
    def add(
        self,
        topic: TopicTargets,
        message: Message,
        added: Callable[[SendHandle], object] | None = None,
    ) -> AccumulatedHandle:
        """Take a message that `takes` accepts.

        `added` is told the handle of its batch, which may leave at once.

        Raises `ConfigurationError` when its properties are too long.
        """
        form = self.forms[message._text or message.property_text()]
        body = message._body
        total = form.overhead + len(body)
        batch = self.latest
        if (
            batch is not None
            and batch.topic is topic
            and not batch.gone
            and message._is_plain
            and batch.key[1] == message._tags
        ):
            key = batch.key
        else:
            key = (
                (topic.topic, message._tags, True, None)
                if message._is_plain
                else (topic.topic, message._tags, message.wait_store_ok, message.sharding_key)
            )
            batch = self._open.get(key)
        if batch is not None and batch.size + total > self.max_bytes:
            self.dispatch(batch)
            batch = None
        if batch is None:
            batch = self._begin(key, topic, message)
        bodies = batch.bodies
        handle = AccumulatedHandle(batch, len(bodies), message)
        if not message._is_plain and message.flag:
            batch.flags[len(bodies)] = message.flag
        bodies.append(body)
        batch.forms.append(form)
        batch.size += total
        under_way = self.under_way
        under_way.count += 1
        under_way.bytes += total
        if added is not None:
            added(batch.handle)
        if batch.size >= self.max_bytes:
            self.dispatch(batch)
        return handle

    @trio.lowlevel.enable_ki_protection
    def _begin(self, key: BatchKey, topic: TopicTargets, message: Message) -> GatheredBatch:
        self.under_way.check_run()
        now = trio.current_time()
        handle = BatchHandle(
            topic,
            SEND_BATCH,
            message,
            "",
            b"",
            0,
            now,
            now + self._linger + self._timeout,
            self._attempts,
            self.under_way,
        )
        handle.count = 0
        self.under_way.admit(handle)
        batch = GatheredBatch(key, topic, handle, now + self._linger, self)
        handle.ids_so_far = batch.message_ids
        self._open[key] = batch
        if self._has_short_way and key[2:] == _PLAIN:
            self.latest = batch
        self._lingering.append(batch)
        self._begun.set()
        return batch

    @trio.lowlevel.enable_ki_protection
    def dispatch(self, batch: GatheredBatch) -> None:
        """Send a batch; an error becomes that of its messages."""
        if self._open.get(batch.key) is batch:
            del self._open[batch.key]
        if batch.gone:
            return
        batch.leave()
        handle, now = batch.handle, trio.current_time()
        _topic, tags, wait, _sharding_key = batch.key
        handle.body = batch.body()
        handle.tail = (
            f"UNIQ_KEY\x01{self.ids.next_id()}\x02WAIT\x01{'true' if wait else 'false'}\x02"
            f"{self._more}"
        )
        if tags:
            handle.tail += f"TAGS\x01{tags}\x02"
        handle.started, handle.deadline = now, now + self._timeout
        try:
            self._send(handle)
        except Exception as error:  # noqa: BLE001
            # The messages were taken; whoever awaits them is told.
            self.under_way.end(handle, None, error)
        except BaseException as error:
            self.under_way.break_off(handle, error)
            raise

    def withdraw(self, batch: GatheredBatch, index: int) -> None:
        """Take a message back, unless its batch has left."""
        if batch.gone or index in batch.withdrawn:
            return
        batch.withdrawn.add(index)
        size = batch.forms[index].overhead + len(batch.bodies[index])
        batch.size -= size
        self.under_way.shrink(size)
        if len(batch.withdrawn) == len(batch.bodies):
            batch.leave()
            if self._open.get(batch.key) is batch:
                del self._open[batch.key]
            batch.handle.observed = True
            self.under_way.abandoned(batch.handle)

    def dispatch_all(self) -> None:
        """Send all batches now."""
        for batch in list(self._open.values()):
            self.dispatch(batch)

    def give_up(self) -> None:
        """Send nothing more; `UnderWay.give_up` ends what was not sent."""
        for batch in list(self._open.values()):
            batch.leave()
        self._open.clear()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Send what has lingered for long enough, until cancelled."""
        lingering = self._lingering
        while True:
            while lingering and lingering[0].gone:
                lingering.popleft()
            if not lingering:
                self._begun = trio.Event()
                await self._begun.wait()
            elif trio.current_time() >= lingering[0].deadline:
                self.dispatch(lingering.popleft())
            else:
                await trio.sleep_until(lingering[0].deadline)
