"""Files on a disk, by descriptor.

Writing with `pwrite` and reading with `pread` was chosen over a mapping after measuring
(CPython 3.11, ext4, records of 300 bytes, allocated space). A copy into a mapping takes
0.5 µs, but the whole process stalls for up to 18 ms where pages are touched for the
first time (73 ms of 110 ms in all), because a page fault holds the interpreter.
`pwrite` takes 1.2 µs, beside a running sync 1.4 µs, with a longest stall of 1.7 ms;
with 16 joined records 0.35 µs each. A full disk is an error of `pwrite`, but kills a
process that writes to a mapping. The commit log keeps its end in memory, so most reads
need no system call at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.files import fsync as durable
from rocketmq_sdk.broker_embedded.store.files.descriptors import opened
from rocketmq_sdk.broker_embedded.store.files.directory_lock import DirectoryLock
from rocketmq_sdk.broker_embedded.store.files.regular_files import (
    NOT_OFFERED,
    is_directory,
    make_directory,
    read_regular,
    written_ranges,
)
from rocketmq_sdk.broker_embedded.store.files.store_thread import start_thread
from rocketmq_sdk.clock import wall_nanoseconds
from rocketmq_sdk.errors import StoreCorruptError, StoreError, StoreFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rocketmq_sdk.broker_embedded.store.files.file_system import Bytes, Join, Mailbox, Result

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_MODE: Final = 0o644
_PRIVATE_MODE: Final = 0o600
_HAS_FALLOCATE: Final = hasattr(os, "posix_fallocate")
_ZEROS: Final = bytes(64 * 1024)
_ZEROS_AHEAD: Final = 1024 * 1024


def translate(error: OSError, path: str, doing: str) -> StoreError:
    """The store's error for an error of the operating system, with the remedy."""
    if error.errno in _NO_SPACE:
        return StoreFullError(
            f"{path}: no space to {doing} ({error.strerror}); free space or raise the quota"
        )
    return StoreError(f"{path}: cannot {doing} ({error.strerror})")


def _advise(descriptor: int, *, ahead: bool) -> None:
    if sys.platform == "linux":
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_NORMAL if ahead else os.POSIX_FADV_RANDOM)


def _used_ratio(path: str | os.PathLike[str]) -> float:
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    total = used + found.f_bavail
    return -(-used * 100 // total) / 100 if total else 0.0


def _private(path: str, flags: int) -> int:
    """Open a file that its owner alone can read, whoever could read it before."""
    descriptor = os.open(path, flags, _PRIVATE_MODE)
    try:
        os.fchmod(descriptor, _PRIVATE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class OsFile:
    """One file.

    Its descriptor comes from a pool that closes the least recently used ones.
    """

    __slots__ = ("_files", "_full_path", "_held", "descriptor", "path", "pins", "removed")

    def __init__(self, files: OsFileSystem, path: str) -> None:
        self.path = path
        self._files = files
        self._full_path = files.full_path(path)
        self._held = -1
        self.descriptor = -1
        self.pins = 0
        self.removed = False

    def open_descriptor(self, create: bool) -> int:
        """Open the file; `create` also creates it and its directories."""
        flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
        try:
            return os.open(self._full_path, flags)
        except FileNotFoundError:
            if not create:
                raise
            Path(self._full_path).parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._full_path, flags | os.O_CREAT, _MODE)

    @contextlib.contextmanager
    def _use(self, doing: str, create: bool = False, *, wait: bool = False) -> Iterator[int]:
        if self.removed:
            raise StoreError(f"{self.path}: cannot {doing}, the file was removed")
        try:
            descriptor = self._files.pin(self, create, wait=wait)
            try:
                yield descriptor
            finally:
                self._files.unpin(self)
        except OSError as error:
            raise translate(error, self.path, doing) from error

    def size(self) -> int:
        """Length in bytes."""
        with self._use("read the size") as descriptor:
            return os.fstat(descriptor).st_size

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes."""
        with self._use("read") as descriptor:
            data = os.pread(descriptor, size, offset)
            while len(data) < size:
                more = os.pread(descriptor, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data

    def pread_nowait(self, size: int, offset: int) -> bytes | None:
        """What the page cache holds, read with `RWF_NOWAIT` where the system has it."""
        if not _NOWAIT:
            return None
        buffer = bytearray(size)
        with self._use("read") as descriptor:
            try:
                found = os.preadv(descriptor, [buffer], offset, _NOWAIT)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL):
                    return None
                raise
        return bytes(buffer) if found == size else None

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write all of `data`."""
        if self._held >= 0:
            try:
                if os.pwrite(self._held, data, offset) == len(data):
                    return
            except OSError as error:
                raise translate(error, self.path, "write") from error
        with self._use("write", create=True) as descriptor:
            view = memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view = view[written:]
                offset += written

    def allocate(self, offset: int, length: int) -> None:
        """Allocate disk space for a range.

        Where system or file system cannot do that, zeros are written where there are
        only zeros.
        """
        with self._use("allocate", create=True) as descriptor:
            if _HAS_FALLOCATE and not self._files.allocates_by_zeros:
                try:
                    os.posix_fallocate(descriptor, offset, length)
                except OSError as error:
                    if error.errno not in NOT_OFFERED:
                        raise
                    self._files.allocate_by_zeros()
                else:
                    return
            for start in range(offset, offset + length, len(_ZEROS)):
                size = min(len(_ZEROS), offset + length - start)
                found = os.pread(descriptor, size, start)
                if not found.strip(b"\0"):
                    os.pwrite(descriptor, _ZEROS[:size], start)

    def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        with self._use("set the length", create=True) as descriptor:
            os.ftruncate(descriptor, size)

    def data_ranges(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges from `written_ranges`."""
        with self._use("look for data") as descriptor:
            yield from written_ranges(descriptor, offset, end)

    def sync(self) -> None:
        """Sync with `fdatasync`; does nothing when the file was removed meanwhile."""
        try:
            with self._use("sync", wait=True) as descriptor:
                self._files.sync_descriptor(descriptor)
        except StoreError:
            if not self.removed:
                raise

    def hold(self) -> None:
        """Keep the descriptor."""
        if self._held < 0:
            try:
                self._held = self._files.pin(self, True)
            except OSError as error:
                raise translate(error, self.path, "open") from error

    def remove(self) -> None:
        """Unlink the file."""
        self.leave()
        self._files.remove(self.path)

    def leave(self) -> None:
        """Release the descriptor for good."""
        self.removed = True
        self.close()

    def close(self) -> None:
        """Release the descriptor."""
        if self._held >= 0:
            self._held = -1
            self._files.unpin(self)
        self._files.forget(self)


class OsFileSystem:
    """The files below one directory, which is created when it is missing.

    At most `max_descriptors` files are open at a time beside those in use. `elsewhere`
    has the names below it that are in another place, with their absolute paths.
    """

    blocking = True
    write_through = True
    makes_ahead = True
    allocation_limit = 1 << 62
    allocates_by_zeros = False
    """Whether space is allocated by writing zeros."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        elsewhere: Mapping[str, str] | None = None,
        max_descriptors: int = 256,
    ) -> None:
        self.root = Path(root)
        self._elsewhere = dict(elsewhere or {})
        self.description = str(self.root)
        self._prefix = str(self.root) + "/"
        self._max_descriptors = max_descriptors
        self._open: OrderedDict[OsFile, None] = OrderedDict()
        self._mutex = threading.Lock()  # never held while anything waits for the disk
        self._lock = DirectoryLock(self.root)
        self._lost: str | None = None
        self._limiter: trio.CapacityLimiter | None = None
        self._read_at_random: set[str] = set()
        if not _HAS_FALLOCATE:
            self.allocate_by_zeros()

    def allocate_by_zeros(self) -> None:
        """Write zeros to allocate space, as there is no other way here."""
        self.allocates_by_zeros = True
        self.allocation_limit = _ZEROS_AHEAD

    def full_path(self, path: str) -> str:
        """The path as the operating system knows it."""
        if self._elsewhere:
            name, slash, rest = path.partition("/")
            if name in self._elsewhere:
                return self._elsewhere[name] + slash + rest
        return self._prefix + path

    def pin(self, file: OsFile, create: bool = False, *, wait: bool = False) -> int:
        """A descriptor that stays open until `unpin`; callable from any thread.

        With `wait` a thread waits for a while when the process has no more of them.
        """
        with self._mutex:
            if file.descriptor >= 0:
                return self._pinned(file)
            idle = self._take_idle()
        for descriptor in idle:
            os.close(descriptor)
        found = opened(
            lambda: file.open_descriptor(create),
            self._make_room,
            waits_for=file.path if wait else None,
        )
        with self._mutex:
            if file.descriptor < 0:
                file.descriptor, found = found, -1
                self._open[file] = None
                if self._read_at_random and file.path.rpartition("/")[0] in self._read_at_random:
                    _advise(file.descriptor, ahead=False)
            descriptor = self._pinned(file)
        if found >= 0:
            os.close(found)  # another thread was quicker
        return descriptor

    def _pinned(self, file: OsFile) -> int:
        self._open.move_to_end(file)
        file.pins += 1
        return file.descriptor

    def read_ahead(self, directory: str, *, wanted: bool) -> None:
        """Advise the system on reading ahead, where there is `posix_fadvise`."""
        with self._mutex:
            if wanted:
                self._read_at_random.discard(directory)
            else:
                self._read_at_random.add(directory)
            for file in self._open:
                if file.path.rpartition("/")[0] == directory:
                    _advise(file.descriptor, ahead=wanted)

    def unpin(self, file: OsFile) -> None:
        """Counterpart of `pin`; the last one closes what was removed meanwhile."""
        with self._mutex:
            file.pins -= 1
            gone = file.removed and file.pins == 0 and file.descriptor >= 0
            descriptor = self._take(file) if gone else -1
        if gone:
            os.close(descriptor)

    def forget(self, file: OsFile) -> None:
        """Close the descriptor unless another thread uses it.

        In that case `unpin` or eviction closes it later.
        """
        with self._mutex:
            unused = file.descriptor >= 0 and file.pins == 0
            descriptor = self._take(file) if unused else -1
        if unused:
            os.close(descriptor)

    def _take_idle(self) -> list[int]:
        """Make room in the pool: the descriptors that the caller closes."""
        if len(self._open) < self._max_descriptors:
            return []
        idle = [file for file in self._open if file.pins == 0]
        return [self._take(file) for file in idle[: max(1, self._max_descriptors // 8)]]

    def _make_room(self) -> None:
        """The process has no more descriptors: give up all that can be spared."""
        with self._mutex:
            idle = [self._take(file) for file in list(self._open) if file.pins == 0]
        for descriptor in idle:
            os.close(descriptor)

    def _take(self, file: OsFile) -> int:
        """Take a descriptor out of the pool; the caller closes it without the mutex.

        To close may wait for the disk, and whoever reads or writes would wait as well.
        """
        descriptor, file.descriptor = file.descriptor, -1
        self._open.pop(file, None)
        return descriptor

    def sync_descriptor(self, descriptor: int) -> None:
        """Make the data of one descriptor durable."""
        durable.sync_descriptor(descriptor)

    def lock(self) -> None:
        """Take the lock of the directory, which is made with a durable name."""
        try:
            make_directory(self.root)
        except OSError as error:
            raise translate(error, self.description, "make the directory") from error
        self._lock.acquire()

    def lock_lost(self) -> str | None:
        """Why the lock protects nothing any more; callable from any thread.

        From then on no file is replaced or removed: they may be those of others.
        """
        self._lost = self._lost or self._lock.lost()
        return self._lost

    def _check_lock(self, path: str) -> None:
        if self._lost is not None:
            raise StoreError(f"{path} is left alone: {self._lost}")

    def unlock(self) -> None:
        """Close every descriptor and release the lock."""
        with self._mutex:
            left = [self._take(file) for file in list(self._open)]
        for descriptor in left:
            os.close(descriptor)
        self._lock.release()

    def open(self, path: str) -> OsFile:
        """A handle; the first use opens the file."""
        return OsFile(self, path)

    def create(self, path: str, size: int) -> OsFile:
        """Create a sparse file."""
        file = OsFile(self, path)
        file.truncate(0)
        file.truncate(size)
        return file

    def exists(self, path: str) -> bool:
        """Whether there is something of that name."""
        return os.path.lexists(self.full_path(path))

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        try:
            with opened(lambda: os.scandir(self.full_path(directory)), self._make_room) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            if os.path.islink(self.full_path(directory)):  # noqa: PTH114 - by its text
                raise StoreCorruptError(
                    f"{directory} is a link that leads nowhere; remove it, or make the directory "
                    "it names"
                ) from None
            return []
        except OSError as error:
            raise translate(error, directory, "list the directory") from error

    def file_sizes(self, directory: str) -> list[tuple[str, int]]:
        """Names and sizes, sorted, without files that disappear meanwhile.

        Raises `StoreCorruptError` for what is neither file nor directory.
        """
        found: list[tuple[str, int]] = []
        for entry in self._entries(directory):
            try:
                if entry.is_file():
                    found.append((entry.name, entry.stat().st_size))
                elif not entry.is_dir():
                    raise StoreCorruptError(
                        f"{directory}/{entry.name} is no regular file; move it away"
                    )
            except FileNotFoundError:
                continue
            except OSError as error:  # a link to itself
                raise translate(error, f"{directory}/{entry.name}", "read the size") from error
        return found

    def directory_names(self, directory: str) -> list[str]:
        """Names, sorted."""
        return [entry.name for entry in self._entries(directory) if is_directory(entry)]

    def modified_ms(self, path: str) -> int:
        """The time from the file system."""
        try:
            return Path(self.full_path(path)).stat().st_mtime_ns // 1_000_000
        except OSError as error:
            raise translate(error, path, "read the time") from error

    def stamp_ms(self) -> int:
        """By the system's clock."""
        return wall_nanoseconds() // 1_000_000

    def capacity_bytes(self) -> int:
        """What users may fill; the rest is the administrator's."""
        try:
            found = os.statvfs(self.root)
        except OSError as error:
            raise translate(error, self.description, "read the size of the disk") from error
        return (found.f_blocks - found.f_bfree + found.f_bavail) * found.f_frsize

    def used_ratio(self) -> float:
        """The used part of what users may fill, as Apache computes it.

        In whole percent, rounded up (`UtilAll.getDiskPartitionSpaceUsedPercent`); of
        the fullest disk when something is elsewhere.
        """
        places = [Path(path) for path in self._elsewhere.values()]
        try:
            return max([_used_ratio(self.root), *map(_used_ratio, filter(Path.is_dir, places))])
        except OSError as error:
            raise translate(error, self.description, "read the free space") from error

    def read(self, path: str) -> bytes | None:
        """The whole content. Raises `StoreCorruptError` for what is not a file."""
        try:
            return opened(lambda: read_regular(self.full_path(path)), self._make_room)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translate(error, path, "read") from error
        except ValueError as error:
            raise StoreCorruptError(f"{path} is no regular file; move it away") from error

    def write(self, path: str, data: bytes, *, private: bool = False) -> None:
        """Replace the content and sync it; a private file has the mode 0600."""
        full_path = Path(self.full_path(path))
        self._check_lock(path)
        try:
            full_path.parent.mkdir(parents=True, exist_ok=True)
            opener = _private if private else None
            with opened(
                lambda: open(full_path, "wb", opener=opener),
                self._make_room,
            ) as file:
                file.write(data)
                file.flush()
                durable.sync_descriptor(file.fileno())
        except OSError as error:
            raise translate(error, path, "write") from error

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory atomically; replaces a file of the new name."""
        self._check_lock(old)
        try:
            Path(self.full_path(old)).replace(self.full_path(new))
        except OSError as error:
            raise translate(error, old, f"rename to {new}") from error

    def remove(self, path: str) -> None:
        """Remove a file; the owner of an open handle must mark that one."""
        self._check_lock(path)
        try:
            Path(self.full_path(path)).unlink(missing_ok=True)
        except OSError as error:
            raise translate(error, path, "remove") from error

    def remove_tree(self, directory: str) -> None:
        """Remove a directory and all below it, or what stands in its place."""
        path = Path(self.full_path(directory))
        self._check_lock(directory)
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise translate(error, directory, "remove") from error

    def sync_directory(self, directory: str) -> None:
        """Sync the directory itself; nothing when it is missing."""
        try:
            descriptor = opened(
                lambda: os.open(self.full_path(directory), os.O_RDONLY),
                self._make_room,
                waits_for=directory,
            )
        except FileNotFoundError:
            return
        except OSError as error:
            raise translate(error, directory, "open") from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise translate(error, directory, "sync") from error
        finally:
            os.close(descriptor)

    async def run(self, operation: Callable[[], Result]) -> Result:
        """Run the operation in a thread, at most four at a time for one store."""
        if self._limiter is None:
            self._limiter = trio.CapacityLimiter(4)
        return await trio.to_thread.run_sync(operation, limiter=self._limiter)

    def start_thread(self, name: str, work: Callable[[Mailbox], None]) -> tuple[Mailbox, Join]:
        """A thread of the operating system."""
        return start_thread(name, work)
