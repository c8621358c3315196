"""The device below a `FaultyFileSystem`: its space, its faults, and its end."""

from __future__ import annotations

import itertools
import os
import time
from random import Random
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.testing import MockClock

from rocketmq_sdk.broker_embedded.store.files.os_files import translate
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.testing.faults import Faults, Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.testing.disk_model import Inode
    from rocketmq_sdk.testing.stepped_threads import SteppedThread


_PAUSES: Final = 0.5
"""How many operations in threads the loop goes on before."""


class PowerCutError(StoreError):
    """The simulated machine or process stopped in the middle of this operation."""


class FaultyDevice:
    """Takes the content of files page by page, until it ends.

    The attributes may be changed at any time; as they are at first, nothing fails.
    """

    def __init__(
        self, seed: int, *, page_size: int, limit_bytes: int, now_ms: Callable[[], int]
    ) -> None:
        self.generator = Random(seed)
        self.page_size = page_size
        self.limit_bytes = limit_bytes
        """Space on the device in bytes; files take whole pages."""
        self.cut_at: int | None = None
        """The operation in the middle of which everything ends; None for never.

        Operations are writes, changes of a size, syncs and changes of a name;
        `operations` counts them from 1.
        """
        self.on_step: Callable[[], None] | None = None
        """Callback; called before each such operation, in whatever thread it is."""
        self.faults = Faults()
        """What fails or takes its time."""
        self.write_back_chance = 0.0
        """How probable it is, 0 to 1, that a write also makes some unsynced page of its
        file durable, as systems do in the background.
        """
        self.operations = 0
        self._now_ms = now_ms
        self._dead = False
        self._used_pages = 0
        self._number = itertools.count(1)
        self._thread: SteppedThread[object] | None = None
        """The thread that is running, while the loop stands still."""

    # --- faults

    def meet(self, operation: Operation, path: str, offset: int = 0, size: int = 0) -> int:
        """Let an operation meet its faults; gives how many bytes it may read.

        Takes the time that it takes. Raises `StoreError` or `StoreFullError`, with the
        text of a disk.
        """
        if not self.faults:
            return size
        thread = self._thread
        code, delay, room = self.faults.meet(operation, path, offset, size, on_loop=thread is None)
        if delay and thread is not None:
            thread.pause(delay)
        elif delay:
            stall(delay)
        if code:
            raise translate(OSError(code, os.strerror(code)), path, operation.value)
        return room

    # --- threads

    def pause(self, *, always: bool = False) -> None:
        """In a thread, let the loop go on before the next operation: now and then."""
        if self._thread is not None and (always or self.generator.random() < _PAUSES):
            self._thread.pause()

    def advance(self, thread: SteppedThread[Any]) -> float:
        """Let a thread go on to its next pause; gives the seconds that it waits for."""
        self._thread = thread
        try:
            return thread.advance()
        finally:
            self._thread = None

    # --- the end

    @property
    def dead(self) -> bool:
        """Whether the cut has come."""
        return self._dead

    def step(self, path: str) -> bool:
        """Count an operation; True when it is the one at the cut."""
        self.pause()
        if self._dead:
            raise PowerCutError(f"{path}: after the end")
        if self.on_step is not None:
            self.on_step()
        self.operations += 1
        return self.operations == self.cut_at

    def die(self, path: str) -> None:
        """End in the middle of an operation. Raises `PowerCutError`."""
        self._dead = True
        raise PowerCutError(f"{path}: the end, in operation {self.operations}")

    def halt(self) -> None:
        """End between two operations: all later ones raise `PowerCutError`."""
        self._dead = True

    # --- content

    def overwrite(self, inode: Inode, data: bytes, offset: int) -> None:
        """Put bytes into the pages of a file."""
        if not data:
            return
        length, number = self.page_size, next(self._number)
        end = offset + len(data)
        for page in range(offset // length, (end - 1) // length + 1):
            low, high = max(offset, page * length), min(end, (page + 1) * length)
            old = inode.pages.get(page) or bytes(length)
            inode.put(
                page,
                old[: low - page * length]
                + data[low - offset : high - offset]
                + old[high - page * length :],
                number,
            )
        if end > inode.size:
            inode.size = end
            inode.sizes.append(end)
        inode.modified_ms = self._now_ms()
        if self.write_back_chance and self.generator.random() < self.write_back_chance:
            page = self.generator.choice(list(inode.dirty))
            inode.persist(page, inode.pages.get(page))

    def tear(self, inode: Inode, data: bytes, offset: int) -> None:
        """Write any number of the first bytes."""
        self.overwrite(inode, data[: self.generator.randrange(len(data) + 1)], offset)

    def resize(self, inode: Inode, size: int) -> None:
        """Set the length of a file."""
        length, number = self.page_size, next(self._number)
        if size < inode.size:
            for page in [page for page in inode.pages if (page + 1) * length > size]:
                inside = size - page * length
                inode.put(
                    page,
                    inode.pages[page][:inside].ljust(length, b"\0") if inside > 0 else None,
                    number,
                )
        # Space taken behind the end is given back too, as ext4 and XFS do.
        self.release(inode, {page for page in inode.charged if page * length >= size})
        inode.size = size
        inode.sizes.append(size)
        inode.modified_ms = self._now_ms()

    @property
    def used_bytes(self) -> int:
        """Space in use, in whole pages."""
        return self._used_pages * self.page_size

    def charge(self, inode: Inode, offset: int, length: int) -> int:
        """Take space for a range; returns how many of its bytes fit."""
        if length <= 0:
            return length
        for page in range(offset // self.page_size, (offset + length - 1) // self.page_size + 1):
            if page not in inode.charged:
                if (self._used_pages + 1) * self.page_size > self.limit_bytes:
                    return max(0, page * self.page_size - offset)
                inode.charged.add(page)
                self._used_pages += 1
        return length

    def release(self, inode: Inode, pages: set[int]) -> None:
        """Give the space of some pages back."""
        inode.charged -= pages
        self._used_pages -= len(pages)

    def sync_inode(self, inode: Inode, path: str) -> None:
        """Make the content of a file durable, or fail and forget pages.

        In a thread, that is the content from before the sync began; what is written
        while it waits stays unsynced.
        """
        begin = next(self._number)
        before = {} if self._thread is None else {at: inode.pages.get(at) for at in inode.dirty}
        self.pause(always=True)
        last = self.step(path)
        problem: StoreError | None = None
        if not last:
            try:
                self.meet(Operation.SYNC, path)
            except StoreError as error:
                problem = error
        failing = last or problem is not None
        for page, number in list(inode.dirty.items()):
            if not failing or self.generator.random() < 0.5:
                if number < begin:
                    inode.persist(page, inode.pages.get(page))
                    del inode.dirty[page]
                elif page in before:
                    inode.persist(page, before[page])
            elif not last:
                del inode.dirty[page]
        if last:
            self.die(path)
        if problem is not None:
            raise problem
        inode.durable_size = inode.size
        inode.sizes.clear()


def stall(seconds: float) -> None:
    """Let time pass without letting any task run."""
    clock = trio.lowlevel.current_clock() if trio.lowlevel.in_trio_run() else None
    if isinstance(clock, MockClock):
        clock.jump(seconds)
    else:
        time.sleep(seconds)
