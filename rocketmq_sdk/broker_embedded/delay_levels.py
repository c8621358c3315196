"""Delay levels: the text `1s 5s 10s ...` as waiting times (`MessageStoreConfig.messageDelayLevel`, `ScheduleMessageService.parseDelayLevel`)."""

from typing import Final

from rocketmq_sdk.errors import ConfigurationError

_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The waiting times in milliseconds; level 1 is the first.

    Raises `ConfigurationError` for a text that Apache can not read either, and for a negative time.
    """
    levels: list[int] = []
    for word in text.split(" "):
        number, unit = word[:-1], word[-1:]
        if not (number.isascii() and number.isdecimal() and len(number) < 16) or unit not in _UNITS:
            raise ConfigurationError(f"messageDelayLevel={text}: {word!r} is not a time; write numbers with s, m, h or d, separated by single spaces")
        levels.append(int(number) * _UNITS[unit])
    return tuple(levels)
