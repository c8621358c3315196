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
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.errors import ClosedError, SendTimeout
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.producer.config import AutoBatch
from rocketmq_sdk.producer.handle import SendHandle
from rocketmq_sdk.producer.outgoing import Form, Forms, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.producer.targets import TopicTargets
    from rocketmq_sdk.producer.under_way import UnderWay
    from rocketmq_sdk.protocol.message_id import UniqueIdGenerator

SEND_BATCH: Final = 320
_ORDINARY: Final = 310


_Key = tuple[str, str | None, bool, str | None]
"""Topic, tag, whether to wait for the store, and sharding key."""
_PLAIN: Final = (True, None)
"""The end of the key of plain messages."""
_new: Final = object.__new__


class _Batch:
    """Messages that go together, and the handle of the request that will carry them."""

    __slots__ = (
        "bodies",
        "deadline",
        "flags",
        "forms",
        "gone",
        "handle",
        "ids",
        "key",
        "offset_ids",
        "owner",
        "size",
        "topic",
        "whole",
        "withdrawn",
    )

    def __init__(
        self,
        key: _Key,
        topic: TopicTargets,
        handle: SendHandle,
        deadline: float,
        owner: Accumulator,
    ) -> None:
        self.owner = owner
        self.key = key
        self.topic = topic
        self.handle = handle
        self.deadline = deadline
        self.bodies: list[bytes] = []
        self.forms: list[Form] = []
        """What the batch will hold of each message beside its body."""
        self.flags: dict[int, int] = {}
        """By their places, the flags of messages that have one."""
        self.ids: list[str] = []
        """The unique ids of the messages that have one.

        All have one once the batch was sent; before that only those whose id somebody
        asked for, and those in front of them.
        """
        self.size = 0
        self.gone = False
        self.withdrawn: set[int] = set()
        """Places of messages that were taken back before the batch left."""
        self.whole: SendResult | None = None
        """The result of the batch, once each of its messages has one."""
        self.offset_ids: list[str] = []
        """By the messages that were sent; empty where the broker gave too few."""

    @trio.lowlevel.enable_ki_protection
    def name(self) -> None:
        """Give unique ids to the messages that have none."""
        self.ids += self.owner.ids.next_ids(len(self.bodies) - len(self.ids))

    def leave(self) -> None:
        """Take no more messages; the handle counts those that it has."""
        self.name()
        self.gone = True
        self.handle.count = len(self.bodies) - len(self.withdrawn)
        self.handle.room = self.size

    def body(self) -> tuple[bytes, list[str]]:
        """The body of the request and the unique ids in it; may be asked for once."""
        bodies, forms, ids = self.bodies, self.forms, self.ids
        flags = [0] * len(bodies)
        for index, flag in self.flags.items():
            flags[index] = flag
        if self.withdrawn:
            kept = [index for index in range(len(bodies)) if index not in self.withdrawn]
            bodies, forms = [bodies[index] for index in kept], [forms[index] for index in kept]
            flags, ids = [flags[index] for index in kept], [ids[index] for index in kept]
        self.bodies, self.forms = [], []
        return encode_batch(flags, bodies, forms, ids), ids

    def result(self, index: int) -> SendResult:
        """What the broker said of one of the messages.

        Raises the error of the batch.
        """
        whole = self.whole or self._finished(index)
        # What `SendResult.__init__` does, without another call.
        result = _new(SendResult)
        result.status = whole.status
        result.message_id = result.transaction_id = self.ids[index]
        result.recall_handle = None
        result.queue = whole.queue
        result.region_id = whole.region_id
        result.trace_on = whole.trace_on
        if self.withdrawn:
            index -= sum(1 for other in self.withdrawn if other < index)
        ids = self.offset_ids
        result.offset_message_id = ids[index] if ids else whole.offset_message_id
        result.queue_offset = whole.queue_offset + index
        return result

    def _finished(self, index: int) -> SendResult:
        """The result of the batch if it has one of the message; raises else."""
        if index in self.withdrawn:
            raise ClosedError("the message was given up by its sender")
        whole = self.handle.outcome()
        if not self.offset_ids:
            offset_ids = whole.offset_message_id.split(",")
            if len(offset_ids) == len(self.ids) - len(self.withdrawn):
                self.offset_ids = offset_ids
        if not self.withdrawn:
            self.whole = whole  # from now on nobody need ask
        return whole


class AccumulatedHandle:
    """One message among those of a batch.

    Await it (or `wait()`) for its `SendResult`, as a `SendHandle`; cancelling the
    waiter changes nothing.
    """

    __slots__ = ("_batch", "_index", "message")

    def __init__(self, batch: _Batch, index: int, message: Message) -> None:
        self._batch = batch
        self._index = index
        self.message = message

    def __await__(self) -> Generator[Any, Any, SendResult]:
        return self.wait().__await__()

    @property
    def done(self) -> bool:
        """Whether it is finished."""
        return self._batch.handle.done

    @property
    def batch_handle(self) -> SendHandle:
        """The handle of its batch."""
        return self._batch.handle

    @property
    def message_id(self) -> str:
        """The unique id of the message."""
        batch = self._batch
        if self._index >= len(batch.ids):
            batch.name()
        return batch.ids[self._index]

    async def wait(self) -> SendResult:
        """Wait for the result.

        Raises what `Producer.send` raises; the error is that of the whole batch.
        """
        await self._batch.handle.wait()
        return self._batch.result(self._index)

    async def wait_or_abandon(self) -> SendResult:
        """As `wait`, for the only waiter; cancelling it takes the message back.

        It is not sent then, unless its batch has left.
        """
        try:
            return await self.wait()
        except trio.Cancelled:
            self.abandon()
            raise

    async def wait_until(self, deadline: float) -> SendResult:
        """As `wait_or_abandon`, at most until a moment of trio's clock.

        Raises `SendTimeout` then.
        """
        with trio.move_on_at(deadline):
            return await self.wait_or_abandon()
        handle = self._batch.handle
        taken_back = self._index in self._batch.withdrawn
        if handle.done and not taken_back:
            return self.outcome()
        unknown = not taken_back  # its batch goes on, and may be stored after all
        raise SendTimeout(
            f"the message {self.message_id} to topic {self.message.topic!r} used up its time; "
            f"{'it may be stored all the same' if unknown else 'it is not stored'}",
            outcome_unknown=unknown,
        )

    def call_when_done(self, callback: Callable[[], None]) -> None:
        """As `SendHandle.call_when_done`."""
        self._batch.handle.call_when_done(callback)

    def do_not_call(self, callback: Callable[[], None]) -> None:
        """Take a callback back."""
        self._batch.handle.do_not_call(callback)

    def socket_wait(self) -> None:
        """As `SendHandle.socket_wait`: the batch has not left yet."""

    def mark(self, *, seen: bool) -> None:
        """As `SendHandle.mark`, for the whole batch."""
        self._batch.handle.observed = seen

    def abandon(self) -> None:
        """Take the message back; it is not sent then, unless its batch has left."""
        self._batch.owner.withdraw(self._batch, self._index)

    async def settled(self) -> None:
        """Wait until the message is finished, however."""
        await self._batch.handle.settled()

    def outcome(self) -> SendResult:
        """The result of a finished message, or its error raised."""
        return self._batch.result(self._index)

    def __repr__(self) -> str:
        return f"<AccumulatedHandle {self.message_id} in {self._batch.handle!r}>"


class Accumulator:
    """The batches of one producer that are being gathered.

    A batch is admitted to `under_way` with its first message and grows there. `send`
    takes the handle of a full one; it may raise.
    """

    def __init__(
        self,
        config: ProducerConfig,
        ids: UniqueIdGenerator,
        more: str,
        send: Callable[[SendHandle], object],
        under_way: UnderWay,
    ) -> None:
        settings = config.auto_batch or AutoBatch()
        self._max_bytes = min(settings.max_bytes, config.max_message_size)
        self._linger = settings.linger
        self._alone_from = min(config.compress_over, self._max_bytes)
        self._timeout = config.send_timeout
        self._attempts = config.most_attempts
        self.ids = ids
        self._forms = Forms(ids.digits, more)
        self._more = more
        self._send = send
        self._under_way = under_way
        self._open: dict[_Key, _Batch] = {}
        self._latest: _Batch | None = None
        """The batch of plain messages that was begun last."""
        self._lingering: deque[_Batch] = deque()
        self._begun = trio.Event()

    def takes(self, message: Message) -> bool:
        """Whether a message can go in a batch."""
        return (
            0 < len(message._body) < self._alone_from
            and (message._is_plain or not (message.is_delayed or message.priority is not None))
            and message.send_code == _ORDINARY
            and message._topic[0] != "%"
        )

    @trio.lowlevel.enable_ki_protection
    def add_to_latest(self, message: Message) -> AccumulatedHandle | None:
        """Put a plain message into the batch of such that was begun last.

        None where that is not all there is to do: then it is for `takes` and `add`.
        """
        batch, body = self._latest, message._body
        if (
            batch is None
            or batch.gone
            or type(message) is not Message
            or not message._is_plain
            or message._topic != batch.handle.message._topic
            or message._tags != batch.key[1]
            or not 0 < len(body) < self._alone_from
        ):
            return None
        form = self._forms[message._text or message.property_text()]
        total = form.overhead + len(body)
        size = batch.size + total
        if size > self._max_bytes or not self._under_way.join(total):
            return None
        bodies = batch.bodies
        # What `__init__` does, without another call.
        handle = _new(AccumulatedHandle)
        handle._batch = batch
        handle._index = len(bodies)
        handle.message = message
        bodies.append(body)
        batch.forms.append(form)
        batch.size = size
        if size == self._max_bytes:
            self._dispatch(batch)
        return handle

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
        form = self._forms[message._text or message.property_text()]
        body = message._body
        total = form.overhead + len(body)
        batch = self._latest
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
        if batch is not None and batch.size + total > self._max_bytes:
            self._dispatch(batch)
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
        under_way = self._under_way
        under_way.count += 1
        under_way.bytes += total
        if added is not None:
            added(batch.handle)
        if batch.size >= self._max_bytes:
            self._dispatch(batch)
        return handle

    @trio.lowlevel.enable_ki_protection
    def _begin(self, key: _Key, topic: TopicTargets, message: Message) -> _Batch:
        self._under_way.check_run()
        now = trio.current_time()
        handle = SendHandle(
            topic,
            SEND_BATCH,
            message,
            "",
            b"",
            0,
            now,
            now + self._linger + self._timeout,
            self._attempts,
            self._under_way,
        )
        handle.count = 0
        self._under_way.admit(handle)
        batch = self._open[key] = _Batch(key, topic, handle, now + self._linger, self)
        if key[2:] == _PLAIN:
            self._latest = batch
        self._lingering.append(batch)
        self._begun.set()
        return batch

    @trio.lowlevel.enable_ki_protection
    def _dispatch(self, batch: _Batch) -> None:
        """Send a batch; an error becomes that of its messages."""
        if self._open.get(batch.key) is batch:
            del self._open[batch.key]
        if batch.gone:
            return
        batch.leave()
        handle, now = batch.handle, trio.current_time()
        _topic, tags, wait, _sharding_key = batch.key
        handle.body, ids = batch.body()
        handle.name(",".join(ids))
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
            self._under_way.end(handle, None, error)
        except BaseException as error:
            self._under_way.break_off(handle, error)
            raise

    def withdraw(self, batch: _Batch, index: int) -> None:
        """Take a message back, unless its batch has left."""
        if batch.gone or index in batch.withdrawn:
            return
        batch.withdrawn.add(index)
        size = batch.forms[index].overhead + len(batch.bodies[index])
        batch.size -= size
        self._under_way.shrink(size)
        if len(batch.withdrawn) == len(batch.bodies):
            batch.leave()
            if self._open.get(batch.key) is batch:
                del self._open[batch.key]
            batch.handle.observed = True
            self._under_way.abandoned(batch.handle)

    def dispatch_all(self) -> None:
        """Send all batches now."""
        for batch in list(self._open.values()):
            self._dispatch(batch)

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
                self._dispatch(lingering.popleft())
            else:
                await trio.sleep_until(lingering[0].deadline)
