"""Long work for one request, done so that the others have their turn in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import trio

from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from rocketmq_sdk.protocol.body import Body
    from rocketmq_sdk.protocol.header import Header
    from rocketmq_sdk.remoting.channel import Continuation

Item = TypeVar("Item")
SLICE: Final = 256
"""Items, of some microseconds each, that are dealt with without interruption."""
LARGE: Final = 4096
"""Entries of a body above which it is encoded in a thread."""


async def slices(items: Sequence[Item], each: int = SLICE) -> AsyncIterator[Sequence[Item]]:
    """The items in slices; the others have their turn between two of them."""
    for first in range(0, len(items), each):
        if first:
            await trio.lowlevel.checkpoint()
        yield items[first : first + each]


async def encoded(body: Body, entries: int) -> bytes:
    """The bytes of a body of so many entries, which nothing changes any more."""
    return body.encode() if entries <= LARGE else await trio.to_thread.run_sync(body.encode)


def answer_of(body: Body, entries: int, header: Header | None = None) -> Command | Continuation:
    """A success with such a body."""
    if entries <= LARGE:
        return Command.response(0, header, body=body.encode())

    async def encode() -> Command:
        return Command.response(0, header, body=await encoded(body, entries))

    return encode
