"""Hooks of applications around sends and consumption.

They are called synchronously, in the order in which they were given.

They are what `SendMessageHook`, `CheckForbiddenHook`, `ConsumeMessageHook` and
`FilterMessageHook` of Apache RocketMQ 5.4.0 are. A hook that raises never disturbs
other messages: what a forbidding hook raises is the error of its send; of the other
hooks it is logged, and the message goes its way. Requests and answers on the wire are
seen by interceptors (`interceptors=`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.validators import with_methods

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.model.queue import MessageQueue

logger = logging.getLogger("rocketmq_sdk.client")


@attrs.define
class SendContext:
    """One message on its way out, or a batch.

    `result` and `error` are set when it is finished; for a hook's own use there is
    `notes`. What `before_send` puts into `properties` is sent with the message (not
    with a batch, whose messages are encoded by then).
    """

    group: str
    topic: str
    message: Message
    message_id: str
    client_id: str = ""
    batch: Sequence[Message] | None = None
    """The messages of a batch; empty where they are not known, None for one message."""
    properties: dict[str, str] = attrs.field(factory=dict)
    result: SendResult | None = None
    error: Exception | None = None
    notes: dict[str, Any] = attrs.field(factory=dict)
    is_half: bool = False
    """Whether it is the half message of a transaction."""
    address: str | None = None
    """`host:port` of the broker of the last attempt; when it is finished."""
    started: float = 0.0
    """When it was handed over, by trio's clock."""
    ended: float = 0.0
    """When it was finished."""


class SendHook(Protocol):
    """Sees each message that a producer sends, once for all attempts."""

    def before_send(self, context: SendContext) -> None:
        """The message is about to be sent."""
        ...

    def after_send(self, context: SendContext) -> None:
        """It is stored, or has failed."""
        ...


class ForbiddenHook(Protocol):
    """May keep messages from being sent."""

    def check_forbidden(self, context: SendContext) -> None:
        """Raise, and the send fails with that error; nothing is sent."""
        ...


@attrs.define
class ConsumeContext:
    """One call of a listener.

    `success` and `error` are set when it has ended; for a hook's own use there is
    `notes`.
    """

    group: str
    messages: Sequence[ReceivedMessage]
    client_id: str = ""
    address: str | None = None
    """`host:port` of the broker that has the messages, where it is known and one."""
    success: bool | None = None
    error: BaseException | None = None
    notes: dict[str, Any] = attrs.field(factory=dict)


class ConsumeHook(Protocol):
    """Sees each call of a listener."""

    def before_consume(self, context: ConsumeContext) -> None:
        """The listener is about to be called."""
        ...

    def after_consume(self, context: ConsumeContext) -> None:
        """It has returned, raised, or was cancelled."""
        ...


class FilterHook(Protocol):
    """May leave out messages that a pull or a pop has brought.

    After a pop the queue's id may be -1: any queue of the broker.
    """

    def filter_messages(
        self, messages: list[ReceivedMessage], queue: MessageQueue
    ) -> list[ReceivedMessage]:
        """Those to consume, in their order. What is left out counts as done."""
        ...


def run_hooks(calls: Sequence[Callable[[Any], None]], context: object) -> None:
    """Call each; what one raises is logged."""
    for call in calls:
        try:
            call(context)
        except Exception:
            logger.exception("the hook %r has failed", call)


def check_hooks(*methods: str) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """A validator of a setting that holds hooks with these methods."""

    def check(_instance: object, field: attrs.Attribute[Any], value: tuple[object, ...]) -> None:
        both = " and ".join(methods)
        for each in value:
            with_methods(field.name, each, methods, f"give objects with {both}")

    return check
