"""Older releases of Apache's broker, as a client notices them.

`TestBroker(emulate="4.9.7")` does not serve the requests that came after that release,
reports its version, knows no short heartbeats before 5.1.3, and delivers messages with
a delivery time at once before 5.0.0. It behaves as this package's broker in all else.
"""

from __future__ import annotations

from typing import Final

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.releases import FIRST_SERVED, Number, version_in_frames

OLDEST: Final[Number] = (4, 9, 0)
NEWEST: Final[Number] = (5, 4, 0)
"""The release that this package's broker behaves as."""

SHORT_HEARTBEATS: Final[Number] = (5, 1, 3)
TIMERS: Final[Number] = (5, 0, 0)
_OF_SHORT_HEARTBEATS: Final = ("IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE")


class Release:
    """One release, and what it does not know."""

    def __init__(self, text: str) -> None:
        """Raises `ConfigurationError` for a release that cannot be emulated."""
        try:
            major, minor, patch = map(int, text.split("."))
        except ValueError:
            major = minor = patch = -1
        number = major, minor, patch
        if not OLDEST <= number <= NEWEST or (major == 4 and minor != 9) or minor < 0 or patch < 0:
            raise ConfigurationError(
                f"a release {text!r} cannot be emulated; give one from "
                f"{'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}, such as '4.9.7'"
            )
        self.number: Number = number
        """Its parts."""
        self.ordinal = version_in_frames(number)
        """The version in its frames, as `MQVersion` counts."""

    def __str__(self) -> str:
        return ".".join(map(str, self.number))

    def serves(self, code: int) -> bool:
        """Whether it knows a request."""
        return FIRST_SERVED.get(code, OLDEST) <= self.number

    @property
    def knows_timers(self) -> bool:
        """Whether it keeps a message until its delivery time; others come at once."""
        return self.number >= TIMERS

    @staticmethod
    def unknown(code: int) -> Command:
        """How it answers a request that it does not know."""
        return Command.response(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {code} not supported"
        )

    def as_answered(self, code: int, answer: Command) -> Command:
        """An answer as this release gives it."""
        answer.version = self.ordinal
        if code == RequestCode.HEART_BEAT and self.number < SHORT_HEARTBEATS:
            for name in _OF_SHORT_HEARTBEATS:
                answer.ext_fields.pop(name, None)
        return answer
