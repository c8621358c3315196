"""Formatters for log records: one line of JSON, or lines for systemd's journal."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

_ALWAYS: Final = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))
"""Attributes that every record has."""
_SYSLOG: Final = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
    (logging.NOTSET, 7),
)


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON.

    Its members are `time` (ISO 8601, UTC), `level`, `logger`, `message`, all fields
    that were given as `extra`, and `error`, the traceback, where there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One record, without a line's end."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        given = vars(record)
        line |= {
            name: value
            for name, value in given.items()
            if name not in _ALWAYS and name not in line and value is not None
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = self.formatException(record.exc_info)
        elif record.exc_text:
            line["error"] = record.exc_text
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, ensure_ascii=False, default=str)


class JournalFormatter(logging.Formatter):
    """Formats records for systemd's journal (sd-daemon(3)).

    Each line begins with `<N>`, the syslog level. There is no time, which the journal
    writes itself.
    """

    def __init__(self) -> None:
        super().__init__("%(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """One record, without the last line's end."""
        level = next(number for least, number in _SYSLOG if record.levelno >= least or not least)
        return "\n".join(f"<{level}>{line}" for line in super().format(record).splitlines())
