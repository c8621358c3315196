"""Popped messages, and the receipts that say whose they are at the moment.

A receipt is good until its message is acknowledged, its invisible duration is over, or
it is replaced because the duration was changed. Apache's broker accepts an
acknowledgement with an old handle and does nothing. Here such a call is refused before
it is sent, so that a program learns that another consumer has the message. A receipt
names its group as well, because the broker would also accept the acknowledgement of any
other group.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Unpack

import trio

from rocketmq_sdk import clock
from rocketmq_sdk.consumer.retry_states import SIMPLE, Event, State, next_state
from rocketmq_sdk.errors import ReceiptHandleError, WrongTypeError
from rocketmq_sdk.model.properties import FIRST_POP_TIME, POP_CK
from rocketmq_sdk.model.received import MadeMessage, ReceivedMessage
from rocketmq_sdk.protocol.receipt_handle import NORMAL, RETRY_V1, ReceiptHandle
from rocketmq_sdk.validators import to_seconds

if TYPE_CHECKING:
    from datetime import timedelta


_NO_GROUP: Final = ""
"""The group of a message that a program has made."""


class Receipt:
    """One delivery of one message to a consumer of `group`.

    `handle` identifies it at brokers. `replaced_by` is the receipt that has replaced
    it. `busy` is set while a request about it is under way: the event of
    that request's end. An acknowledgement and a change at the same time must not
    overtake each other, or the change would bring back an acknowledged message.
    """

    __slots__ = ("_until", "busy", "group", "handle", "replaced_by", "state", "topic")

    def __init__(self, topic: str, handle: ReceiptHandle, until: float, group: str) -> None:
        """Its invisible duration is over at `until`, by `clock.elapsed`."""
        self.topic = topic
        self.group = group
        self.handle = handle
        self._until = until
        self.state = State.INFLIGHT
        self.replaced_by: Receipt | None = None
        self.busy: trio.Event | None = None

    @property
    def expires_at(self) -> float:
        """When its invisible duration is over at the latest, by trio's clock.

        Earlier by as long as the machine was suspended meanwhile.
        """
        return self._until - clock.suspended()

    @property
    def newest(self) -> Receipt:
        """The receipt that is valid now."""
        receipt = self
        while receipt.replaced_by is not None:
            receipt = receipt.replaced_by
        return receipt

    @property
    def is_good(self) -> bool:
        """Whether the message is still this consumer's."""
        return (
            self.state is State.INFLIGHT
            and self.replaced_by is None
            and (self._until == math.inf or clock.elapsed() < self._until)
        )

    def problem(self, now: float, group: str) -> str | None:
        """Why the receipt is not good, or not good for a consumer of `group`.

        None when it is good. `now` is by `clock.elapsed`.
        """
        if self.group != group:
            if self.group == _NO_GROUP:
                return "the message was made by a program; only one that was received has a receipt"
            return (
                f"the receipt handle '{self.handle}' was given to group {self.group!r}, not to "
                f"{group!r}; use it with a consumer of its own group"
            )
        if self.replaced_by is not None:
            return (
                f"the receipt handle '{self.handle}' was replaced when the invisible duration was "
                "changed"
            )
        if self.state is State.COMMIT:
            return f"the receipt handle '{self.handle}' was used: the message is acknowledged"
        if self.state is State.INFLIGHT and now < self._until:
            return None
        if self.state is State.INFLIGHT:
            self.state = next_state(SIMPLE, State.INFLIGHT, Event.TIMED_OUT)
        return (
            f"the receipt handle '{self.handle}' is expired: the invisible duration is over, and "
            "the message goes to whoever receives it next"
        )

    def check(self, group: str) -> None:
        """Raise `ReceiptHandleError` when it is not good for a consumer of `group`."""
        problem = self.problem(clock.elapsed(), group)
        if problem is not None:
            raise ReceiptHandleError(problem)

    def acknowledged(self) -> None:
        """The broker has confirmed that the message is done."""
        self.state = State.COMMIT

    def replace(self, handle: ReceiptHandle, until: float) -> Receipt:
        """The receipt that replaces this one, good until then."""
        self.replaced_by = new = Receipt(self.topic, handle, until, self.group)
        return new

    def __repr__(self) -> str:
        replaced = ", replaced" if self.replaced_by else ""
        return (
            f"Receipt(topic={self.topic!r}, group={self.group!r}, handle='{self.handle}', "
            f"state={self.state.value}{replaced})"
        )


class Invisibility:
    """When an invisible duration is over that the answer to a request begins.

    Make it before the request: the broker may have served it before the machine was
    suspended, and the answer be read after that.
    """

    __slots__ = ("_slept",)

    def __init__(self) -> None:
        self._slept = clock.suspended()

    def ends(self, seconds: float) -> float:
        """By `clock.elapsed`, for a duration that an answer has just told.

        Trio's clock stands still in a suspension, so one since the request counts.
        """
        return trio.current_time() + seconds + self._slept


class PoppedMessage(ReceivedMessage):
    """A message that a broker has made invisible to others for a time.

    `receipt` says whether it still is this consumer's.
    """

    __slots__ = ("_receipt",)

    _receipt: Receipt

    # Decoders do not pass here.
    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        invisible_duration: float | timedelta = math.inf,
        **more: Unpack[MadeMessage],
    ) -> None:
        """A message as if it had been received, to test a handler without any broker.

        `reconsume_times` is how many deliveries have failed before. The message is this
        consumer's for `invisible_duration` seconds; a finite time needs trio. The other
        arguments are those of `ReceivedMessage`. No broker knows it: a real consumer
        refuses to acknowledge it with `ReceiptHandleError`.
        """
        super().__init__(topic, body, **more)
        seconds = to_seconds(invisible_duration)
        forever = seconds == math.inf
        handle = ReceiptHandle(
            start_offset=self.offset,
            pop_time=self.store_timestamp,
            invisible_time=0 if forever else round(seconds * 1000),
            revive_queue_id=0,
            kind=RETRY_V1 if self.reconsume_times else NORMAL,
            broker_name=self.broker_name,
            queue_id=self.queue_id,
            offset=self.offset,
        )
        until = math.inf if forever else clock.elapsed() + seconds
        self._receipt = Receipt(topic, handle, until, _NO_GROUP)

    @property
    def receipt(self) -> Receipt:
        """The receipt that is valid now."""
        receipt = self._receipt
        if receipt.replaced_by is not None:
            self._receipt = receipt = receipt.newest
        return receipt

    @property
    def properties(self) -> dict[str, str]:
        """All properties, including system properties.

        POP_CK is the handle of the delivery, 1ST_POP_TIME the time of the first one.
        """
        found = super().properties
        receipt: Receipt | None = getattr(
            self, "_receipt", None
        )  # none yet while the answer is taken apart
        if receipt is not None and POP_CK not in found:
            found[POP_CK] = str(receipt.handle)
            found.setdefault(FIRST_POP_TIME, str(receipt.handle.pop_time))
        return found

    @property
    def failed_before(self) -> int:
        """How many deliveries to this group have failed.

        A message that is neither popped in order nor from a retry topic comes for the
        first time. It may have a count all the same: a dead letter has that of the
        group that gave it up.
        """
        handle = self._receipt.handle
        return self.reconsume_times if handle.kind != NORMAL or handle.is_ordered else 0

    @property
    def delivery_attempt(self) -> int:
        """The number of this delivery to the group, starting with 1."""
        return self.failed_before + 1


def receipt_of(message: object) -> Receipt:
    """The receipt that a call refers to.

    For a message the one that is valid now, otherwise the given receipt itself.
    """
    if isinstance(message, Receipt):
        return message
    if isinstance(message, PoppedMessage):
        return message.receipt
    if isinstance(message, list | tuple):
        raise WrongTypeError(
            f"{len(message)} messages at once; acknowledge them with batch_ack, change each alone"
        )
    raise WrongTypeError(
        f"{message!r:.200} has no receipt; only messages that a simple consumer has received can "
        "be acknowledged or changed"
    )
