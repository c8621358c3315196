"""One file of a fixed size in a chain of such files.

`DefaultMappedFile` of Apache RocketMQ 5.4.0. Nothing is mapped here; `os_files` says
why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import Bytes, StoreFile

NAME_DIGITS = 20
_MAX_POSITION = (1 << 63) - 1
_ZEROS = bytes(1024 * 1024)


def file_name(start: int) -> str:
    """The name of the file that starts at a position of its chain."""
    return f"{start:020d}"


def is_position(name: str) -> bool:
    """Whether the name of a file is a position as `file_name` writes it."""
    return (
        len(name) == NAME_DIGITS
        and name.isascii()
        and name.isdecimal()
        and int(name) <= _MAX_POSITION
    )


class ChainedFile:
    """A file of a chain; `start` is the position of its first byte.

    All positions here are byte positions in the chain.
    """

    __slots__ = ("allocated", "end", "file", "size", "start")

    def __init__(self, file: StoreFile, start: int, size: int) -> None:
        self.file = file
        self.start = start
        self.size = size
        self.end = start + size
        self.allocated = start
        """Up to which position space is allocated."""

    def read(self, position: int, size: int) -> bytes:
        """Bytes from a position on, at most to the end of the file."""
        return self.file.pread(min(size, self.end - position), position - self.start)

    def read_nowait(self, position: int, size: int) -> bytes | None:
        """Like `read`; None when it would have to wait for the device."""
        return self.file.pread_nowait(min(size, self.end - position), position - self.start)

    def write(self, position: int, data: Bytes) -> None:
        """Write at a position. Raises `StoreError`.

        The caller does not write past the end of the file.
        """
        self.file.pwrite(data, position - self.start)

    def allocate_to(self, position: int) -> None:
        """Allocate the space up to a position. Raises `StoreFullError`."""
        position = min(position, self.end)
        if position > self.allocated:
            self.file.allocate(self.allocated - self.start, position - self.allocated)
            self.allocated = position

    def zero_from(self, position: int) -> int:
        """Overwrite what follows a position with zeros.

        Returns the number of bytes written; zeros are not written again.
        """
        step = len(_ZEROS)
        written = 0
        for low, high in list(self.file.data_ranges(position - self.start, self.size)):
            for offset in range(low, high, step):
                data = self.file.pread(min(step, high - offset), offset)
                if data == _ZEROS[: len(data)]:
                    continue
                first = len(data) - len(data.lstrip(b"\0"))
                last = len(data.rstrip(b"\0"))
                if first < last:
                    self.file.pwrite(bytes(last - first), offset + first)
                    written += last - first
        return written

    def remove(self) -> None:
        """Remove the file. Raises `StoreError`."""
        self.file.remove()

    def __repr__(self) -> str:
        return f"<ChainedFile {self.file.path} [{self.start}, {self.end})>"
