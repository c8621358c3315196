"""The whole state of a broker under test, kept and put back."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.testing.directories import FileContent, read_tree, write_tree

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

    from rocketmq_sdk.testing.kept_files import KeptFiles

_INDEX: Final = "snapshot.json"
_FORMAT: Final = 1
_DAMAGED: Final = (
    *(OSError, EOFError, KeyError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error, RuntimeError),  # also of encryption or another format
)


@attrs.frozen
class Snapshot:
    """All files of a broker that was stopped, in memory.

    Made by `TestBroker.snapshot`; any test broker can have its state by `restore`,
    also one in a later process.
    """

    files: tuple[FileContent, ...] = attrs.field(
        default=(), repr=lambda files: f"<{len(files)} files>"
    )

    @classmethod
    def of(cls, kept: KeptFiles | None, path: Path | None) -> Self:
        """What is in memory, or else in a directory."""
        found: Iterable[FileContent] = ()
        if kept is not None:
            found = kept.contents()
        elif path is not None:
            found = read_tree(path)
        return cls(tuple(found))

    def put_back(self, kept: KeptFiles | None, path: Path | None) -> None:
        """Replace what is in memory, or else in a directory. Nobody has it open."""
        if kept is not None:
            kept.replace_all(self.files)
        elif path is not None:
            write_tree(path, self.files)

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return sum(len(data) for _path, _size, pieces in self.files for _at, data in pieces)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write it to a file, a ZIP archive."""
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            index = [
                {"path": path, "size": size, "pieces": [[at, len(data)] for at, data in pieces]}
                for path, size, pieces in self.files
            ]
            archive.writestr(_INDEX, json.dumps({"format": _FORMAT, "files": index}))
            for number, (_path, _size, pieces) in enumerate(self.files):
                archive.writestr(str(number), b"".join(data for _at, data in pieces))

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Self:
        """Read what `save` has written; `ConfigurationError` for anything else."""
        try:
            with zipfile.ZipFile(file) as archive:
                index = json.loads(archive.read(_INDEX))
                if index["format"] != _FORMAT:
                    raise ValueError(f"its format is {index['format']!r}")
                return cls(
                    tuple(
                        _file(entry, archive.read(str(number)))
                        for number, entry in enumerate(index["files"])
                    )
                )
        except _DAMAGED as error:
            raise ConfigurationError(f"{file} is no snapshot of a broker: {error}") from error


def checked_snapshot(given: object) -> Snapshot:
    """A snapshot. Raises `WrongTypeError` for anything else, such as its file."""
    if not isinstance(given, Snapshot):
        raise WrongTypeError(
            f"{given!r:.200} is no snapshot; give what snapshot() or Snapshot.load(file) returns"
        )
    return given


def _file(entry: dict[str, Any], data: bytes) -> FileContent:
    """A file as the index has it. Raises `ValueError` for what cannot be one."""
    path, size, found = PurePosixPath(entry["path"]), entry["size"], list[tuple[int, bytes]]()
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{path} is no path below the broker's directory")
    begin = 0
    for at, length in entry["pieces"]:
        if not (0 <= at <= at + length <= size and begin + length <= len(data)):
            raise ValueError(f"{path} has no {length} bytes at {at}")
        found.append((at, data[begin : begin + length]))
        begin += length
    return str(path), size, found
