"""Power cuts beside a life that goes on: at chosen operations what a power cut would
leave is put aside, with what the store owes then. When the life is over, a store is
opened on each of them and checked as after a crash.

So a life has several crash points, and what led there is not done again for each.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.testing.faults import Faults
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.crash_owed import Wanted

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

SPANS = (30, 100, 300)
"""A fork lies within one of so many operations from the beginning of its life."""


@attrs.define
class Fork:
    """What one power cut leaves."""

    operation: int
    files: FaultyFileSystem
    wanted: Wanted


class Forks:
    """The forks of one run."""

    def __init__(self, seed: int, each: int) -> None:
        self._generator = Random(f"forks {seed}")
        self._each = each
        self._left: list[Fork] = []

    def begin(self, files: FaultyFileSystem, store: MessageStore, wanted: Wanted) -> None:
        """Choose the forks of a life and wait for them."""
        generator = self._generator
        places = {
            files.operations + generator.randrange(generator.choice(SPANS))
            for _ in range(self._each)
        }
        if not places:
            return

        def step() -> None:
            if files.operations in places:
                places.remove(files.operations)
                self._left.append(self._fork(files, store, wanted))

        files.on_step = step

    def _fork(self, files: FaultyFileSystem, store: MessageStore, wanted: Wanted) -> Fork:
        left = files.power_cut(self._generator.randrange(1 << 30))
        left.faults, left.limit_bytes = Faults(), 1 << 40
        owed = wanted.copy()
        owed.accepted = dict(owed.durable)
        owed.expired_below = max(owed.expired_below, store.min_physical_offset)
        return Fork(files.operations, left, owed)

    def take(self) -> list[Fork]:
        """The forks since the last call."""
        left, self._left = self._left, []
        return left
