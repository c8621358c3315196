"""What sets a process, a client and a request apart from all others.

Ids are made of it. It comes from the system: the process id and random numbers. Inside
`counted` it comes from counters that begin at 0, so that a run that is to be repeated
makes the same ids each time.
"""

from __future__ import annotations

import os
import secrets
import uuid
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_INCARNATIONS = 1 << 32


class _Numbers:
    """The numbers that are given out at present."""

    __slots__ = ("incarnation", "instances", "requests")

    def __init__(self) -> None:
        self.instances = count(secrets.randbits(40))
        self.incarnation = secrets.randbits(32)
        self.requests: Iterator[int] | None = None
        """Numbers of requests; None for random ones, and for the real process id."""


_numbers = _Numbers()


def process_id() -> int:
    """The id of this process."""
    return os.getpid() if _numbers.requests is None else 1


def next_instance() -> int:
    """A number for a client that no other one of this process has."""
    return next(_numbers.instances)


def next_incarnation() -> int:
    """A number of 32 bits that no other maker of ids in this process has.

    Java fills that field with the hash of a class loader.
    """
    _numbers.incarnation = (_numbers.incarnation + 1) % _INCARNATIONS
    return _numbers.incarnation


def correlation_id() -> str:
    """The text by which a reply finds its request."""
    requests = _numbers.requests
    return str(uuid.uuid4() if requests is None else uuid.UUID(int=next(requests)))


@contextmanager
def counted() -> Iterator[None]:
    """Count from 0 in the block, in the whole process."""
    before = _numbers.instances, _numbers.incarnation, _numbers.requests
    _numbers.instances, _numbers.incarnation, _numbers.requests = count(), 0, count()
    try:
        yield
    finally:
        _numbers.instances, _numbers.incarnation, _numbers.requests = before


def _after_fork() -> None:
    _numbers.incarnation = secrets.randbits(32)


os.register_at_fork(after_in_child=_after_fork)
