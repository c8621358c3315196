"""Where the log of a store is: below its root, or elsewhere.

`storePathCommitLog` of Apache. What is made by renaming a log file, and what becomes a
log file by renaming, is on the same file system, in sub-directories of the log's
directory, which Apache's broker skips.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.log.commit_log import DIRECTORY
from rocketmq_sdk.broker_embedded.store.log.next_file import PATH as NEXT_FILE

SET_ASIDE: Final = "setaside"
"""The directory for what stood behind damage."""
_AHEAD: Final = "ahead"


def elsewhere(
    root: str | os.PathLike[str], commit_log: str | os.PathLike[str] | None
) -> dict[str, str]:
    """The names below the root that are elsewhere, with their places.

    Empty for None, and for the place that the log has without being told.
    """
    if commit_log is None or _absolute(commit_log) == _absolute(Path(root) / DIRECTORY):
        return {}
    log = _absolute(commit_log)
    return {
        DIRECTORY: log,
        NEXT_FILE: f"{log}/{_AHEAD}/{NEXT_FILE}",
        SET_ASIDE: f"{log}/{SET_ASIDE}",
    }


def open_files(
    root: str | os.PathLike[str], commit_log: str | os.PathLike[str] | None = None
) -> OsFileSystem:
    """The files of a store, whose log may be elsewhere."""
    return OsFileSystem(root, elsewhere=elsewhere(root, commit_log))


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - links stay as they are
