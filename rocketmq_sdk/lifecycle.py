"""Resources that own tasks: bounded cleanup, and errors that are raised as themselves.

A resource of this package is an async context manager that owns a nursery. Two things
would otherwise leak out of such a nursery into the caller's `except`: exception groups
with one member, and cleanup that waits for ever because cancellation is a level in trio
and every await of a cleanup block needs both a shield and a bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self

import trio

from rocketmq_sdk.constructors import explained
from rocketmq_sdk.errors import ClosedError, WrongRunError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType


_TOKEN: Final = (
    "token is trio.lowlevel.current_trio_token(), asked for in that run, and run_sync takes the "
    "place of run for what is not async"
)


class RunsOnce(ABC):
    """An async context manager whose life is the generator `_run`, entered once.

    It may be made anywhere. Entering raises `WrongRunError` outside of trio, and
    `ClosedError` a second time. From then on it works in the `trio.run` that has
    entered it, and `check_run` refuses all others.
    """

    _second_time: ClassVar[str]
    """What to tell somebody who enters it again."""
    _life: AbstractAsyncContextManager[None] | None = None
    _run_clock: trio.abc.Clock | None = None
    """The clock of the run that has entered it.

    Each run has its own, and asking for it costs less than for the run's token.
    """
    _run_thread = 0
    """The thread of the run."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        explained(cls)

    @abstractmethod
    def _run(self) -> AbstractAsyncContextManager[None]:
        """The life of the resource.

        What stands before its `yield` happens on entering, the rest on leaving.
        """

    async def __aenter__(self) -> Self:
        if not trio.lowlevel.in_trio_task():
            raise WrongRunError(
                f"rocketmq_sdk.{type(self).__name__} runs on trio, and this is not a trio task. "
                f"In asyncio use rocketmq_sdk.aio.{type(self).__name__}, in plain threads "
                f"rocketmq_sdk.sync.{type(self).__name__}: they have the same methods. On trio, "
                "enter it in an async function that trio.run has started"
            )
        if self._life is not None:
            raise ClosedError(self._second_time)
        self._run_clock, self._run_thread = trio.lowlevel.current_clock(), get_ident()
        self._life = self._run()
        await self._life.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._life is not None
        return await self._life.__aexit__(kind, error, traceback)

    def check_run(self) -> None:
        """Raise `WrongRunError` unless called in the run that has entered it.

        Outside of trio too. Does nothing before it is entered.
        """
        try:
            clock = trio.lowlevel.current_clock()
        except RuntimeError:
            clock = None
        if clock is not self._run_clock and self._run_clock is not None:
            raise self._in_wrong_run(clock)

    def _in_wrong_run(self, clock: trio.abc.Clock | None) -> WrongRunError:
        """The error for a call from elsewhere; `clock` is that of the caller's run."""
        kind = type(self).__name__
        if clock is None:
            return WrongRunError(
                f"this {kind} works in the trio.run that has entered it, and the call did not come "
                "from a task of trio. In plain threads use rocketmq_sdk.sync, in asyncio "
                "rocketmq_sdk.aio; a thread beside a program on trio calls "
                f"trio.from_thread.run(method, *arguments, trio_token=token); {_TOKEN}"
            )
        return WrongRunError(
            f"this {kind} was entered in another trio.run, and works in that one alone. Make one "
            "in each trio.run, or hand the call over: await trio.to_thread.run_sync(lambda: "
            f"trio.from_thread.run(method, *arguments, trio_token=token)); {_TOKEN}"
        )


def unwrap_single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The only leaf of a group with one member at each level, else the group itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def raise_unwrapped(
    group: BaseExceptionGroup[BaseException], of_block: BaseException | None = None
) -> NoReturn:
    """Raise what a nursery's group holds: its only member as itself, else the group.

    `of_block` is what was raised inside the nursery's block: when no task has failed,
    it is raised as it is, also when it is a group of one.
    """
    error = unwrap_single(group) if of_block is None else _of_both(group, of_block)
    # As `raise` adds the group as the context, which the error did not have.
    context, suppressed = error.__context__, error.__suppress_context__
    try:
        raise error
    finally:
        error.__context__, error.__suppress_context__ = context, suppressed
        del error, group, of_block


def _of_both(group: BaseExceptionGroup[BaseException], of_block: BaseException) -> BaseException:
    """What to raise of a group, when the nursery's block has raised `of_block`."""
    failures = [error for error in group.exceptions if _rest(error) is not None]
    if _rest(of_block) is None:
        # The block was cancelled; whatever failed is a task's.
        return unwrap_single(group) if failures else of_block
    if len(failures) > 1:
        return group
    # The nursery may have caught the cancellation in it, and keeps the rest in a copy.
    return of_block if _rest(of_block) is of_block else failures[0]


def _rest(error: BaseException) -> BaseException | None:
    """An error without the cancellations in it, itself if there are none."""
    if isinstance(error, trio.Cancelled):
        return None
    if isinstance(error, BaseExceptionGroup):
        cancelled, rest = error.split(trio.Cancelled)
        return error if cancelled is None else rest
    return error


@asynccontextmanager
async def open_quiet_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery that raises a single failure as itself, not as a group of one.

    What its block raises comes out as it is.
    """
    of_block: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as error:
                of_block = error
                raise
    except BaseExceptionGroup as group:
        raise_unwrapped(group, of_block)
    finally:
        del of_block


@asynccontextmanager
async def bounded_cleanup(seconds: float) -> AsyncIterator[trio.CancelScope]:
    """Shield the block from outer cancellation, for at most `seconds`.

    The scope tells whether the time ran out.
    """
    with trio.move_on_after(seconds, shield=True) as scope:
        yield scope
