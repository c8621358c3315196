"""When what could not be read is tried again, and when it is given up.

Pure: nothing here reads, waits or looks at a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Hashable

MOST_TRIES: Final = 6
"""How often one record is read in vain before it is set aside; some 15 seconds."""
BACKOFF: Final = Backoff(first=0.5, limit=30.0, jitter=0.0)


@attrs.frozen
class TryPolicy:
    """How patient a follower is with one record."""

    most: int = MOST_TRIES
    backoff: Backoff = BACKOFF

    def delay(self, failures: int, *, disk_answers: bool = True) -> float | None:
        """Seconds until the next try after so many failures; None to give up.

        While the disk gives nothing at all, nothing is given up: what is read once the
        disk is there again must not be lost.
        """
        if failures >= self.most and disk_answers:
            return None
        return self.backoff.delay(failures - 1)


class Tries:
    """What was tried in vain and waits to be tried again, by a key for each record."""

    __slots__ = ("_failed", "policy")

    def __init__(self, policy: TryPolicy | None = None) -> None:
        self.policy = policy or TryPolicy()
        self._failed: dict[Hashable, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._failed)

    def failures(self, key: Hashable) -> int:
        """How often it was tried in vain."""
        return self._failed.get(key, (0, 0.0))[0]

    def left(self, key: Hashable, now: float) -> float:
        """Seconds until it may be tried; 0 for now."""
        failed = self._failed.get(key)
        return 0.0 if failed is None else max(0.0, failed[1] - now)

    def is_last(self, key: Hashable) -> bool:
        """Whether the next failure is one after which it may be given up."""
        return self.failures(key) + 1 >= self.policy.most

    def failed(self, key: Hashable, now: float, *, disk_answers: bool = True) -> float | None:
        """Note a failure; returns the seconds until the next try, None to give up."""
        failures = self.failures(key) + 1
        delay = self.policy.delay(failures, disk_answers=disk_answers)
        if delay is None:
            self._failed.pop(key, None)
        else:
            self._failed[key] = (failures, now + delay)
        return delay

    def over(self, key: Hashable) -> bool:
        """It was read, or is not wanted any more; whether it had failed before."""
        return self._failed.pop(key, None) is not None
