"""Figures of the process, under the names that Prometheus' own clients use."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.metrics.page import Kind, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.broker_embedded.metrics.page import Samples

_PROC: Final = Path("/proc/self")
_RESIDENT: Final = 1
"""The place of the number of resident pages in `statm`."""


def _resident() -> Samples:
    try:
        pages = int((_PROC / "statm").read_bytes().split()[_RESIDENT])
    except (OSError, ValueError, IndexError):
        return  # not Linux
    yield (), pages * os.sysconf("SC_PAGE_SIZE")


def _descriptors() -> Samples:
    try:
        yield (), len(os.listdir(_PROC / "fd"))  # noqa: PTH208 - a count of names
    except OSError:
        return  # not Linux


def _most_descriptors() -> Samples:
    yield (), resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _processor_seconds() -> Samples:
    used = os.times()
    yield (), used.user + used.system


def rows() -> Iterator[Row]:
    """Memory, open files and processor time."""
    gauge, counter = Kind.GAUGE, Kind.COUNTER
    yield Row("process_resident_memory_bytes", gauge, "Resident memory in bytes.", (), _resident)
    yield Row("process_open_fds", gauge, "Open file descriptors.", (), _descriptors)
    yield Row("process_max_fds", gauge, "Most open file descriptors.", (), _most_descriptors)
    text = "User and system processor time in seconds."
    yield Row("process_cpu_seconds_total", counter, text, (), _processor_seconds)
    if sys.implementation.name:
        version = ".".join(map(str, sys.version_info[:3]))
        yield Row(
            "python_info",
            gauge,
            "The Python that the broker runs on.",
            ("implementation", "version"),
            lambda: iter((((sys.implementation.name, version), 1),)),
        )
