"""Delay schedules as values.

Policies own no clock and no randomness: both are arguments.
"""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Backoff:
    """Delays that grow by `factor` from `first` to at most `limit` seconds.

    Each is spread by ± `jitter` of itself.
    """

    first: float = 0.1
    limit: float = 10.0
    factor: float = 2.0
    jitter: float = 0.25

    def delay(self, attempt: int, fraction: float = 0.5) -> float:
        """Seconds to wait before try number `attempt` (0 = the first retry).

        `fraction` in [0, 1) places it in the spread.
        """
        base = min(self.limit, self.first * self.factor ** min(attempt, 64))
        return base * (1.0 + self.jitter * (2.0 * fraction - 1.0))
