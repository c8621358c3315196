"""Long work for one request, done so that the others have their turn in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import trio

from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from typing import Self

    from rocketmq_sdk.protocol.body import Body
    from rocketmq_sdk.protocol.header import Header
    from rocketmq_sdk.remoting.channel import Continuation

Item = TypeVar("Item")
SLICE: Final = 256
"""Items, of some microseconds each, that are dealt with without interruption."""
LARGE: Final = 4096
"""Entries of a body above which it is encoded in a thread."""


class _Files(Protocol):
    @property
    def blocking(self) -> bool: ...


class Records(Protocol):
    """What `with_record` needs of a store."""

    @property
    def files(self) -> _Files:
        """Where its log lies."""
        ...

    def record_nowait(self, physical_offset: int, /) -> bytes | None:
        """The record at a position; None when it may have to come from the disk."""
        ...

    async def record_cold(self, physical_offset: int, /) -> bytes | None:
        """The record at a position, read in a thread."""
        ...


class _Slices(Generic[Item]):
    """An iterator and no generator: an error between two slices leaves nothing open."""

    __slots__ = ("_each", "_items", "_next")

    def __init__(self, items: Sequence[Item], each: int) -> None:
        self._items = items
        self._each = each
        self._next = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Item]:
        first = self._next
        if first >= len(self._items):
            raise StopAsyncIteration
        if first:
            await trio.lowlevel.checkpoint()
        self._next = first + self._each
        return self._items[first : self._next]


def slices(items: Sequence[Item], each: int = SLICE) -> AsyncIterator[Sequence[Item]]:
    """The items in slices; the others have their turn between two of them."""
    return _Slices(items, each)


async def encoded(body: Body, entries: int) -> bytes:
    """The bytes of a body of so many entries, which nothing changes any more."""
    return body.encode() if entries <= LARGE else await trio.to_thread.run_sync(body.encode)


def with_record(
    store: Records,
    position: int,
    serve: Callable[[bytes | None], Command | Continuation | None],
) -> Command | Continuation | None:
    """What `serve` answers to the record at a position of the log, None where there is
    none: at once when it is in memory, else after it was read in a thread.
    """
    record = store.record_nowait(position)
    if record is not None or not store.files.blocking:
        return serve(record)

    async def read() -> Command | None:
        answer = serve(await store.record_cold(position))
        return answer if answer is None or isinstance(answer, Command) else await answer()

    return read


def answer_of(body: Body, entries: int, header: Header | None = None) -> Command | Continuation:
    """A success with such a body."""
    if entries <= LARGE:
        return Command.response(0, header, body=body.encode())

    async def encode() -> Command:
        return Command.response(0, header, body=await encoded(body, entries))

    return encode
