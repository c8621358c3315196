"""Keeps the services of a broker running, and tells how they are.

A service that raises is started again after a back-off; the others do not notice. It is
named in the log once for each distinct error. What an error leaves behind is shown in
`EmbeddedBroker.health()`. The store's own services are kept running like the others;
only an unforeseen error of one that the log depends on ends the broker. A log that
could not be synced is not a service's error: the store refuses messages from then on
and says why (`MessageStore.failure`), and the broker goes on serving what it has.
"""

from __future__ import annotations

import logging
from contextvars import copy_context
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.backoff import Backoff
from rocketmq_sdk.broker_embedded.part import AfterError, Service
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.lifecycle import unwrap_single
from rocketmq_sdk.sleeper import sleep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rocketmq_sdk.broker_embedded.store.services import OnCall, StoreService
    from rocketmq_sdk.clock import Clock

logger = logging.getLogger(__name__)

BACKOFF: Final = Backoff(first=0.5, limit=30.0, jitter=0.0)
"""How long a service rests before it is started again."""
WELL_AFTER: Final = 60.0
"""Seconds without an error after which a service counts as well again."""
_REMEMBERED: Final = 100


class ServiceState(Enum):
    """What a service is doing."""

    RUNNING = "running"
    WAITING = "waiting to be started again"
    ENDED = "ended"


@attrs.frozen
class ServiceHealth:
    """One service of a broker: its state, and its last error if that is not over.

    `since_ms` (epoch milliseconds) is when the first error of the series came.
    """

    name: str
    state: ServiceState
    last_error: str | None = None
    since_ms: int | None = None

    def __str__(self) -> str:
        after = "" if self.last_error is None else f" after: {self.last_error}"
        return f"{self.name} {self.state.value}{after}"


@attrs.frozen
class BrokerHealth:
    """Whether a broker takes messages, and what is wrong with it, in plain words.

    `reasons` name each hindrance: why messages are refused, services with an error,
    tables that could not be saved. The truth value of the object is `taking_messages`.
    """

    taking_messages: bool
    reasons: tuple[str, ...] = ()
    services: tuple[ServiceHealth, ...] = ()

    def __bool__(self) -> bool:
        return self.taking_messages

    def __str__(self) -> str:
        state = "taking messages" if self.taking_messages else "not taking messages"
        return f"{state}: {'; '.join(self.reasons)}" if self.reasons else state


def error_text(error: BaseException) -> str:
    """An error in words; those of this package speak for themselves."""
    return str(error) if isinstance(error, RocketMQError) else f"{type(error).__name__}: {error}"


class Complaints:
    """Which errors were told already, and which are there now, by what they concern."""

    __slots__ = ("_now", "_told")

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._now: dict[str, str] = {}

    def add(self, about: str, error: BaseException) -> bool:
        """Note an error; whether it has to be told in the log."""
        text = error_text(error)
        self._now[about] = text
        if (about, text) in self._told:
            return False
        if len(self._told) >= _REMEMBERED:
            self._told.clear()
        self._told.add((about, text))
        return True

    def over(self, about: str) -> None:
        """What was complained about works again."""
        if self._now.pop(about, None) is not None:
            self._told = {told for told in self._told if told[0] != about}

    def keep(self, abouts: set[str]) -> None:
        """Everything but these is over."""
        for about in self._now.keys() - abouts:
            self.over(about)

    def __iter__(self) -> Iterator[str]:
        return (f"{about}: {text}" for about, text in self._now.items())


class JoinedTroubles:
    """Several lists of troubles as one, each looked at when it is asked for."""

    __slots__ = ("_parts",)

    def __init__(self, *parts: Iterable[str]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)


_NOTHING: Final[frozenset[str]] = frozenset()


class _Watched:
    """A service, and how it is."""

    __slots__ = (
        "_nursery",
        "_supervisor",
        "failures",
        "last_error",
        "service",
        "since_ms",
        "started",
        "state",
        "told",
    )

    def __init__(
        self, service: Service, supervisor: Supervisor, nursery: trio.Nursery | None
    ) -> None:
        self.service = service
        self._supervisor = supervisor
        self._nursery = nursery
        self.state = ServiceState.RUNNING
        self.last_error: str | None = None
        self.since_ms: int | None = None
        self.told = _NOTHING
        self.failures = 0
        self.started = 0.0

    def start(self) -> None:
        """Give it its task, unless its nursery is about to end or has ended."""
        nursery = self._nursery
        if nursery is not None and not nursery.cancel_scope.cancel_called:
            supervisor = self._supervisor
            # A service outlives the request that calls it, and has not its context.
            supervisor.context.run(nursery.start_soon, supervisor.keep_running, self)

    def forget(self) -> None:
        """It is well."""
        self.last_error = self.since_ms = None
        self.told = _NOTHING
        self.failures = 0

    def health(self, now: float) -> ServiceHealth:
        """How it is at a moment of the monotonic clock."""
        if self.state is ServiceState.RUNNING and now - self.started >= WELL_AFTER:
            self.forget()
        return ServiceHealth(self.service.name, self.state, self.last_error, self.since_ms)


class Supervisor:
    """Runs services, and knows how they and the saving of tables are."""

    __slots__ = (
        "_clock",
        "_due",
        "_services",
        "context",
        "more",
        "refusing",
        "tables",
        "troubles",
    )

    def __init__(self, clock: Clock, refusing: Callable[[], str | None]) -> None:
        """`refusing` tells why messages are refused; None while they are accepted.

        `troubles` tells what else is wrong with the store, `more` what parts of the
        broker know of that have no service for it.
        """
        self._clock = clock
        self.troubles: Callable[[], Iterable[str]] = tuple
        self._services: list[_Watched] = []
        self._due: list[tuple[float, OnCall]] = []
        self.context = copy_context()
        """That of who opens the broker, for all services."""
        self.refusing = refusing
        self.more: list[Iterable[str]] = []
        self.tables = Complaints()
        """Tables that could not be saved."""

    async def run(self, service: Service) -> None:
        """Run a service until cancelled, or until it ends by itself."""
        await self.keep_running(self._watch(service))

    def start_of_store(self, nursery: trio.Nursery, service: StoreService) -> None:
        """`start` a service of the store; one that the log depends on is fatal."""
        after_error = AfterError.END_BROKER if service.of_log else AfterError.RESTART
        self.start(
            nursery, Service(service.name, service.run, after_error, on_call=service.on_call)
        )

    def start(self, nursery: trio.Nursery, service: Service) -> None:
        """`run` a service in a nursery, as soon as it is called if it is on call.

        `health` shows it at once.
        """
        watched, on_call = self._watch(service, nursery), service.on_call
        if on_call is None:
            watched.start()
            return
        on_call.attach(watched)
        if on_call.after is not None:
            self._due.append((trio.current_time() + on_call.after, on_call))

    async def call_in_time(self) -> None:
        """Call the services whose time has come; ends when none is left."""
        for moment, on_call in sorted(self._due, key=lambda due: due[0]):
            if not on_call.called:
                await sleep(max(0.0, moment - trio.current_time()))
                on_call.call()

    def _watch(self, service: Service, nursery: trio.Nursery | None = None) -> _Watched:
        watched = _Watched(service, self, nursery)
        self._services.append(watched)
        return watched

    async def keep_running(self, watched: _Watched) -> None:
        """`run` what is watched."""
        service = watched.service
        while True:
            watched.state = ServiceState.RUNNING
            watched.started = self._clock.monotonic()
            try:
                await service.run()
            except Exception as error:  # noqa: BLE001
                # What a service raises is its policy's matter.
                self._failed(watched, error)
            except BaseExceptionGroup as group:
                errors, rest = group.split(Exception)
                if rest is not None or errors is None:
                    raise
                self._failed(watched, errors)
            else:
                watched.state = ServiceState.ENDED
                return
            watched.state = ServiceState.WAITING
            await trio.sleep(BACKOFF.delay(watched.failures - 1))

    def _failed(self, watched: _Watched, error: BaseException) -> None:
        """Note an error, and tell it in the log unless that was done before."""
        name = watched.service.name
        cause = unwrap_single(error) if isinstance(error, BaseExceptionGroup) else error
        text = error_text(cause)
        if watched.service.after_error is AfterError.END_BROKER:
            raise RocketMQError(f"the {name} of the embedded broker failed: {text}") from cause
        if self._clock.monotonic() - watched.started >= WELL_AFTER:
            watched.forget()
        watched.failures += 1
        watched.last_error = text
        if watched.since_ms is None:
            watched.since_ms = self._clock.now_ms()
        if text not in watched.told:
            others = watched.told if len(watched.told) < _REMEMBERED else _NOTHING
            watched.told = others | {text}
            logger.error(
                "the %s of the broker failed and is started again: %s",
                name,
                text,
                exc_info=None if isinstance(cause, RocketMQError) else cause,
            )

    def save_failed(self, name: str, error: BaseException) -> None:
        """A table could not be saved; it is tried again."""
        if self.tables.add(name, error):
            logger.error(
                "%s could not be written; it will be tried again: %s", name, error_text(error)
            )

    def health(self) -> BrokerHealth:
        """How the broker is now."""
        now, problem = self._clock.monotonic(), self.refusing()
        services = tuple(watched.health(now) for watched in self._services)
        reasons = [] if problem is None else [problem]
        for watched, seen in zip(self._services, services, strict=True):
            if seen.last_error is not None:
                reasons.append(f"the {seen.name} is {seen.state.value} after: {seen.last_error}")
            trouble = watched.service.trouble
            if trouble is not None:
                reasons += [f"the {seen.name} waits: {text}" for text in trouble]
        reasons += [f"cannot be saved: {text}" for text in self.tables]
        reasons += self.troubles()
        reasons += chain.from_iterable(self.more)
        return BrokerHealth(problem is None, tuple(reasons), services)
