"""What may be given to a `TransactionProducer`; each check says what is wrong."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model.enums import TransactionState
from rocketmq_sdk.names import check_send_topic
from rocketmq_sdk.validators import check_callable, to_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from rocketmq_sdk.model.message import Message

RollbackOn = type[Exception] | tuple[type[Exception], ...]


def refuse_delay(message: Message) -> None:
    """As `DefaultMQProducerImpl.sendMessageInTransaction` of Apache 5.5.0 does."""
    if message.is_delayed:
        raise ConfigurationError(
            "a transactional message cannot have a delay (delay, deliver_at, delay_level); send it "
            "without one, or send a delayed message when the local work is done"
        )


def check_async(name: str, function: object, of_what: str) -> None:
    """Refuse what surely is no async function.

    Only a call shows it of a lambda, and of an object whose `__call__` is a plain
    function.
    """
    check_callable(name, function, f"give an async function of {of_what}")
    assert callable(function)
    inner: Callable[..., object] = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    plain = inspect.isfunction(inner) or inspect.ismethod(inner) or inspect.isclass(inner)
    if plain and not (
        inspect.iscoroutinefunction(inspect.unwrap(inner))
        or getattr(inner, "__name__", "") == "<lambda>"
    ):
        raise ConfigurationError(
            f"{name} is {function!r}, which is no async function; make it `async def` (with "
            "trio.to_thread.run_sync for work that blocks), and return a TransactionState"
        )


def as_state(what: str, state: object) -> TransactionState:
    """What a function of the caller returned. Raises `WrongTypeError` for no state."""
    if isinstance(state, TransactionState):
        return state
    raise WrongTypeError(
        f"{what} {state!r:.200}; return TransactionState.COMMIT, TransactionState.ROLLBACK, or "
        "TransactionState.UNKNOWN to have the checker asked later"
    )


def check_rollback_on(kinds: object) -> None:
    """Refuse what is no class of exceptions."""
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise WrongTypeError(
                f"rollback_on is {kinds!r:.200}; give a class of exceptions, or several"
            )


def is_all(error: BaseException, kinds: RollbackOn) -> bool:
    """Whether an exception, or each one of a group, is of one of the classes."""
    if isinstance(error, kinds):
        return True
    return isinstance(error, BaseExceptionGroup) and error.split(kinds)[1] is None


def checked_timeout(check_timeout: float | timedelta) -> float:
    """Seconds above 0."""
    try:
        seconds = to_seconds(check_timeout)
    except ConfigurationError as error:
        raise type(error)(f"check_timeout: {error}") from None
    if not seconds > 0:
        raise ConfigurationError(
            f"check_timeout is {check_timeout!r}; it must be more than 0 seconds"
        )
    return seconds


def checked_topics(topics: str | Iterable[str]) -> tuple[str, ...]:
    """The topics of a producer that only answers checks."""
    try:
        found = (topics,) if isinstance(topics, str) else tuple(topics)
    except TypeError:
        raise WrongTypeError(f"topics is {topics!r:.200}; give names of topics") from None
    for topic in found:
        check_send_topic(topic)
    return found
