"""What goes wrong with requests of a broker under test, declared by the test.

    fault = broker.faults.on("send", topic="orders", times=1).error("SYSTEM_BUSY")
    ...
    assert fault.hits == 1

`on` says which requests are meant, the method behind it what happens to them. A fault
that met no request until the broker closes is an error of the test: it is misspelt, or
the code under test does not do what the test thinks.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spelling import meant
from rocketmq_sdk.testing.failures import UnhitFaultError, checked_seconds
from rocketmq_sdk.testing.faults import DeclaredFaults, Operation
from rocketmq_sdk.testing.faults import Fault as DiskFault
from rocketmq_sdk.testing.faults import Faults as DiskFaults
from rocketmq_sdk.testing.faulty_clock import ClockFault
from rocketmq_sdk.testing.traffic.fault_actions import (
    Act,
    Reordering,
    answer_lost,
    closed,
    delayed,
    failed,
    request_lost,
)
from rocketmq_sdk.testing.traffic.recording import (
    GROUPS,
    QUEUE,
    TOPICS,
    Recording,
    Seen,
    any_matches,
    can_name,
)
from rocketmq_sdk.testing.traffic.request_kinds import codes_of, response_code_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler
    from rocketmq_sdk.testing.faulty_clock import FaultyClock

Codes = int | str | Sequence[int | str] | None
KEPT: Final = 1000
"""Requests that a handle remembers."""


class Keeper(Protocol):
    """Lets faults have their effect, and ends them."""

    def add(self, fault: RequestFault) -> None:
        """Let a fault have its effect."""

    def discard(self, fault: RequestFault) -> None:
        """End one, if it has not ended."""


class RequestFault:
    """A fault at work, from its declaration until `lift` or the end of a `with`."""

    def __init__(self, faults: Keeper, which: Which, what: str, act: Act) -> None:
        self.which = which
        self.what = what
        """What happens to the requests, in words."""
        self.hits = 0
        """How many requests it met."""
        self.requests: list[Seen] = []
        """The first 1000 of them."""
        self._faults = faults
        self._act = act
        self._passing = which.after
        self._left = which.times

    def strikes(self, seen: Seen) -> bool:
        """Whether it meets this request; counts it."""
        if self._left == 0 or not self.which.matches(seen):
            return False
        if self._passing:
            self._passing -= 1
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1
        if len(self.requests) < KEPT:
            self.requests.append(seen)
        return True

    def around(self, serve: Handler) -> Handler:
        """The handler with the fault around it."""

        def faulty(channel: Channel, request: Command) -> Command | Continuation | None:
            return self._act(channel, request, serve)

        return faulty

    def lift(self) -> None:
        """End it; its counts stay."""
        self._faults.discard(self)

    def __enter__(self) -> RequestFault:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.lift()

    def __repr__(self) -> str:
        return f"<fault on {self.which}: {self.what}, {self.hits} hits>"


class Which:
    """The requests that are meant, and what is to happen to them."""

    def __init__(
        self,
        faults: Keeper,
        code: Codes,
        topic: str | None,
        queue: int | None,
        group: str | None,
        broker: str | None,
        client: str | None,
        when: Callable[[Seen], object] | None,
        times: int | None,
        after: int,
    ) -> None:
        self.codes = codes_of(code)
        self.topic = topic
        self.queue = queue
        self.group = group
        self.broker = broker
        self.client = client
        self.when = when
        self.times = times
        self.after = after
        self.keeper = faults
        """Who lets the fault have its effect."""
        self.told = False
        """Whether somebody has said what is to happen to them."""
        self._code = code

    def __str__(self) -> str:
        words = ["any request" if self._code is None else str(self._code)]
        for name in ("topic", "queue", "group", "broker", "client"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"{name}={value!r}")
        if self.when is not None:
            words.append(f"when={getattr(self.when, '__name__', self.when)}")
        return " ".join(words)

    def matches(self, seen: Seen) -> bool:
        """Whether a request is one of them."""
        return (
            (self.codes is None or seen.code in self.codes)
            and (self.topic is None or any_matches(seen.topics, self.topic))
            and (self.group is None or any_matches(seen.groups, self.group))
            and (self.queue is None or self.queue in seen.queues)
            and (self.client is None or seen.is_of(self.client))
            and (self.when is None or bool(self.when(seen)))
        )

    # What happens to them

    def error(
        self,
        code: int | str = ResponseCode.SYSTEM_ERROR,
        remark: str = "as the test wants it",
        *,
        served: bool = False,
    ) -> RequestFault:
        """They are answered with an error, of `ResponseCode` by number or name.

        With `served` the broker has done what was asked, such as stored the message,
        and says that it has not. A request that the broker holds, such as a long poll,
        is answered at once.
        """
        self.told = True
        number = response_code_of(code)
        name = ResponseCode(number).name if number in set(ResponseCode) else number
        return self._add(f"answer {name}", failed(number, remark, served=served))

    def refuse(self) -> RequestFault:
        """They are answered with SYSTEM_BUSY, as by a broker under too much load."""
        return self.error(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]as the test wants it")

    def delay(self, seconds: float, *, served: bool = False) -> RequestFault:
        """They are served so many seconds later.

        With `served` they are served at once, and the answer leaves later. What the
        broker itself holds back, such as a long poll, is not held back further.
        """
        self.told = True
        checked_seconds("seconds", seconds)
        return self._add(f"delay of {seconds:g} s", delayed(seconds, served=served))

    def drop_request(self) -> RequestFault:
        """They are lost on their way: not served, never answered."""
        return self._add("request lost", request_lost)

    def drop_answer(self) -> RequestFault:
        """They are served, and the answer is lost on its way."""
        return self._add("answer lost", answer_lost)

    def close_connection(self, *, served: bool = False) -> RequestFault:
        """The connection breaks in place of an answer.

        With `served` the broker has done what was asked.
        """
        return self._add("connection closed", closed(served=served))

    def out_of_order(self, *, within: float = 1.0) -> RequestFault:
        """Two at a time are served in the other order, and so answered.

        The first of two waits for the second, for `within` seconds at most.
        """
        self.told = True
        return self._add("out of order", Reordering(checked_seconds("within", within)))

    def call(
        self, act: Callable[[Channel, Command, Handler], Command | Continuation | None]
    ) -> RequestFault:
        """A function serves them: `act(channel, request, serve)`.

        It returns what a handler may: an answer, an async function that gives the
        answer later, or None for no answer at all.
        """
        return self._add(getattr(act, "__name__", "a function"), act)

    def _add(self, what: str, act: Act) -> RequestFault:
        self.told = True
        fault = RequestFault(self.keeper, self, what, act)
        self.keeper.add(fault)
        return fault


class RequestFaults:
    """All that is wrong with one broker: `broker.faults`."""

    def __init__(
        self,
        name: Callable[[], str],
        disk: DiskFaults | None,
        seen: Recording,
        rows: Callable[[], Mapping[int, Request]],
        clock: FaultyClock,
    ) -> None:
        """`rows` gives what is served; nothing before the broker has started."""
        self.active: list[RequestFault] = []
        """Those that have an effect."""
        self.declared: list[RequestFault | DiskFault | ClockFault] = []
        """Those that must have met something when the broker closes."""
        self._begun: list[Which] = []
        self._rows = rows
        self._name = name
        self._disk = disk
        self._clock = clock
        self._seen = seen

    def on(
        self,
        code: Codes = None,
        *,
        topic: str | None = None,
        queue: int | None = None,
        group: str | None = None,
        broker: str | None = None,
        client: str | None = None,
        when: Callable[[Seen], object] | None = None,
        times: int | None = None,
        after: int = 0,
    ) -> Which:
        """Say which requests are meant; a method of the result says what happens.

        `code` is a name or number of `RequestCode`, a kind such as "send", "pull",
        "ack" or "commit", or several of these; None means all requests. `topic`,
        `group` and `client` may hold `*`; a client is its id, its host or the name of
        its party. The first `after` requests that match pass; then `times` of them are
        met, None for all.

        Raises `ConfigurationError` for a code or broker that does not exist here.
        """
        which = Which(self, code, topic, queue, group, broker, client, when, times, after)
        if broker is not None and broker != self._name():
            raise ConfigurationError(f"this broker is {self._name()!r}, not {broker!r}")
        if which.codes is not None and (known := self._rows()):
            rows = [known[number] for number in which.codes if number in known]
            if not rows:
                raise ConfigurationError(f"nobody serves {code!r} here, so no fault can meet it")
            for asked, names, word in (
                (topic, TOPICS, "topic"),
                (group, GROUPS, "group"),
                (queue, QUEUE, "queue"),
            ):
                if asked is not None and not any(can_name(row, names) for row in rows):
                    raise ConfigurationError(f"a request {code!r} names no {word}")
        if times is not None and times < 1:
            raise ConfigurationError(f"times is {times}; it must be at least 1, or None for always")
        if after < 0:
            raise ConfigurationError(f"after is {after}; it must be at least 0")
        self._begun.append(which)
        return which

    # The disk

    @property
    def disk(self) -> DiskFaults:
        """Faults of single operations of the broker's disk: `fail`, `slow`, `shorten`.

        Each must have met something when the broker closes. Raises `ConfigurationError`
        for a broker in a real directory.
        """
        return DeclaredFaults(self.undeclared_disk, self.declared)

    @property
    def undeclared_disk(self) -> DiskFaults:
        """As `disk`, for faults that may meet nothing."""
        if self._disk is None:
            raise ConfigurationError(
                "only a broker in memory has a disk that fails on demand; leave out the path"
            )
        return self._disk

    def full_disk(
        self, path: str = "commitlog/*", *, times: int | None = None, after: int = 0
    ) -> DiskFault:
        """Nothing more can be written, to files that match the pattern.

        The first `after` writes pass; then `times` of them fail, None for all.
        """
        return self.disk.fail(Operation.WRITE, path, code=errno.ENOSPC, times=times, after=after)

    def unreadable_disk(
        self,
        path: str = "commitlog/*",
        at: range | None = None,
        *,
        times: int | None = None,
        after: int = 0,
    ) -> DiskFault:
        """Reads fail, of all bytes or of those in `at`; `times`, `after` as there."""
        return self.disk.fail(Operation.READ, path, at=at, code=errno.EIO, times=times, after=after)

    def slow_disk(
        self,
        seconds: float,
        operation: Operation = Operation.SYNC,
        path: str = "*",
        *,
        times: int | None = None,
        after: int = 0,
    ) -> DiskFault:
        """Operations take so many seconds more; syncs unless told otherwise."""
        checked_seconds("seconds", seconds)
        return self.disk.slow(operation, path, delay=seconds, times=times, after=after)

    # The clock

    def wrong_clock(self, seconds: float) -> ClockFault:
        """The broker's wall clock jumps by so many seconds, and back at the lift.

        Forward, or back where `seconds` is negative; several add up. Times of messages
        and what is due by them follow, timeouts do not. Raises `ConfigurationError` for
        more than a hundred years.
        """
        fault = self._clock.wrong_by(seconds)
        self.declared.append(fault)
        return fault

    # Keeping them

    def add(self, fault: RequestFault) -> None:
        """Let a fault have its effect."""
        self.active.append(fault)
        self.declared.append(fault)

    def discard(self, fault: RequestFault) -> None:
        """End one, if it has not ended."""
        if fault in self.active:
            self.active.remove(fault)

    def clear(self) -> None:
        """End all, without asking whether they met anything."""
        self.active.clear()
        self.declared.clear()
        self._begun.clear()
        self._clock.faults = ()
        if self._disk is not None:
            self._disk.clear()

    def check(self) -> None:
        """Raise `UnhitFaultError` if a declared fault met nothing, or cannot."""
        idle = [self._explain(fault) for fault in self.declared if not fault.hits]
        idle += [
            f"faults.on() of {which} does nothing by itself; say what happens to these requests "
            'by a method of the result, such as .error("SYSTEM_BUSY") or .drop_answer()'
            for which in self._begun
            if not which.told
        ]
        if idle:
            raise UnhitFaultError("\n".join(idle))

    def _explain(self, fault: RequestFault | DiskFault | ClockFault) -> str:
        if isinstance(fault, ClockFault):
            return f"{fault!r}: nobody looked at it"
        if isinstance(fault, DiskFault):
            return f"{fault!r} met no operation"
        which = fault.which
        text = f"{fault!r} met no request"
        if which.after:
            text += f" (it lets {which.after} pass first)"
        for asked, names, word in (
            (which.topic, self._seen.topics(), "topic"),
            (which.group, self._seen.groups(), "group"),
        ):
            if asked is not None and not any_matches(frozenset(names), asked):
                hint = meant(asked, known=names, most=1)
                text += f"; no request named {word} {asked!r}{hint}"
        if which.client is not None:
            here = {
                name
                for seen in self._seen.find()
                for name in (seen.client_id, seen.host)
                if name is not None
            }
            if not any_matches(frozenset(here), which.client):
                there = ", ".join(sorted(here)) or "no clients"
                text += f"; no request came from a client {which.client!r}; there were: {there}"
        return f"{text}; seen: {self._seen.summary()}"
