"""Files in memory that behave like a slow disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.errors import StoreError

T = TypeVar("T")


class Disk(MemoryFileSystem):
    """A disk whose waits take virtual time, are counted, and fail on demand."""

    def __init__(self) -> None:
        super().__init__(write_through=True)
        self.delay = 0.0
        self.waits = 0
        self.failure: StoreError | None = None

    async def run(self, operation: Callable[[], T]) -> T:
        self.waits += 1
        await trio.sleep(self.delay)
        if self.failure is not None:
            raise self.failure
        return operation()
