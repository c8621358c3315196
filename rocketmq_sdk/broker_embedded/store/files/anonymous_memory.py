"""Large pieces of memory that go back to the system as soon as nobody holds them.

What a store in memory holds comes and goes in pieces of some hundred KiB. Taken from
the allocator of the process, they leave gaps that it keeps: after some minutes as much
again as the store holds.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WORTH_IT = 64 * 1024
"""Bytes from which on a piece is taken from the system: that costs some 10 us."""


def zeros(size: int) -> mmap.mmap:
    """Memory of the process alone. A page of it takes space once it is written to."""
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except AttributeError:  # Windows has no such flags; its memory is private already
        return mmap.mmap(-1, size)


def joined(parts: Sequence[bytes], size: int) -> bytes | mmap.mmap:
    """The parts one behind the other, `size` bytes together; slices of it are bytes."""
    if size < WORTH_IT:
        return b"".join(parts)
    memory = zeros(size)
    for part in parts:
        memory.write(part)
    return memory
