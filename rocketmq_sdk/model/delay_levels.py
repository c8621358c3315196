"""Delay levels: the text `1s 5s 10s ...` as waiting times.

Follows `MessageStoreConfig.messageDelayLevel`, `ScheduleMessageService.parseDelayLevel`
and `DefaultMessageStore.computeDeliverTimestamp`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rocketmq_sdk.errors import ConfigurationError

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""What a broker uses whose `messageDelayLevel` nobody has set."""
_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@lru_cache(maxsize=64)
def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The waiting times in milliseconds; level 1 is the first.

    As Apache does, this takes spaces at the end and no other extra ones. Raises
    `ConfigurationError` for a text that Apache cannot read either, and for a negative
    time.
    """
    levels: list[int] = []
    for word in text.rstrip(" ").split(" "):
        number, unit = word[:-1], word[-1:]
        if not (number.isascii() and number.isdecimal() and len(number) < 16) or unit not in _UNITS:
            raise ConfigurationError(
                f"messageDelayLevel={text}: {word!r} is not a time; write numbers with s, m, h or "
                "d, separated by single spaces"
            )
        levels.append(int(number) * _UNITS[unit])
    return tuple(levels)


class DelayLevels:
    """Waiting times by level.

    Level 1 is the first; a level above the last one counts as the last one. Raises
    `ConfigurationError` as `parse_delay_levels` does.
    """

    __slots__ = ("_delays", "maximum")

    def __init__(self, text: str) -> None:
        self._delays = (0, *parse_delay_levels(text))
        self.maximum = len(self._delays) - 1

    def clamp(self, level: int) -> int:
        """The level that counts."""
        return min(level, self.maximum)

    def delay_ms(self, level: int) -> int:
        """Milliseconds that a message of this level waits; 0 for none."""
        return self._delays[min(level, self.maximum)] if level > 0 else 0
