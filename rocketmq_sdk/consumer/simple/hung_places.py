"""Places of a simple consumer that do not answer.

A pop waits at a place for a moment. If no answer comes by then, the place is set apart,
so that it does not hold up what other places have. Its pop goes on in the background:
what it brings is for the next receive. A place that cannot be reached is set apart,
too. After one that does not answer, all others are asked at once whether they do, so
that any number of hung ones costs two moments. Places apart are asked from time to time
whether they answer, by a question that takes no messages.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import trio

from rocketmq_sdk.errors import BrokerError, ConnectError, RequestTimeoutError, RocketMQError
from rocketmq_sdk.lifecycle import open_quiet_nursery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

PATIENCE: Final = 0.5
"""Seconds that a receive waits for a pop which the broker need not hold."""
PROBE_PAUSE: Final = 1.0
"""Seconds between two questions to a place that is set apart."""
_Place = TypeVar("_Place")
_Found = TypeVar("_Found")


class _Attempt(Generic[_Found]):
    """A pop under way."""

    __slots__ = ("ended", "error", "found", "late")

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.found: _Found | None = None
        self.error: RocketMQError | None = None
        self.late = False


class HungPlaces(Generic[_Place, _Found]):
    """Pops places with little patience, and keeps those apart that do not answer.

    `probe` asks a place whether it answers, and raises if not. `returned` is called
    when a place answers again. Tasks live in `nursery`, which the owner sets.
    """

    nursery: trio.Nursery

    def __init__(
        self, probe: Callable[[_Place], Awaitable[object]], returned: Callable[[], None]
    ) -> None:
        self._probe = probe
        self._returned = returned
        self.apart: dict[_Place, RocketMQError] = {}
        """Places that do not answer, with what was heard of them last."""
        self._probed: set[_Place] = set()
        self.arrived: deque[tuple[_Place, _Found]] = deque()
        """What pops have brought that nobody waited for any more."""

    async def pop(self, place: _Place, pop: Callable[[], Awaitable[_Found]]) -> _Found:
        """The answer of a place to a pop, if it comes soon.

        Raises `RequestTimeoutError` if not, and what `pop` raises. After that, and
        after a cancellation, what the pop brings goes to `arrived`.
        """
        attempt: _Attempt[_Found] = _Attempt()
        self.nursery.start_soon(self._run, place, pop, attempt)
        try:
            with trio.move_on_after(PATIENCE):
                await attempt.ended.wait()
        except BaseException:
            attempt.late = True
            if attempt.found is not None:  # it came in the same pass of the loop
                self.arrived.append((place, attempt.found))
            raise
        attempt.late = attempt.found is None
        if attempt.error is not None:
            raise attempt.error
        if attempt.found is None:
            error = RequestTimeoutError(f"no answer to a pop within {PATIENCE:g} s")
            self.apart.setdefault(place, error)
            raise error
        return attempt.found

    async def _run(
        self, place: _Place, pop: Callable[[], Awaitable[_Found]], attempt: _Attempt[_Found]
    ) -> None:
        try:
            attempt.found = await pop()
        except RocketMQError as error:
            attempt.error = error
        attempt.ended.set()
        if attempt.error is None:
            if attempt.late and attempt.found is not None:
                self.arrived.append((place, attempt.found))
            self._back(place)
        elif isinstance(attempt.error, ConnectError | RequestTimeoutError):
            self.apart[place] = attempt.error
            await self._watch(place)
        else:
            self._back(place)

    async def sift(self, places: Iterable[_Place]) -> None:
        """Set apart those of some places that do not answer a question soon."""

        async def ask(place: _Place) -> None:
            error: RocketMQError = RequestTimeoutError(f"no answer within {PATIENCE:g} s")
            with trio.move_on_after(PATIENCE):
                try:
                    await self._probe(place)
                except (ConnectError, RequestTimeoutError) as failure:
                    error = failure
                except RocketMQError:
                    return
                else:
                    return
            self.apart.setdefault(place, error)
            self.nursery.start_soon(self._watch, place)

        async with open_quiet_nursery() as nursery:
            for place in places:
                nursery.start_soon(ask, place)

    async def _watch(self, place: _Place) -> None:
        """Probe a place apart until it is back; one task for each place does it."""
        if place not in self._probed:
            self._probed.add(place)
            try:
                await self._probe_until_back(place)
            finally:
                self._probed.discard(place)

    async def _probe_until_back(self, place: _Place) -> None:
        while place in self.apart:
            await trio.sleep(PROBE_PAUSE)
            try:
                await self._probe(place)
            except BrokerError:
                pass  # it does not like the question, but it is there
            except RocketMQError as failure:
                self.apart[place] = failure
                continue
            self._back(place)

    def _back(self, place: _Place) -> None:
        if self.apart.pop(place, None) is not None:
            self._returned()
