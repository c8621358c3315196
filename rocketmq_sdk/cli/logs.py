"""Where the log of a command goes: standard error, the journal or a file."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.log_format import JournalFormatter, JsonFormatter

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")
FILE_SIZE: Final = 10 * 1024 * 1024
FILES: Final = 5
_CLI: Final = "rocketmq_sdk.cli"
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def size(text: str) -> int:
    """Bytes, or `64k`, `10M`, `1G`. Raises `ArgumentTypeError`."""
    number, unit = text[:-1], text[-1:].lower()
    if unit.isdigit():
        number, unit = text, ""
    if not (number.isascii() and number.isdigit()) or unit not in _UNITS or not int(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; give bytes, or 64k, 10M, 1G")
    return int(number) * _UNITS[unit]


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1000):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 1000")
    return int(text)


def log_arguments(parser: argparse.ArgumentParser, *, inner: bool = False) -> None:
    """Options of the log.

    They stand in front of the command; `inner` ones may follow commands that run for
    long, and win.
    """
    group = parser.add_argument_group("log")

    def add(name: str, default: object, help_text: str, **settings: object) -> None:
        group.add_argument(
            name,
            default=argparse.SUPPRESS if inner else default,
            help=help_text,
            **settings,  # type: ignore[arg-type]
        )

    add("--log-level", "warning", "least level to log (default: warning)", choices=LEVELS)
    add(
        "--log-format",
        "text",
        "text (default; for systemd's journal with its levels), or one JSON object on each line "
        "with topic, group, queue, request",
        choices=FORMATS,
    )
    add(
        "--log-file",
        None,
        "log to this file instead of standard error; it is rotated",
        metavar="FILE",
    )
    add("--log-file-size", FILE_SIZE, "begin a new file then (default: 10M)", type=size)
    add("--log-files", FILES, f"how many old files are kept (default: {FILES})", type=_number)


class _File(RotatingFileHandler):
    """A log file whose disk may be full: that is said once, and the program goes on."""

    _said = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base's
        """Tell of an error that a record met on its way to the file."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._said:
            self._said = True
            print(f"rocketmq: the log {self.baseFilename} lacks records: {error}", file=sys.stderr)


def _to_journal() -> bool:
    """Whether standard error is the journal (`JOURNAL_STREAM` of systemd.exec(5))."""
    device, _colon, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        told = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(told.st_dev), str(told.st_ino))


def begin_log(options: argparse.Namespace) -> None:
    """Let the root logger write as the options say.

    Raises `ConfigurationError` for a file that cannot be written.
    """
    handler: logging.Handler
    if options.log_file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            handler = _File(
                Path(options.log_file),
                maxBytes=options.log_file_size,
                backupCount=options.log_files,
                encoding="utf-8",
            )
        except OSError as error:
            raise ConfigurationError(
                f"--log-file {options.log_file} cannot be written: {error}"
            ) from error
    if options.log_format == "json":
        handler.setFormatter(JsonFormatter())
    elif options.log_file is None and _to_journal():
        handler.setFormatter(JournalFormatter())
    else:
        handler.setFormatter(logging.Formatter(_TEXT))
    logging.basicConfig(level=options.log_level.upper(), handlers=[handler])


def tell(text: str, level: int = logging.WARNING, *, before: str = "rocketmq: warning: ") -> None:
    """Tell the operator something on standard error, whatever the level of the log is.

    Where the log goes there too, as JSON or to the journal, it is a record of it; else
    a line with `before` in front.
    """
    for handler in logging.getLogger().handlers:
        is_there = getattr(handler, "stream", None) is sys.stderr
        if is_there and isinstance(handler.formatter, JsonFormatter | JournalFormatter):
            handler.handle(logging.LogRecord(_CLI, level, __file__, 0, text, None, None))
            return
    print(f"{before}{text}", file=sys.stderr, flush=True)
