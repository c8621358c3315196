"""A lock that allows one opener of each store directory.

Apache locks byte 0 of the file `lock` (`DefaultMessageStore`,
`java.nio.channels.FileLock`), which is a POSIX record lock, so the two brokers exclude
each other. Such locks belong to the process: they do not exclude a second opener in the
same process, and closing any descriptor of the file gives them up. Hence a registry of
real paths first, and one descriptor for as long as the lock is held.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from struct import Struct
from typing import Final

from rocketmq_sdk.errors import StoreError, StoreLockedError

_held: Final[set[str]] = set()
_CONTENT: Final = b"lock"
_REMEDY: Final = (
    " while the store was open, so that another broker can open it; see that there is none, and "
    "start this one again"
)
_LINUX: bool = sys.platform.startswith("linux")
_FLOCK: Final = Struct("@hhqqi0q")
"""`struct flock` of Linux on 64 bits."""


class DirectoryLock:
    """The right to use a directory."""

    __slots__ = ("_comparable", "_descriptor", "_directory", "_key")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1
        self._key: str | None = None
        self._comparable = False
        """Whether the system numbers files so that they can be told apart."""

    def acquire(self) -> None:
        """Take the lock.

        Raises `StoreLockedError`, which names the directory and the other opener.
        """
        key = os.path.realpath(self._directory)
        if key in _held:
            raise StoreLockedError(
                f"the store {key} is open in this process already; close it first or choose "
                "another directory"
            )
        descriptor = -1
        try:
            descriptor = os.open(
                self._directory / "lock",
                os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0),
                0o644,
            )
            _lock_first_byte(descriptor)
            os.pwrite(descriptor, _CONTENT, 0)
            os.fsync(descriptor)
        except (BlockingIOError, PermissionError) as error:
            if descriptor >= 0:
                os.close(descriptor)
                other = self._other(key)
                raise StoreLockedError(
                    f"the store {key} is open in another process{other}; stop it or choose "
                    "another directory"
                ) from error
            raise StoreError(f"the store {key} cannot be opened: {error.strerror}") from error
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise StoreError(f"the store {key} cannot be locked: {error.strerror}") from error
        _held.add(key)
        self._key = key
        self._descriptor = descriptor
        with contextlib.suppress(OSError):
            self._comparable = self._is_own()

    def _other(self, key: str) -> str:
        try:
            text = (Path(key) / "abort").read_text("ascii", "replace").strip()
        except OSError:
            return ""
        return f" (process {text})" if text.isdecimal() else ""

    def lost(self) -> str | None:
        """Why it protects nothing any more; None while all is well.

        A lock is on a file, not on its name: with another file of that name, or in
        another directory, another broker can take one as well.
        """
        if self._key is None or not self._comparable:
            return None
        try:
            own = self._is_own()
        except FileNotFoundError:
            return f"the directory {self._key}, or its file `lock`, was removed{_REMEDY}"
        except OSError:
            return None  # nobody knows now
        if not own:
            return f"the directory {self._key}, or its file `lock`, was replaced{_REMEDY}"
        return None

    def _is_own(self) -> bool:
        named, held = (self._directory / "lock").stat(), os.fstat(self._descriptor)
        return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)

    def release(self) -> None:
        """Release the lock; does nothing when it is not held."""
        if self._key is not None:
            os.close(self._descriptor)
            _held.discard(self._key)
            self._key = None
            self._descriptor = -1


def _lock_first_byte(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError as error:
        raise StoreError(
            "a store on disk needs POSIX record locks, which this platform lacks; use a store in "
            "memory"
        ) from error
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def is_locked(directory: str | os.PathLike[str]) -> bool:
    """Whether somebody has the directory open, in this process or another one.

    Of other processes it knows what the system tells without an attempt to lock.
    """
    if os.path.realpath(directory) in _held:
        return True
    try:
        import fcntl

        descriptor = os.open(Path(directory) / "lock", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except (ImportError, OSError):
        return False
    try:
        if _LINUX:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            return bool(
                _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK
            )
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
