"""Looks now and then whether the directory of a store is still its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

LOOK_EVERY: float = 5.0


def has_lock(files: FileSystem) -> bool:
    """Whether others can take the directory away."""
    return isinstance(files, OsFileSystem)


async def watch_lock(files: FileSystem, fail: Callable[[StoreError], None]) -> None:
    """Serve until the lock of a directory protects nothing any more; then `fail`."""
    if not isinstance(files, OsFileSystem):
        return
    while True:
        await trio.sleep(LOOK_EVERY)
        lost = await files.run(files.lock_lost)
        if lost is not None:
            fail(StoreError(lost))
            return
