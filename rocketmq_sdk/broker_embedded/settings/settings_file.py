"""A properties file that settings come from and that changed ones go to.

Apache's broker writes all its settings over the file (`Configuration.persist`). Here
only the lines of changed settings become others; comments and order stay. As with
Apache, the text before the last change is in `<file>.bak`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.settings.properties_file import change_properties
from rocketmq_sdk.broker_embedded.store.files.briefly import run_briefly
from rocketmq_sdk.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_NEW_NAME: Final = frozenset({errno.EBUSY, errno.EACCES, errno.EPERM, errno.EXDEV})
"""What a file says that may be written but not replaced, as one mounted by itself."""


class SettingsFile:
    """A file such as `broker.conf`."""

    __slots__ = ("path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).resolve()
        """Where it is, links followed."""

    def read(self) -> str:
        """The text. Raises `ConfigurationError` when it cannot be read."""
        try:
            return self.path.read_bytes().decode()
        except OSError as error:
            raise ConfigurationError(f"cannot read {self.path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{self.path} is not UTF-8 text: {error.reason} at byte {error.start}"
            ) from error

    async def keep(self, changed: Mapping[str, str]) -> None:
        """Write changed settings into the file; it is synced when this returns.

        The file is read again first, so that what was edited meanwhile stays.
        Cancellation does not interrupt it. Raises `StoreError`; the file is then as it
        was.
        """
        with trio.CancelScope(shield=True):
            await run_briefly(trio.to_thread.run_sync, lambda: self._keep(changed))

    def _keep(self, changed: Mapping[str, str]) -> None:
        try:
            before = self.read()
            after = change_properties(before, changed)
            if after != before:
                self._replace(before.encode(), after.encode())
        except (ConfigurationError, OSError) as error:
            text = str(error) if isinstance(error, ConfigurationError) else error.strerror
            raise StoreError(
                f"the change cannot be kept in {self.path}, so nothing was changed: {text}"
            ) from error

    def _replace(self, before: bytes, after: bytes) -> None:
        fresh = self.path.with_name(self.path.name + ".tmp")
        try:
            _write(self.path.with_name(self.path.name + ".bak"), before)
            _write(fresh, after)
            shutil.copymode(self.path, fresh)
            fresh.replace(self.path)
            _sync_directory(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            if error.errno not in _NO_NEW_NAME:
                raise
            try:
                _write(self.path, after)
            except OSError:
                # The error that led here is the one to tell.
                with contextlib.suppress(OSError):
                    _write(self.path, before)
                raise


def _write(path: Path, data: bytes) -> None:
    with path.open("r+b" if path.exists() else "xb") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
