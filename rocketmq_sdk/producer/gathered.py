"""A batch that gathers, and the handles of the messages in it."""

from __future__ import annotations

from itertools import compress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from rocketmq_sdk.errors import ClosedError, SendTimeout
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.producer.outgoing import Form, Forms, encode_batch
from rocketmq_sdk.protocol.message_id import IdRange, ids_of, joined_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rocketmq_sdk.producer.handle import BatchHandle, SendHandle
    from rocketmq_sdk.producer.targets import TopicTargets
    from rocketmq_sdk.producer.under_way import UnderWay
    from rocketmq_sdk.protocol.message_id import UniqueIdGenerator

BatchKey = tuple[str, str | None, bool, str | None]
"""Topic, tag, whether to wait for the store, and sharding key."""


class BatchOwner(Protocol):
    """Who gathers batches and sends them."""

    @property
    def ids(self) -> UniqueIdGenerator:
        """What makes the unique ids of messages."""
        ...

    @property
    def forms(self) -> Forms:
        """What messages with the same properties have in common."""
        ...

    @property
    def max_bytes(self) -> int:
        """A batch that holds so many bytes leaves."""
        ...

    @property
    def alone_from(self) -> int:
        """Bodies of so many bytes go alone."""
        ...

    @property
    def under_way(self) -> UnderWay:
        """Where messages are counted."""
        ...

    def dispatch(self, batch: GatheredBatch) -> None:
        """Send a batch."""
        ...

    def withdraw(self, batch: GatheredBatch, index: int) -> None:
        """Take a message back, unless its batch has left."""
        ...


class GatheredBatch:
    """Messages that go together, and the handle of the request that will carry them."""

    __slots__ = (
        "_alone_from",
        "_forms",
        "_max_bytes",
        "_run_thread",
        "_tags",
        "_topic",
        "_under_way",
        "_written",
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
        "ranges",
        "size",
        "topic",
        "whole",
        "withdrawn",
    )

    def __init__(
        self,
        key: BatchKey,
        topic: TopicTargets,
        handle: BatchHandle,
        deadline: float,
        owner: BatchOwner,
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
        self.ranges: list[IdRange] = []
        """The unique ids of the messages that have one.

        All have one once the batch was sent; before that only those whose id somebody
        asked for, and those in front of them.
        """
        self.ids: list[str] = []
        """The ids as texts, those that were there when somebody last asked for one."""
        self._written = (0, 0)
        """Of how many ranges the ids are written, and how many ids these are."""
        self.size = 0
        self.gone = False
        self.withdrawn: set[int] = set()
        """Places of messages that were taken back before the batch left."""
        self.whole: SendResult | None = None
        """The result of the batch, once each of its messages has one."""
        self.offset_ids: list[str] = []
        """By the messages that were sent; empty where the broker gave too few."""
        self._run_thread = get_ident()
        self._topic, self._tags = handle.message._topic, key[1]
        self._forms, self._under_way = owner.forms, owner.under_way
        self._max_bytes, self._alone_from = owner.max_bytes, owner.alone_from

    def take(self, message: object) -> AccumulatedHandle | None:
        """Take a message, if it is plain and that is all there is to do.

        None where the slow way has to see to it. Whoever calls it is protected from
        interrupts.
        """
        if type(message) is not Message or not message._is_plain or self.gone:
            return None
        body = message._body
        if (
            message._topic != self._topic
            or message._tags != self._tags
            or not 0 < len(body) < self._alone_from
            or get_ident() != self._run_thread
        ):
            return None
        form = self._forms[message._text or message.property_text()]
        total = form.overhead + len(body)
        size = self.size + total
        if size > self._max_bytes or not self._under_way.join(total):
            return None
        bodies = self.bodies
        handle = AccumulatedHandle(self, len(bodies), message)
        bodies.append(body)
        self.forms.append(form)
        self.size = size
        if size == self._max_bytes:
            self.owner.dispatch(self)
        return handle

    def _name(self) -> None:
        """Give unique ids to the messages that have none."""
        written, named = self._written
        named += sum([end - low for _stem, low, end in self.ranges[written:]])
        self.ranges += self.owner.ids.next_ranges(len(self.bodies) - named)

    def all_ids(self) -> list[str]:
        """The unique ids of all messages so far."""
        if not self.gone:
            self._name()
        written, known = self._written
        if written < len(self.ranges):
            # Whoever comes here again after an interrupt writes the same.
            self.ids[known:] = ids_of(self.ranges[written:])
            self._written = len(self.ranges), len(self.ids)
        return self.ids

    def leave(self) -> None:
        """Take no more messages; the handle counts those that it has."""
        self._name()
        self.gone = True
        self.handle.count = len(self.bodies) - len(self.withdrawn)
        self.handle.room = self.size
        self.handle.left(self.ranges, self.withdrawn)

    def body(self) -> bytes:
        """The body of the request; may be asked for once."""
        bodies, forms = self.bodies, self.forms
        flags = [0] * len(bodies)
        for index, flag in self.flags.items():
            flags[index] = flag
        ids = self.ranges
        if self.withdrawn:
            kept = [index not in self.withdrawn for index in range(len(bodies))]
            bodies, forms = list(compress(bodies, kept)), list(compress(forms, kept))
            flags = list(compress(flags, kept))
            single = [(stem, at, at + 1) for stem, low, end in ids for at in range(low, end)]
            ids = list(compress(single, kept))
        self.bodies, self.forms = [], []
        return encode_batch(flags, bodies, forms, ids)

    def message_ids(self) -> str:
        """The unique ids of the messages but those taken back, with commas."""
        if not self.gone:
            self._name()
        return joined_ids(self.ranges, self.withdrawn)

    def result(self, index: int) -> SendResult:
        """What the broker said of one of the messages.

        Raises the error of the batch.
        """
        whole = self.whole or self._finished(index)
        place, message_id = index, self.ids[index]
        if self.withdrawn:
            place -= sum(1 for other in self.withdrawn if other < index)
        ids = self.offset_ids
        # What `SendResult.__init__` does, without another call.
        result = _new_result(SendResult)
        result.status = whole.status
        result.message_id = result.transaction_id = message_id
        result.offset_message_id = ids[place] if ids else whole.offset_message_id
        result.queue = whole.queue
        result.queue_offset = whole.queue_offset + place
        result.recall_handle = None
        result.region_id = whole.region_id
        result.trace_on = whole.trace_on
        return result

    def _finished(self, index: int) -> SendResult:
        """The result of the batch if it has one of the message; raises else."""
        if index in self.withdrawn:
            raise ClosedError("the message was given up by its sender")
        whole, ids = self.handle.outcome(), self.all_ids()
        if not self.offset_ids:
            offset_ids = whole.offset_message_id.split(",")
            if len(offset_ids) == len(ids) - len(self.withdrawn):
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

    def __init__(self, batch: GatheredBatch, index: int, message: Message) -> None:
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
        return self._batch.all_ids()[self._index]

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
        outcome = "it may be stored all the same" if unknown else "it is not stored"
        raise SendTimeout(
            f"the message {self.message_id} to topic {self.message.topic!r} used up its time; "
            f"{outcome}{handle.last_failure}",
            outcome_unknown=unknown,
        ) from handle.error

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


_new_result: Final = SendResult.__new__
