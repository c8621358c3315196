"""What programs are given as standard streams, made fit for any text.

A stream may be missing, as where a caller has closed it, and its encoding may be one
that lacks most letters (`LC_ALL=C`). Neither is a reason for a command to fail.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO


def prepare() -> None:
    """Let texts that a stream cannot show be shown as escapes; a stream that is missing
    takes everything and keeps nothing.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # It takes the number that is free, which else a socket or a file would get.
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def be_utf8(*streams: TextIO) -> None:
    """What programs read along is UTF-8, as JSON has to be, whatever the locale is."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="strict")
