"""What a command is, and the session in which it runs."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import attrs

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.cli.operate.output import Output
from rocketmq_sdk.clock import SystemClock
from rocketmq_sdk.errors import ConfigurationError


@attrs.frozen
class Session:
    """One run of a command: its options, a connected `Admin`, and where to print."""

    options: argparse.Namespace
    admin: Admin
    out: Output

    def sending(self) -> dict[str, Any]:
        """Settings of a producer: `--timeout` is that of a send, in one attempt.

        A second one could store the message twice.
        """
        timeout = self.admin.client.config.api_timeout
        return {"send_timeout": timeout, "send_timeout_per_attempt": timeout}


@attrs.frozen
class Command:
    """One command of an operator."""

    name: str
    help: str
    run: Callable[[Session], Awaitable[int | None]]
    """Returns the exit code, None for 0."""
    arguments: Callable[[argparse.ArgumentParser], None] = lambda _parser: None
    has_actions: bool = False
    """Whether it has actions, which have the options of the connection themselves."""
    settings: Callable[[argparse.Namespace], Mapping[str, Any]] = lambda _options: {}
    """Settings of the client that go beside those of the connection."""


def whole(text: str) -> int:
    """A number that is not negative. Raises `ArgumentTypeError`."""
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 0")
    return int(text)


def positive(text: str) -> int:
    """A number of at least 1. Raises `ArgumentTypeError`."""
    number = whole(text)
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return number


def seconds(text: str) -> float:
    """Seconds above 0. Raises `ArgumentTypeError`."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return number


def truth(text: str) -> bool:
    """`true` or `false`, as mqadmin has it. Raises `ArgumentTypeError`."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


_MQADMIN_TIME = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})")


def time(text: str) -> int:
    """A time as epoch milliseconds.

    It may be epoch milliseconds, ISO 8601 (local time without a zone), mqadmin's
    `yyyy-MM-dd#HH:mm:ss:SSS` (local time), `now`, or a time ago such as `90s`, `10m`,
    `2h`, `3d`. Raises `ArgumentTypeError`.
    """
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    now = SystemClock().now_ms()
    if text == "now":
        return now
    if ago := re.fullmatch(r"(\d{1,9})([smhd])", text):
        span = int(ago[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[ago[2]]
        return max(0, now - span * 1000)
    if theirs := _MQADMIN_TIME.fullmatch(text):
        text = f"{theirs[1]}T{theirs[2]}.{theirs[3]}"
    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; give 2026-01-31T12:00:00Z, epoch milliseconds, now, or a "
            "time ago such as 90s, 10m, 2h or 3d"
        ) from None


def name_and_value(text: str) -> tuple[str, str]:
    """`name=value`. Raises `ArgumentTypeError`."""
    name, equal, value = text.partition("=")
    if not name or not equal:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def need(options: argparse.Namespace, *names: str) -> None:
    """Raise `ConfigurationError` unless exactly one of some options is given."""
    given = [name for name in names if getattr(options, name) is not None]
    if len(given) != 1:
        flags = " and ".join("--" + name.replace("_", "-") for name in names)
        raise ConfigurationError(f"give exactly one of {flags}")
