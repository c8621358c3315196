"""The seam between tables of the broker or name server and the files that keep them."""

from __future__ import annotations

from typing import Protocol


class TableFile(Protocol):
    """A file that holds one JSON value: `store.config_file.ConfigFile` is one."""

    def load(self) -> object | None:
        """The decoded content, or None when there is no file yet."""
        ...

    def store(self, value: object) -> None:
        """Write the content; it is on its way to the disk when this returns."""
        ...
