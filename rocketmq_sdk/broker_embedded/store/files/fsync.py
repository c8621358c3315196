"""Making the bytes of a descriptor durable, as far as the system can do it.

Linux: `fdatasync`. macOS: `fsync` leaves the bytes in the cache of the drive, so
`F_FULLFSYNC` is tried first; not every file system supports it, and then `fsync` has to
do. Elsewhere `fsync`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def make_sync(system: Any = os, control: Any = fcntl) -> Callable[[int], None]:
    """The strongest way of the system to sync a descriptor."""
    full = getattr(control, "F_FULLFSYNC", None)
    if full is not None:

        def sync(descriptor: int) -> None:
            try:
                control.fcntl(descriptor, full)
            except OSError:
                system.fsync(descriptor)

        return sync
    best: Callable[[int], None] = getattr(system, "fdatasync", None) or system.fsync
    return best


sync_descriptor = make_sync()
