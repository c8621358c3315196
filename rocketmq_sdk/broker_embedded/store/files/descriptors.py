"""When the process, or the system, has no more descriptors for files.

Nothing is broken then, only late: somebody opened very many connections. So files that
nobody uses at the moment are closed, and what could not be opened is tried again. A
sync waits for it: one that could not begin is no failed sync, after which nothing would
be known about the disk.
"""

from __future__ import annotations

import errno
import logging
import time
from typing import TYPE_CHECKING, Final, TypeVar

import trio.lowlevel

if TYPE_CHECKING:
    from collections.abc import Callable

_R = TypeVar("_R")
_log = logging.getLogger(__name__)
_NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE})
PAUSE: float = 0.05
"""Seconds between two tries of a thread."""
TRIES: Final = 1200
"""How often a thread tries again: for a minute."""


def none_left(error: OSError) -> bool:
    """Whether an error says that there are no more descriptors."""
    return error.errno in _NONE_LEFT


def opened(
    open_one: Callable[[], _R], make_room: Callable[[], None], *, waits_for: str | None = None
) -> _R:
    """What `open_one` gives; without descriptors it is tried again after `make_room`.

    With `waits_for`, what is to be opened, a thread tries for a minute. Raises
    `OSError`.
    """
    try:
        return open_one()
    except OSError as error:
        if not none_left(error):
            raise
    make_room()
    left = 0 if waits_for is None or trio.lowlevel.in_trio_run() else TRIES
    while True:
        try:
            return open_one()
        except OSError as error:
            if not none_left(error) or not left:
                raise
            if left == TRIES:
                _log.error(
                    "%s waits for a descriptor (%s); raise the limit of open files (ulimit -n)",
                    waits_for,
                    error.strerror,
                )
        left -= 1
        time.sleep(PAUSE)
