"""Which operations of a disk fail, end early or take their time.

    bad = files.faults.fail(Operation.READ, "commitlog/*", at=range(4096, 8192))
    ...
    assert bad.hits
    bad.lift()

`files` is a `FaultyFileSystem`. Faults last until they are lifted, also for the next
process (`kill`) and after a power cut: it is the same disk.
"""

from __future__ import annotations

import enum
import errno
import os
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.testing.failures import checked_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


class Operation(enum.Enum):
    """What a file system is asked to do."""

    READ = "read"
    """Read bytes of a file, or a small file as a whole."""
    WRITE = "write"
    """Write bytes; a small file is written by TRUNCATE, WRITE and SYNC."""
    ALLOCATE = "allocate"
    """Take space for a range in advance."""
    TRUNCATE = "set the length"
    """Cut or extend a file."""
    SYNC = "sync"
    """Make the content of a file durable."""
    SYNC_DIRECTORY = "sync the directory"
    """Make the names in a directory durable; the path is the directory's."""
    CREATE = "create"
    """Make a new file; a directory of the disk may have no place for its name."""
    RENAME = "rename"
    """Rename a file; the path is the old one."""
    REMOVE = "remove"
    """Remove a file."""
    LIST = "list the directory"
    """List a directory's files or directories; the path is the directory's."""


_OF_A_RANGE = (Operation.READ, Operation.WRITE, Operation.ALLOCATE)


class Fault:
    """One thing that is wrong with a disk, until `lift` or the end of a `with`."""

    __slots__ = (
        "_after",
        "_at",
        "_faults",
        "_left",
        "code",
        "delay",
        "hits",
        "on_loop",
        "operation",
        "path",
        "paths",
        "short",
    )

    def __init__(
        self,
        faults: Faults,
        operation: Operation,
        path: str,
        *,
        at: range | None,
        after: int,
        times: int | None,
        code: int = 0,
        delay: float = 0.0,
        short: bool = False,
    ) -> None:
        if at is not None and (operation not in _OF_A_RANGE or at.step != 1):
            raise ValueError(f"{at!r} is no range of bytes to {operation.value}")
        if times is not None and times < 1:
            raise ConfigurationError(f"times is {times}; it must be at least 1, or None for always")
        if after < 0:
            raise ConfigurationError(f"after is {after}; it must be at least 0")
        checked_seconds("the delay of an operation", delay)
        self.operation = operation
        self.path = path
        self.code = code
        """The number of the system's error, such as `errno.EIO`; 0 for none."""
        self.delay = delay
        """Seconds that the operation takes."""
        self.short = short
        """Whether a read ends where the range begins."""
        self.hits = 0
        """How many operations it met."""
        self.paths: Counter[str] = Counter()
        """How often it met each path."""
        self.on_loop = 0
        """How many of the hits were not inside `run`: they held up the event loop."""
        self._faults = faults
        self._at = at
        self._after = after
        self._left = times

    def matches(self, operation: Operation, path: str, offset: int, size: int) -> bool:
        """Whether it meets an operation now, or counts it as one to let pass."""
        return (
            operation is self.operation
            and self._left != 0
            and fnmatchcase(path, self.path)
            and (self._at is None or (offset < self._at.stop and self._at.start < offset + size))
        )

    @property
    def is_due(self) -> bool:
        """Whether it meets the next operation that matches."""
        return not self._after

    def strike(self, path: str, *, on_loop: bool) -> bool:
        """Count an operation that matches; whether it is met."""
        if self._after:
            self._after -= 1
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1
        self.paths[path] += 1
        self.on_loop += on_loop
        return True

    def room(self, offset: int, size: int) -> int:
        """How many bytes a read from an offset on gives."""
        if not self.short:
            return size
        return 0 if self._at is None else max(0, min(size, self._at.start - offset))

    def lift(self) -> None:
        """End it; its counts stay."""
        self._faults.discard(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.lift()

    def __repr__(self) -> str:
        what = os.strerror(self.code) if self.code else "short" if self.short else f"{self.delay} s"
        return f"<Fault {self.operation.name} {self.path}: {what}, {self.hits} hits>"


class Outcome(NamedTuple):
    """What becomes of one operation."""

    code: int
    """The number of the error it fails with; 0 for none."""
    delay: float
    """How many seconds it takes."""
    room: int
    """How many bytes of the range are read."""


class Faults:
    """All that is wrong with one disk.

    Paths are patterns as in `fnmatch`, in which `*` stands for `/` as well. `at` limits
    a fault to operations that touch these bytes of a file. The first `after` operations
    that match pass; then `times` of them are met, None for all.
    """

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def __len__(self) -> int:
        return len(self._faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def fail(
        self,
        operation: Operation,
        path: str = "*",
        *,
        at: range | None = None,
        after: int = 0,
        times: int | None = None,
        code: int = errno.EIO,
    ) -> Fault:
        """Let operations fail with an error of the system.

        EIO is a broken medium, ENOSPC a full disk. Any number of the first bytes of a
        write that fails is written, and a sync that fails forgets pages.
        """
        return self._add(Fault(self, operation, path, at=at, after=after, times=times, code=code))

    def slow(
        self,
        operation: Operation,
        path: str = "*",
        *,
        delay: float,
        at: range | None = None,
        after: int = 0,
        times: int | None = None,
    ) -> Fault:
        """Let operations take `delay` seconds more.

        Inside `run` other tasks go on meanwhile, four operations at a time as on a
        disk. Elsewhere it stops the event loop for that time: it moves the clock of a
        test in virtual time, and sleeps otherwise.
        """
        return self._add(Fault(self, operation, path, at=at, after=after, times=times, delay=delay))

    def shorten(
        self,
        path: str = "*",
        *,
        at: range | None = None,
        after: int = 0,
        times: int | None = None,
    ) -> Fault:
        """Let reads end before the first byte of `at`, or give nothing without `at`.

        This is what a reader sees of a file that somebody cut.
        """
        return self._add(
            Fault(self, Operation.READ, path, at=at, after=after, times=times, short=True)
        )

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    def discard(self, fault: Fault) -> None:
        """Lift one fault, if it is there."""
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        """Lift all."""
        self._faults.clear()

    def waits(self, path: str, offset: int, size: int) -> bool:
        """Whether a read would meet a fault: its bytes are then not in memory."""
        return any(
            fault.is_due and fault.matches(Operation.READ, path, offset, size)
            for fault in self._faults
        )

    def meet(
        self, operation: Operation, path: str, offset: int, size: int, *, on_loop: bool
    ) -> Outcome:
        """What becomes of an operation; counts it at each fault that it meets."""
        code, delay, room = 0, 0.0, size
        for fault in self._faults:
            if fault.matches(operation, path, offset, size) and fault.strike(path, on_loop=on_loop):
                code = code or fault.code
                delay += fault.delay
                room = min(room, fault.room(offset, size))
        return Outcome(code, delay, room)


class DeclaredFaults(Faults):
    """The faults of a disk, for a test whose faults must meet something."""

    __slots__ = ("_declared",)

    def __init__(self, faults: Faults, declared: list[Any]) -> None:
        """Each new one is added to `declared` as well."""
        self._faults = faults._faults
        self._declared = declared

    def _add(self, fault: Fault) -> Fault:
        self._declared.append(fault)
        return super()._add(fault)
