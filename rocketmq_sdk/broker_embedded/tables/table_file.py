"""The seam between tables of the broker or name server and the files that keep them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import trio


class TableFile(Protocol):
    """A file that holds one JSON value: `ConfigFile` of the store is one."""

    def load(self) -> object | None:
        """The decoded content, or None when there is no file yet."""
        ...

    def store(self, value: object) -> None:
        """Write the content; it is on its way to the disk when this returns."""
        ...


@runtime_checkable
class DiskFile(TableFile, Protocol):
    """A file that can be written beside the loop."""

    async def save_briefly(self, value: object) -> None:
        """`store` a value that nothing changes any more, beside the loop."""
        ...


async def write_whole(file: TableFile | None, content: object) -> None:
    """Write a table that nothing changes any more, beside the loop where there is a
    disk.

    Cancellation waits for the end of it, so that its caller can take over what is
    written. Raises `StoreError`.
    """
    if isinstance(file, DiskFile):
        with trio.CancelScope(shield=True):
            await file.save_briefly(content)
    elif file is not None:
        file.store(content)
