"""Observers of everything that clients of this process do; for telemetry.

An observer is installed once, and sees what producers and consumers do that are made
from then on: sends and listener calls as a hook does (`SendHook`, `ConsumeHook`), and
receives, acknowledgements, ends and checks of transactions as operations.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from rocketmq_sdk.client.hooks import ConsumeHook, SendHook
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.received import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

logger = logging.getLogger("rocketmq_sdk.client")


class OperationKind(Enum):
    """What a client does."""

    RECEIVE = "receive"
    """A simple consumer receives, a lite pull consumer polls."""
    ACK = "ack"
    """Popped messages are acknowledged."""
    COMMIT = "commit"
    """A broker is told that a transaction is committed."""
    ROLLBACK = "rollback"
    CHECK = "check"
    """A checker is asked about a transaction."""


@attrs.define
class Operation:
    """One operation under way.

    `messages` and `error` are known when it has ended; the messages of a check, and of
    an acknowledgement where they are at hand, from its beginning.
    """

    kind: OperationKind
    group: str
    topic: str | None
    client_id: str
    messages: Sequence[ReceivedMessage | Message] = ()
    message_id: str | None = None
    address: str | None = None
    """`host:port` of the broker, where it is known."""
    error: BaseException | None = None
    notes: dict[str, Any] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Departure:
    """Messages of one producer to one topic that leave together, as one send.

    Those that were handed over in one turn of the loop under one context of their
    caller, or those of a batch. An observer that `joins` sees them so. What it puts
    into `properties` when they begin to depart is sent with each of them; the rest is
    known when all of them are finished.
    """

    group: str
    client_id: str
    topic: str
    started: float
    """When the first of them was handed over, by trio's clock."""
    context: object
    """What `Observer.caller` said."""
    is_batch: bool = False
    """Whether they are in requests for several messages."""
    properties: dict[str, str] = attrs.field(factory=dict)
    notes: dict[str, Any] = attrs.field(factory=dict)
    is_seen: bool = True
    """False where the observer does not want to look at it."""
    first: Message | None = None
    message_id: str | None = None
    """The unique id of the only message; None of several."""
    count: int = 0
    are_alike: bool = True
    """Whether all have the properties of the first one."""
    failed: int = 0
    failures: list[tuple[str, BaseException]] = attrs.field(factory=list)
    """The first that failed, at most `MOST_FAILURES`: unique ids and errors."""
    address: str | None = None
    """`host:port` of the broker of their last attempts, where it is one."""
    queue_id: int = -1
    """The queue, where it is one and known."""
    ended: float = 0.0
    """When the last of them was finished."""


MOST_FAILURES: Final = 16


class Cached(Protocol):
    """A consumer that keeps messages which its listener has not had yet."""

    def cached(self) -> tuple[int, int]:
        """Messages and bytes in its process queues; may be asked in any thread."""
        ...


class Observer(SendHook, ConsumeHook, Protocol):
    """Sees all that clients do.

    One that `joins` is told of messages that leave together as of one `Departure`, and
    by `sends_ended` of the number of those that are finished; `created` is not called
    then, and `before_send` for half messages, encoded batches, and those of which
    `brings_context` is true.
    """

    joins: bool

    def caller(self) -> object:
        """Where a message comes from; messages that leave together have the same."""
        ...

    def brings_context(self, message: Message) -> bool:
        """Whether a message has a context of its maker, which is to stay."""
        ...

    def departs(self, departure: Departure) -> None:
        """Its first message is about to be sent."""
        ...

    def departed(self, departure: Departure) -> None:
        """All of its messages are finished."""
        ...

    def created(self, message: Message) -> Mapping[str, str]:
        """Properties to add to a message that is to leave together with others."""
        ...

    def looks_at_send(self, now: float) -> bool:
        """Whether to call `before_send` and `after_send` for the next single message.

        Asked where there are no other hooks; `now` is the time of trio's clock.
        """
        ...

    def sends_ended(self, topic: str, number: int, error: Exception | None) -> None:
        """Messages are finished at which no observer has looked: stored, or failed."""
        ...

    def operation_begins(self, operation: Operation) -> None:
        """An operation begins."""
        ...

    def operation_ends(self, operation: Operation) -> None:
        """It has ended, failed or was cancelled."""
        ...

    def consumer_opened(self, group: str, client_id: str, cached: Cached) -> None:
        """A push consumer was opened."""
        ...

    def consumer_closed(self, group: str, client_id: str) -> None:
        """It was closed."""
        ...


_installed: tuple[Observer, ...] = ()


def installed() -> tuple[Observer, ...]:
    """The observers, in the order in which they were installed."""
    return _installed


def install(observer: Observer) -> Callable[[], None]:
    """Let an observer see all clients that are made from now on.

    Returns what ends that; clients that were made meanwhile keep it.
    """
    global _installed
    _installed = (*_installed, observer)

    def uninstall() -> None:
        global _installed
        _installed = tuple(other for other in _installed if other is not observer)

    return uninstall


def tell(calls: Sequence[Callable[..., None]], *arguments: object) -> None:
    """Call each; what one raises is logged."""
    for call in calls:
        try:
            call(*arguments)
        except Exception:
            logger.exception("the observer %r has failed", call)


@contextmanager
def observed(observers: Sequence[Observer], operation: Operation) -> Iterator[Operation]:
    """Tell observers of an operation, for the length of the block."""
    tell([observer.operation_begins for observer in observers], operation)
    try:
        yield operation
    except BaseException as error:
        operation.error = error
        raise
    finally:
        tell([observer.operation_ends for observer in reversed(observers)], operation)
