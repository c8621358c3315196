"""Delay levels as the broker uses them: bounded, looked up by number."""

from rocketmq_sdk.broker_embedded.delay_levels import parse_delay_levels


class DelayLevels:
    """Waiting times by level; level 1 is the first, what is above the last one is lowered to it."""

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
